package measure

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// What jobs are measured with, unless a benchmark says otherwise.
const (
	Workers      = 64   // producers, and consumers
	PayloadBytes = 1024 // of input, and of result
)

// Payload is 1 KiB of JSON: a string.
var Payload = json.RawMessage(`"` + strings.Repeat("The tide table of the harbour. ", 34)[:PayloadBytes-2] + `"`)

// Text is the payload without its quotation marks: the body of a message, and the payload as River
// takes it.
var Text = string(Payload[1 : len(Payload)-1])

// Quoted is a JSON string of that many bytes.
func Quoted(n int) json.RawMessage {
	return slices.Concat([]byte{'"'}, bytes.Repeat([]byte("The tide table. "), n/16+1)[:n-2], []byte{'"'})
}
