package decode

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

var errNotObject = forebay.Invalid("body", "must be a JSON object")

// checkJSON reports why data is not one JSON value within the limits.
func checkJSON(data []byte) error {
	if Blank(data) {
		return &forebay.Error{Code: forebay.CodeInvalidJSON, Field: "body", Message: "is empty; a JSON object is needed"}
	}
	return jsoncheck.Check("body", data)
}

// bodyField names a member of the body in the way the service does. The whole body is "body".
func bodyField(name string) string {
	if name == "" {
		return "body"
	}
	return Shorten(name)
}

func unknownField(name, message string) error {
	return &forebay.Error{Code: forebay.CodeUnknownField, Field: bodyField(name), Message: message}
}

// Shorten makes a foreign name fit for a message.
func Shorten(name string) string {
	if len(name) <= forebay.MaxNameBytes && CleanText(name) {
		return name
	}
	return strings.Trim(strconv.QuoteToASCII(name[:min(len(name), forebay.MaxNameBytes)]), `"`)
}

// Blank reports whether data is JSON white space only.
func Blank(data []byte) bool { return skipSpace(data, 0) == len(data) }

// CleanText reports whether s is UTF-8 without control characters.
func CleanText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// members visits the members of the object in data without copying values. data must be valid
// JSON.
func members(data []byte, visit func(name string, value []byte) error) error {
	i := skipSpace(data, 0)
	if data[i] != '{' {
		return errNotObject
	}
	i = skipSpace(data, i+1)
	for data[i] != '}' {
		end := stringEnd(data, i)
		name, err := unquote(data[i:end])
		if err != nil {
			return forebay.Invalid("body", "has a name that is not a string")
		}
		i = skipSpace(data, skipSpace(data, end)+1) // past the colon
		end = valueEnd(data, i)
		if err := visit(name, data[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(data, end)
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return nil
}

func unquote(quoted []byte) (string, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

// skipSpace returns the index of the first byte from i on that is not JSON white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// stringEnd returns the index after the string that starts at i.
func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index after the value that starts at i.
func valueEnd(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i); depth == 0 {
				return i
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of a scalar; the brace belongs to its object
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// elements visits the elements of the array at the beginning of data, which must be valid JSON.
func elements(data []byte, visit func(value []byte) error) error {
	i := skipSpace(data, 1)
	for data[i] != ']' {
		end := valueEnd(data, i)
		if err := visit(data[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(data, end)
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return nil
}

// unpairedSurrogate reports whether a string in valid JSON escapes half of a surrogate pair. The
// standard decoder silently turns that into U+FFFD (RFC 8259 section 8.2).
func unpairedSurrogate(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		first, length := escaped(data[i:])
		data = data[i+length:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		second, length := escaped(data)
		if utf16.DecodeRune(first, second) == '\uFFFD' {
			return true
		}
		data = data[length:]
	}
}

// escaped returns the UTF-16 unit of an escape, or 0 if it is not \uXXXX, and the length of the
// escape.
func escaped(data []byte) (unit rune, length int) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, min(2, len(data))
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(n), 6
}
