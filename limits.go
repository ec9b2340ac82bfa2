package forebay

import (
	"encoding/json"
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

// CheckJSON reports why b is not one JSON value of valid UTF-8 within MaxJSONDepth, or nil. An
// escaped NUL inside a string is allowed: payloads are bytes to Forebay.
func CheckJSON(field string, b []byte) error {
	if !utf8.Valid(b) {
		return &Error{Code: CodeInvalidJSON, Field: field, Message: "is not valid UTF-8"}
	}
	if depth := JSONDepth(b); depth > MaxJSONDepth {
		return &Error{Code: CodeInvalidJSON, Field: field, Message: "is nested deeper than 64 levels"}
	}
	if !json.Valid(b) {
		return &Error{Code: CodeInvalidJSON, Field: field, Message: "is not valid JSON"}
	}
	return nil
}

// JSONDepth returns the deepest nesting of arrays and objects, without recursion, so that a hostile
// document costs no stack.
func JSONDepth(b []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}
