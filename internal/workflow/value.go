package workflow

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
)

// decodeValue reads JSON for expressions: whole numbers that fit become ints.
func decodeValue(raw json.RawMessage) (v any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return numbers(v), nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		f, _ := v.Float64() // too large is infinite, which has no JSON and is refused there
		return f
	}
	return v
}

// textOf is a value as part of a text.
func textOf(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	raw, err := forebay.EncodeJSON(v)
	return strings.TrimSpace(string(raw)), err
}
