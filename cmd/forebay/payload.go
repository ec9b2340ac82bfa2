package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// maxInputBytes is the highest limit of inputs that a server can be configured with.
const maxInputBytes = 100 << 20

// namesJSON reports whether a file holds JSON, going by its name.
func namesJSON(file string) bool { return strings.HasSuffix(file, ".json") }

// asInput makes a job's input: JSON as it is, or text as a JSON string.
func asInput(data []byte, isJSON bool) (json.RawMessage, error) {
	if isJSON {
		if err := jsoncheck.Check("input", data); err != nil {
			return nil, err
		}
		return bytes.TrimSpace(data), nil
	}
	if !utf8.Valid(data) {
		return nil, command.Usagef("the input is not valid UTF-8 text")
	}
	return json.Marshal(string(data))
}

// readBody returns a message's body: text if it is UTF-8, else bytes. Both are nil if none was
// given.
func readBody(f *command.Content, c *command.Call) (text *string, binary []byte, err error) {
	data, given, err := f.Read(c, maxInputBytes)
	switch {
	case err != nil || !given:
		return nil, nil, err
	case !utf8.Valid(data):
		return nil, data, nil
	}
	body := string(data)
	return &body, nil, nil
}
