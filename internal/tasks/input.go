package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

const (
	maxLabels     = 200
	maxLabelBytes = 200
)

// object reads the fields of a JSON object. It keeps the first error in err, with the path of the
// field. A field that is null counts as absent.
type object struct {
	path   string
	values map[string]json.RawMessage
	err    error
}

// readObject parses an object. An unknown field is an error. Without known names, every field is
// accepted.
func readObject(path string, raw json.RawMessage, known ...string) *object {
	o := &object{path: path}
	if kindOf(raw) != "an object" {
		o.err = forebay.Invalid(path, "must be an object, not %s", kindOf(raw))
		return o
	}
	if err := json.Unmarshal(raw, &o.values); err != nil {
		o.err = &forebay.Error{Code: forebay.CodeInvalidJSON, Field: path, Message: "is not valid JSON"}
		return o
	}
	for _, name := range slices.Sorted(maps.Keys(o.values)) {
		if len(known) > 0 && !slices.Contains(known, name) {
			o.unknown(name, "known are "+strings.Join(known, ", "))
			break
		}
	}
	return o
}

// unquote decodes a JSON string. Most strings need no decoding, and checking that is cheaper.
func unquote(input json.RawMessage) (text string, err error) {
	if last := len(input) - 1; last > 0 && input[0] == '"' && input[last] == '"' {
		if plain := input[1:last]; bytes.IndexByte(plain, '\\') < 0 && json.Valid(input) && utf8.Valid(plain) {
			return string(plain), nil
		}
	}
	err = json.Unmarshal(input, &text)
	return text, err
}

// adopt takes over the error of a nested object.
func (o *object) adopt(nested *object) {
	if o.err == nil {
		o.err = nested.err
	}
}

// unknown refuses a field by its name.
func (o *object) unknown(name, why string) {
	if o.err == nil {
		o.err = &forebay.Error{Code: forebay.CodeUnknownField, Field: fmt.Sprintf("%s.%.80s", o.path, strings.ToValidUTF8(name, "\uFFFD")),
			Message: "unknown field; " + why}
	}
}

func (o *object) fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = forebay.Invalid(strings.TrimPrefix(o.path+"."+name, "."), format, args...)
	}
}

// has returns a field and whether it is present.
func (o *object) has(name string) (json.RawMessage, bool) {
	raw, ok := o.values[name]
	return raw, ok && kindOf(raw) != "null"
}

// present reports whether a field is present.
func (o *object) present(name string) bool {
	_, ok := o.has(name)
	return ok
}

// text reads a string. It returns "" if the field is absent.
func (o *object) text(name string) (s string) {
	if raw, ok := o.has(name); ok {
		if json.Unmarshal(raw, &s) != nil {
			o.fail(name, "must be a string, not %s", kindOf(raw))
		}
	}
	return s
}

// needText reads a string that must be present and not blank.
func (o *object) needText(name string) string {
	s := o.text(name)
	if blank(s) {
		if _, ok := o.has(name); ok {
			o.fail(name, "must not be empty")
		} else {
			o.fail(name, "is missing")
		}
	}
	return s
}

// integer reads a whole number from 1 to high. It returns 0 if the field is absent.
func (o *object) integer(name string, high int) (n int) {
	raw, ok := o.has(name)
	if ok && (json.Unmarshal(raw, &n) != nil || n < 1 || n > high) {
		o.fail(name, "must be a whole number from 1 to %d", high)
	}
	return n
}

// number reads a number in the range. It returns nil if the field is absent.
func (o *object) number(name string, low, high float64) *float64 {
	raw, ok := o.has(name)
	if !ok {
		return nil
	}
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < low || n > high {
		o.fail(name, "must be a number from %g to %g", low, high)
	}
	return &n
}

// boolean reads true or false. It returns false if the field is absent.
func (o *object) boolean(name string) (b bool) {
	if raw, ok := o.has(name); ok && json.Unmarshal(raw, &b) != nil {
		o.fail(name, "must be true or false, not %s", kindOf(raw))
	}
	return b
}

// list reads a list with a number of items in the range.
func (o *object) list(name string, low, high int) (items []json.RawMessage) {
	raw, ok := o.has(name)
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, &items) != nil {
		o.fail(name, "must be a list, not %s", kindOf(raw))
	} else if len(items) < low || len(items) > high {
		o.fail(name, "must have %d to %d items, not %d", low, high, len(items))
	}
	return items
}

// texts reads a list of strings.
func (o *object) texts(name string, low, high int) (out []string) {
	for i, raw := range o.list(name, low, high) {
		var s string
		if kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
			o.fail(fmt.Sprintf("%s[%d]", name, i), "must be a string, not %s", kindOf(raw))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// checkLabels reports why these cannot be labels of a classification, or returns nil.
func checkLabels(labels []string) error {
	if len(labels) < 1 || len(labels) > maxLabels {
		return fmt.Errorf("must have 1 to %d labels, not %d", maxLabels, len(labels))
	}
	seen := map[string]bool{}
	for _, label := range labels {
		folded := strings.ToLower(strings.TrimSpace(label))
		switch {
		case !forebay.ValidText(label, maxLabelBytes) || folded == "":
			return fmt.Errorf("each must be 1 to %d bytes of text on one line", maxLabelBytes)
		case seen[folded]:
			return fmt.Errorf("%q is there twice", label)
		}
		seen[folded] = true
	}
	return nil
}

// kindOf says what a JSON value is, with its article.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
