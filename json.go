package forebay

import (
	"bytes"
	"encoding/json"
)

// EncodeJSON returns a value as JSON on one line, without the escapes that only HTML needs.
// Invalid UTF-8 becomes U+FFFD.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
