package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

const (
	anthropicStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}}`
	anthropicDelta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, "}}`
	anthropicMore  = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"wörld"}}`
	anthropicEnd   = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":6}}`
	anthropicPlain = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Hello, wörld"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":6}}`
)

func anthropicAt(t *testing.T, h http.HandlerFunc) Provider {
	t.Helper()
	p, err := NewAnthropic(AnthropicConfig{Endpoint: serve(t, h), Model: "claude", APIKey: testKey, MaxOutputTokens: 77})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func anthropicStream(w http.ResponseWriter, data ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, d := range data {
		var e struct{ Type string }
		_ = json.Unmarshal([]byte(d), &e)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, d)
	}
}

func TestAnthropicChat(t *testing.T) {
	var got messagesBody
	p := anthropicAt(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/messages" || r.Header.Get("x-api-key") != testKey || r.Header.Get("anthropic-version") != anthropicVersion {
			http.Error(w, "wrong path, key or version", http.StatusTeapot)
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&got)
		anthropicStream(w, anthropicStart, `{"type":"ping"}`, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			anthropicDelta, anthropicMore, `{"type":"content_block_stop","index":0}`, anthropicEnd, `{"type":"message_stop"}`)
	})
	resp, err := p.Chat(t.Context(), ChatRequest{
		Messages: []Message{{Role: RoleSystem, Content: "be brief"}, {Role: RoleUser, Content: "hi"}, {Role: RoleSystem, Content: "be kind"}, {Role: RoleAssistant, Content: "yes?"}, {Role: RoleUser, Content: "go on"}},
		Stop:     []string{"END"}, JSONSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), WantRaw: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Text != "Hello, wörld" || resp.FinishReason != "stop" || resp.Model != "claude-x" ||
		resp.Usage != (forebay.TokenUsage{InputTokens: 15, OutputTokens: 6}) {
		t.Errorf("got %+v", resp)
	}
	if got.System != "be brief\n\nbe kind" || len(got.Messages) != 3 || got.MaxTokens != 77 || !got.Stream || got.StopSequences[0] != "END" ||
		got.OutputConfig.Format.Type != "json_schema" || string(got.OutputConfig.Format.Schema) != `{"type":"object","properties":{},"additionalProperties":false}` {
		t.Errorf("request is %+v", got)
	}
	var raw messagesObject
	if json.Unmarshal(resp.Raw, &raw) != nil || raw.ID != "msg_1" || gjson.GetBytes(raw.Content[0], "text").Str != resp.Text || raw.StopReason != "end_turn" {
		t.Errorf("raw is %s", resp.Raw)
	}
}

func TestAnthropicAnswers(t *testing.T) {
	const transient, permanent, throttled = forebay.ClassTransient, forebay.ClassPermanent, forebay.ClassThrottled
	fail := func(status int, kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "4")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"as said"},"request_id":"req_1"}`, kind)
		}
	}
	sse := func(data ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { anthropicStream(w, data...) }
	}
	plain := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		class   forebay.ErrorClass
		code    string
	}{
		{"plain JSON", plain(anthropicPlain), "", ""},
		{"ended after the stop reason", sse(anthropicStart, anthropicDelta, anthropicMore, anthropicEnd), "", ""},
		{"ended before it", sse(anthropicStart, anthropicDelta), transient, CodeStreamCut},
		{"stop without a reason", sse(anthropicStart, `{"type":"message_stop"}`), transient, CodeStreamCut},
		{"empty", sse(), transient, CodeMalformedResponse},
		{"broken", sse(anthropicStart, `{"type":`), transient, CodeMalformedResponse},
		{"plain and broken", plain(anthropicPlain[:30]), transient, CodeMalformedResponse},
		{"plain and empty", plain(`{}`), transient, CodeMalformedResponse},
		{"plain error", plain(`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`), transient, CodeOverloaded},
		{"overloaded inside", sse(anthropicStart, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), transient, CodeOverloaded},
		{"throttled inside", sse(`{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`), throttled, CodeRateLimited},
		{"refusal", sse(anthropicStart, strings.Replace(anthropicEnd, "end_turn", "refusal", 1), `{"type":"message_stop"}`), permanent, CodeContentFilter},
		{"400", fail(400, "invalid_request_error"), permanent, CodeBadRequest},
		{"401", fail(401, "authentication_error"), permanent, CodeUnauthorized},
		{"402", fail(402, "billing_error"), permanent, CodeInsufficientQuota},
		{"429", fail(429, "rate_limit_error"), throttled, CodeRateLimited},
		{"500", fail(500, "api_error"), transient, CodeServerError},
		{"529", fail(529, "overloaded_error"), transient, CodeOverloaded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := anthropicAt(t, tt.handler).Chat(t.Context(), say("hi"))
			if tt.class != "" {
				e := wantTask(t, err, tt.class, tt.code)
				if tt.name == "429" && e.RetryAfter.Seconds() != 4 {
					t.Errorf("retry after %v", e.RetryAfter)
				}
				return
			}
			if err != nil || resp.Text != "Hello, wörld" || resp.FinishReason != "stop" || resp.Usage.OutputTokens != 6 {
				t.Errorf("got %+v, %v", resp, err)
			}
		})
	}
}

func TestAnthropicFinishReasons(t *testing.T) {
	for reason, want := range map[string]string{"stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "model_context_window_exceeded": "length"} {
		resp, err := anthropicAt(t, func(w http.ResponseWriter, r *http.Request) {
			anthropicStream(w, anthropicStart, strings.Replace(anthropicEnd, "end_turn", reason, 1), `{"type":"message_stop"}`)
		}).Chat(t.Context(), say("hi"))
		if err != nil || resp.FinishReason != want {
			t.Errorf("%s: %q, %v", reason, resp.FinishReason, err)
		}
	}
}

func TestAnthropicHasNoEmbeddings(t *testing.T) {
	_, err := anthropicAt(t, http.NotFound).Embed(t.Context(), EmbedRequest{Inputs: []string{"x"}})
	wantTask(t, err, forebay.ClassPermanent, CodeNotSupported)
}

// Anthropic refuses a schema with an open object: it is not sent.
func TestAnthropicOpenSchema(t *testing.T) {
	var got map[string]any
	p := anthropicAt(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		anthropicStream(w, anthropicStart, anthropicDelta, anthropicEnd, `{"type":"message_stop"}`)
	})
	_, err := p.Chat(t.Context(), ChatRequest{Messages: []Message{{Role: RoleUser, Content: "hi"}}, JSONSchema: json.RawMessage(`{"type":"object"}`)})
	if _, sent := got["output_config"]; err != nil || sent {
		t.Errorf("%v, request %v", err, got)
	}
}
