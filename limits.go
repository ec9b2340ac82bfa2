package forebay

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on input from outside. They are checked at submit, never later. Message and session ids
// follow Azure Service Bus (service-bus-quotas): 128 characters.
const (
	DefaultMaxInputBytes = 10 << 20 // one job's input; the configuration may change it
	InlineBytes          = 64 << 10 // larger inputs and results live in blob storage (claim-check)

	MaxNameBytes           = 64  // tasks, queues of jobs, tenants, deployments
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

// ValidName reports whether s may name a task, queue of jobs, tenant or deployment. A name has 1
// to 64 of a-z A-Z 0-9 . _ - and starts with a letter or digit.
func ValidName(s string) bool {
	return len(s) <= MaxNameBytes && validFirst(s) && validCharacters(s, "._-")
}

// ValidEntityName reports whether s may name a queue of messages or a topic. A name has 1 to 260
// of a-z A-Z 0-9 . _ - ~ / and starts with a letter or digit (service-bus-quotas). MassTransit can
// write a tilde between a namespace and a type. A part between slashes has more than dots, so that
// no proxy changes the name in a URL. No part after the first is "subscriptions" in any case,
// because that separates a topic from a subscription.
func ValidEntityName(s string) bool {
	if len(s) > MaxEntityBytes {
		return false
	}
	first, rest, more := strings.Cut(s, "/")
	if !validCharacters(first, entityMarks) || !validFirst(first) {
		return false
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		if !validCharacters(part, entityMarks) || strings.Trim(part, ".") == "" || strings.EqualFold(part, "subscriptions") {
			return false
		}
	}
	return true
}

// entityMarks are what names of entities have besides letters, digits and slashes.
const entityMarks = "._-~"

func validFirst(s string) bool { return s != "" && !strings.ContainsRune(entityMarks, rune(s[0])) }

// validCharacters reports whether s has letters, digits and these marks only.
func validCharacters(s, marks string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(marks, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// ValidText reports whether s is 1 to max bytes of UTF-8 without control characters. Such texts
// can be ids and keys in headers and logs.
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
