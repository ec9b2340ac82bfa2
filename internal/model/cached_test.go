package model

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// What an endpoint says of cached tokens reaches whoever admitted the call, as far as it can be
// true.
func TestCachedTokens(t *testing.T) {
	const chat, message = "chat", "message"
	write := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = fmt.Fprint(w, body)
		}
	}
	plain := func(usage string) http.HandlerFunc {
		return write("application/json", `{"model":"m","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":`+usage+`}`)
	}
	said := func(cached string) string {
		return `{"prompt_tokens":1000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":` + cached + `,"audio_tokens":0}}`
	}
	blocks := func(start, end string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			anthropicStream(w, `{"type":"message_start","message":{"id":"1","model":"m","content":[{"type":"text","text":"a"}],"usage":`+start+`}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+end+`}`, `{"type":"message_stop"}`)
		}
	}
	for name, test := range map[string]struct {
		shape string
		serve http.HandlerFunc
		want  quota.Usage
	}{
		"chat, streamed": {chat, func(w http.ResponseWriter, r *http.Request) {
			stream(w, chunkHello, chunkStop, `{"model":"m","choices":[],"usage":`+said("640")+`}`, "[DONE]")
		}, quota.Usage{PromptTokens: 1000, CachedTokens: 640, OutputTokens: 3}},
		"chat, plain":             {chat, plain(said("640")), quota.Usage{PromptTokens: 1000, CachedTokens: 640, OutputTokens: 3}},
		"chat, nothing cached":    {chat, plain(said("0")), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"chat, null":              {chat, plain(said("null")), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"chat, details are null":  {chat, plain(`{"prompt_tokens":1000,"completion_tokens":3,"prompt_tokens_details":null}`), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"chat, below 0":           {chat, plain(said("-7")), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"chat, more than prompt":  {chat, plain(said("1001")), quota.Usage{PromptTokens: 1000, CachedTokens: 1000, OutputTokens: 3}},
		"chat, out of all bounds": {chat, plain(said("9223372036854775807")), quota.Usage{PromptTokens: 1000, CachedTokens: 1000, OutputTokens: 3}},
		"chat, no number":         {chat, plain(said(`{"a":1}`)), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"chat, prompt below 0": {chat, plain(`{"prompt_tokens":-5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}`),
			quota.Usage{OutputTokens: 3}},
		"message, streamed": {message, blocks(`{"input_tokens":300,"cache_creation_input_tokens":60,"cache_read_input_tokens":640,"output_tokens":1}`, `{"output_tokens":3}`),
			quota.Usage{PromptTokens: 1000, CachedTokens: 640, OutputTokens: 3}},
		"message, said at the end": {message, blocks(`{"input_tokens":360,"output_tokens":1}`, `{"input_tokens":360,"cache_read_input_tokens":640,"output_tokens":3}`),
			quota.Usage{PromptTokens: 1000, CachedTokens: 640, OutputTokens: 3}},
		"message, plain": {message, write("application/json", `{"model":"m","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":360,"cache_read_input_tokens":640,"output_tokens":3}}`),
			quota.Usage{PromptTokens: 1000, CachedTokens: 640, OutputTokens: 3}},
		"message, nothing cached": {message, blocks(`{"input_tokens":1000,"output_tokens":1}`, `{"output_tokens":3}`), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"message, below 0":        {message, blocks(`{"input_tokens":1000,"cache_read_input_tokens":-7,"output_tokens":1}`, `{"output_tokens":3}`), quota.Usage{PromptTokens: 1000, OutputTokens: 3}},
		"message, out of all bounds": {message, blocks(`{"input_tokens":1000,"cache_read_input_tokens":9223372036854775807,"output_tokens":1}`, `{"output_tokens":3}`),
			quota.Usage{OutputTokens: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Deployment{Name: "d"}
			if test.shape == message {
				d.Provider = anthropicAt(t, test.serve)
			} else {
				d.Provider = openAIAt(t, serve(t, test.serve), HTTPConfig{})
			}
			r, err := NewRouter(map[string]Model{"m": {Deployments: []*Deployment{d}}})
			if err != nil {
				t.Fatal(err)
			}
			call := &quota.Call{Deployment: "d"}
			if _, _, err := r.Chat(quota.WithCall(t.Context(), call), "m", say("hi")); err != nil {
				t.Fatal(err)
			}
			if call.Outcome.Kind != quota.Succeeded || call.Outcome.Usage != test.want {
				t.Errorf("told %+v, want %+v", call.Outcome.Usage, test.want)
			}
		})
	}
}

// What Anthropic writes to its cache is told apart, also of a message that is passed on.
func TestCacheWritesAreCounted(t *testing.T) {
	const usage = `{"input_tokens":300,"cache_creation_input_tokens":60,"cache_read_input_tokens":640,"output_tokens":3}`
	plain := `{"type":"message","model":"m","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":` + usage + `}`
	write := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, plain)
	}
	resp, err := anthropicAt(t, write).Chat(t.Context(), say("hi"))
	if err != nil || resp.CacheWrites != 60 || resp.CachedTokens != 640 || resp.Usage.InputTokens != 1000 {
		t.Errorf("%+v: %v", resp, err)
	}
	passed, err := anthropicAt(t, write).(Forwarder).Forward(t.Context(), ForwardRequest{Path: pathMessages,
		Body: []byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`), Begin: func(int, http.Header) error { return nil }, Write: func([]byte) error { return nil }})
	if err != nil || passed.CacheWrites != 60 || passed.CachedTokens != 640 || passed.Usage.InputTokens != 1000 {
		t.Errorf("%+v: %v", passed, err)
	}
}
