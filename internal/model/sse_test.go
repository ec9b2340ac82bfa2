package model

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestEvents(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"one", "data: a\n\n", "|a;"},
		{"space is one space", "data:  a\n\n", "| a;"},
		{"no space", "data:a\n\n", "|a;"},
		{"lines are joined", "data: a\ndata: b\ndata\n\n", "|a\nb\n;"},
		{"names", "event: x\ndata: a\n\ndata: b\n\n", "x|a;|b;"},
		{"a name alone is no event", "event: x\n\ndata: b\n\n", "|b;"},
		{"CRLF", "event: x\r\ndata: a\r\n\r\n", "x|a;"},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", "|a;"},
		{"comments, other fields", ": c\nid: 4\nretry: 5\nfoo\n\ndata: a\n\n", "|a;"},
		{"empty data", "data\n\ndata:\n\n", "|;|;"},
		{"no last blank line", "data: a\n", "|a;"},
		{"no last line end", "data: a", "|a;"},
		{"longer than the buffer", "data: " + strings.Repeat("x", 20000) + "\n\n", "|" + strings.Repeat("x", 20000) + ";"},
		{"nothing", "", ""},
		{"blank lines", "\n\r\n\n", ""},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in))} {
			var got strings.Builder
			s := readEvents(r, 1<<16)
			for {
				name, data, err := s.next()
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Errorf("%s %s: %v", tt.name, how, err)
					}
					break
				}
				got.WriteString(string(name) + "|" + string(data) + ";")
			}
			s.free()
			if got.String() != tt.want {
				t.Errorf("%s %s: got %.80q, want %.80q", tt.name, how, got.String(), tt.want)
			}
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	for _, in := range []string{"data: " + strings.Repeat("x", 20000), strings.Repeat("data: xxxxxxxxxx\n", 2000), ": " + strings.Repeat("c", 20000) + "\n"} {
		s := readEvents(strings.NewReader(in), 10000)
		if _, _, err := s.next(); !errors.Is(err, errTooLarge) {
			t.Errorf("%.20q…: %v", in, err)
		}
		s.free()
	}
}

var unwatched = newWatch(time.Hour, func() {})

func answerOf(body []byte, contentType string) answer {
	return answer{header: http.Header{"Content-Type": {contentType}}, body: bytes.NewReader(body), raw: bytes.NewReader(nil), watch: unwatched}
}

// FuzzAnswers feeds any input to both readers of answers, as a stream and as a plain body. They
// end, stay within their limits, and a success is a complete answer.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		"data: " + chunkRole + "\n\ndata: " + chunkHello + "\n\ndata: " + chunkStop + "\n\ndata: " + chunkUsage + "\n\ndata: [DONE]\n\n",
		plainAnswer,
		"data: " + chunkHello,
		"data: {\"error\":{\"code\":429}}\n\n",
		"data: {\"choices\":[{\"index\":0,\"delta\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":-1}}\n\ndata: [DONE]\n\n",
		"event: message_start\ndata: " + anthropicStart + "\n\nevent: content_block_delta\ndata: " + anthropicDelta + "\n\nevent: message_delta\ndata: " + anthropicEnd + "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		anthropicPlain,
		"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
		"\r\n\xef\xbb\xbf: \x00", "[]", "data: null\n\n", "data: {}\n\ndata: [DONE]",
	} {
		f.Add([]byte(s))
	}
	e := &endpoint{maxOutput: 4096}
	none := func() []string { return nil }
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, kind := range []string{"text/event-stream", "application/json", ""} {
			chat := chatAnswer{endpoint: e, texts: none, wantRaw: true}
			err := chat.read(answerOf(body, kind))
			resp := chat.response(t.Context(), say("hi"), err == nil)
			if err == nil && (resp.FinishReason == "" || len(resp.Text) > 4096 || resp.Raw == nil) || resp.Usage.InputTokens < 0 || resp.Usage.OutputTokens < 0 {
				t.Errorf("chat as %q: %+v", kind, resp)
			}
			messages := messagesAnswer{endpoint: e, texts: none}
			err = messages.read(answerOf(body, kind))
			resp = messages.response(t.Context(), say("hi"), err == nil)
			if err == nil && (resp.FinishReason == "" || len(resp.Text) > 4096) || resp.Usage.InputTokens < 0 || resp.Usage.OutputTokens < 0 {
				t.Errorf("messages as %q: %+v", kind, resp)
			}
		}
		_, _ = (&openAI{endpoint: *e}).parseEmbeddings(t.Context(), body, EmbedRequest{Inputs: []string{"a"}})
	})
}
