package forebay

import (
	"unicode"
	"unicode/utf8"
)

// Limits on what comes from outside. They are checked at submit, never later. Message and session
// ids follow Azure Service Bus (service-bus-quotas): 128 characters.
const (
	DefaultMaxInputBytes = 10 << 20 // one job's input; the configuration may change it
	InlineBytes          = 64 << 10 // larger inputs and results live in blob storage (claim-check)

	MaxNameBytes           = 64  // tasks, queues, tenants, deployments
	MaxCorrelationBytes    = 128 //
	MaxIdempotencyKeyBytes = 255 //
	MaxMetadataEntries     = 64  //
	MaxMetadataKeyBytes    = 128 //
	MaxMetadataBytes       = 16 << 10
	MaxJSONDepth           = 64 //
	MaxErrorMessageBytes   = 4 << 10

	MaxAttemptsLimit = 100
	MaxTotalTokens   = 1_000_000_000_000 // what a job may limit itself to, input and output of all attempts
	MinPriority      = 0
	MaxPriority      = 9
	DefaultPriority  = 5

	DefaultPageSize = 50
	MaxPageSize     = 500

	MaxBulkLines = 100_000 // lines of one bulk submit
)

// ValidName reports whether s may name a task, queue, tenant or deployment: 1 to 64 of
// a-z A-Z 0-9 . _ - and starting with a letter or digit.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// ValidText reports whether s is 1 to max bytes of UTF-8 without control characters: fit for ids
// and keys that travel in headers and logs.
func ValidText(s string, max int) bool {
	if s == "" || len(s) > max || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
