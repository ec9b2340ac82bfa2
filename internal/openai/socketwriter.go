package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// frameWriter sends the answer to a message over its connection: each server-sent event as a text
// message, and a refusal as an event.
type frameWriter struct {
	*socket
	ctx    context.Context // of the call
	lane   string
	header http.Header
	status int
}

// Header implements [http.ResponseWriter]. A message has none.
func (w *frameWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements [http.ResponseWriter].
func (w *frameWriter) WriteHeader(status int) { w.status = status }

// Write implements [http.ResponseWriter]. It gets whole server-sent events, or a whole refusal.
func (w *frameWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil { // the connection says why it ends
		return 0, w.ctx.Err()
	}
	if w.status >= http.StatusBadRequest {
		event, err := json.Marshal(w.refusal(gjson.GetBytes(b, "error")))
		if err != nil {
			return 0, err
		}
		return len(b), w.send(w.lane, event)
	}
	for line := range bytes.Lines(b) {
		data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: "))
		if !ok || data[0] != '{' { // the name of an event, or the end of the stream
			continue
		}
		if err := w.send(w.lane, data); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// errorEvent tells of an error. SDKs differ in where they look for it, so it has that in both
// places. The headers are those that a refusal over HTTP has for retries.
type errorEvent struct {
	Type    string            `json:"type"`
	Status  int               `json:"status"`
	Code    any               `json:"code"`
	Message any               `json:"message"`
	Param   any               `json:"param"`
	Error   json.RawMessage   `json:"error"`
	Headers map[string]string `json:"headers,omitempty"`
}

// refusal is the event for an error as HTTP has it.
func (w *frameWriter) refusal(said gjson.Result) errorEvent {
	e := errorEvent{Type: "error", Status: w.status, Error: json.RawMessage(said.Raw), Headers: map[string]string{},
		Code: said.Get("code").Value(), Message: said.Get("message").Value(), Param: said.Get("param").Value()}
	for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
		if value := w.header.Get(name); value != "" {
			e.Headers[strings.ToLower(name)] = value
		}
	}
	return e
}

// handshake passes on the answer to a handshake unless it is a refusal.
type handshake struct {
	http.ResponseWriter
	refused int // its status; 0: it is none
}

// Unwrap is for who takes the connection over.
func (w *handshake) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *handshake) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *handshake) Write(b []byte) (int, error) {
	if w.refused != 0 {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
