package servertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// ChatStream writes an answer of chat completions as a stream.
func ChatStream(w http.ResponseWriter, chunks ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, chunk := range chunks {
		_, _ = io.WriteString(w, "data: "+chunk+"\n\n")
		w.(http.Flusher).Flush()
	}
}

// ChatUsage is the chunk of such a stream that says what the answer took.
const ChatUsage = `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":3}}}`

// Streamed are the events of a stream of responses.
type Streamed struct {
	Types []string
	Data  []map[string]any
}

// ReadStream reads a whole stream of responses.
func ReadStream(t *testing.T, body string) Streamed {
	t.Helper()
	var s Streamed
	rest, done := strings.CutSuffix(body, "data: [DONE]\n\n")
	if !done {
		t.Fatalf("the stream has no end: %q", body)
	}
	for frame := range strings.SplitSeq(rest, "\n\n") {
		if frame == "" || strings.HasPrefix(frame, ":") {
			continue
		}
		name, data, _ := strings.Cut(frame, "\n")
		var event map[string]any
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &event); err != nil || "event: "+fmt.Sprint(event["type"]) != name {
			t.Fatalf("%q: %v", frame, err)
		}
		s.Types, s.Data = append(s.Types, event["type"].(string)), append(s.Data, event)
	}
	return s
}

// Gapless fails unless the events have the numbers that follow from.
func (s Streamed) Gapless(t *testing.T, from int) {
	t.Helper()
	for i, event := range s.Data {
		if event["sequence_number"] != float64(from+i) {
			t.Fatalf("event %d has the number %v: %v", from+i, event["sequence_number"], s.Types)
		}
	}
}

// Object decodes a JSON object.
func Object(t *testing.T, body string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return o
}

// OutputText is the text of all messages of a response.
func OutputText(o map[string]any) (all string) {
	list, _ := o["output"].([]any)
	for _, item := range list {
		parts, _ := item.(map[string]any)["content"].([]any)
		for _, part := range parts {
			text, _ := part.(map[string]any)["text"].(string)
			all += text
		}
	}
	return all
}

// BatchLines are lines of a batch, a chat completion for each of the contents. Their ids are r0,
// r1 and so on.
func BatchLines(contents ...string) string {
	var b strings.Builder
	for i, content := range contents {
		fmt.Fprintf(&b, `{"custom_id":"r%d","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":%q}]}}`+"\n", i, content)
	}
	return b.String()
}
