package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

const testKey = "sk-test-0123456789abcdefXYZ"

// serve starts an upstream and returns its base URL.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func openAIAt(t testing.TB, endpoint string, c HTTPConfig) Provider {
	t.Helper()
	p, err := NewOpenAI(OpenAIConfig{Endpoint: endpoint + "/v1", Model: "small", APIKey: testKey, HTTPConfig: c})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func say(text string) ChatRequest {
	return ChatRequest{Messages: []Message{{Role: RoleUser, Content: text}}}
}

// stream writes server-sent events as OpenAI frames them.
func stream(w http.ResponseWriter, data ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, d := range data {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", d)
	}
	w.(http.Flusher).Flush()
}

const (
	chunkRole   = `{"id":"c1","object":"chat.completion.chunk","created":7,"model":"small-2","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null}`
	chunkHello  = `{"id":"c1","model":"small-2","choices":[{"index":0,"delta":{"content":"Hello, "},"finish_reason":null}]}`
	chunkWorld  = `{"id":"c1","model":"small-2","choices":[{"index":0,"delta":{"content":"wörld"},"finish_reason":null}]}`
	chunkStop   = `{"id":"c1","model":"small-2","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	chunkUsage  = `{"id":"c1","model":"small-2","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}}`
	chunkFilter = `{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}`
	plainAnswer = `{"id":"c1","object":"chat.completion","model":"small-2","choices":[{"index":0,"message":{"role":"assistant","content":"Hello, wörld"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":3}}`
)

func wantTask(t *testing.T, err error, class forebay.ErrorClass, code string) forebay.TaskError {
	t.Helper()
	var e *forebay.TaskError
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, want a TaskError %s", err, code)
	}
	if e.Class != class || e.Code != code {
		t.Fatalf("error is %s %s (%s), want %s %s", e.Class, e.Code, e.Message, class, code)
	}
	if len(e.Message) > maxMessageBytes {
		t.Errorf("message of %d bytes", len(e.Message))
	}
	if strings.Contains(e.Error(), testKey) {
		t.Errorf("the key is in %q", e.Error())
	}
	return *e
}

func TestOpenAIChat(t *testing.T) {
	var got map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+testKey {
			http.Error(w, "wrong path or key", http.StatusTeapot)
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&got)
		stream(w, chunkRole, chunkHello, chunkWorld, chunkStop, chunkUsage, "[DONE]")
	})
	temperature := 0.5
	resp, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), ChatRequest{
		Messages: []Message{{Role: RoleSystem, Content: "be <brief>"}, {Role: RoleUser, Content: "hi"}}, MaxOutputTokens: 9, Temperature: &temperature,
		JSONSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`),
		SchemaName: "thing", WantRaw: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Text != "Hello, wörld" || resp.FinishReason != "stop" || resp.Model != "small-2" ||
		resp.Usage != (forebay.TokenUsage{InputTokens: 11, OutputTokens: 3}) {
		t.Errorf("got %+v", resp)
	}
	var raw struct {
		ID      string
		Choices []struct{ Message Message }
		Usage   chatUsage
	}
	if err := json.Unmarshal(resp.Raw, &raw); err != nil || raw.ID != "c1" || raw.Choices[0].Message.Content != resp.Text || raw.Usage.PromptTokens != 11 {
		t.Errorf("raw is %s: %v", resp.Raw, err)
	}
	want := map[string]any{"model": "small", "max_tokens": 9.0, "stream": true, "temperature": 0.5}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("request's %s is %v, want %v", k, got[k], v)
		}
	}
	schema := got["response_format"].(map[string]any)["json_schema"].(map[string]any)
	if schema["name"] != "thing" || schema["strict"] != true || got["stream_options"].(map[string]any)["include_usage"] != true {
		t.Errorf("request is %v", got)
	}
	if got["messages"].([]any)[0].(map[string]any)["content"] != "be <brief>" {
		t.Errorf("messages are %v", got["messages"])
	}
}

// A JSON object without a schema is asked for as such.
func TestOpenAIJSONObject(t *testing.T) {
	var got map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		stream(w, chunkRole, chunkHello, chunkStop, chunkUsage, "[DONE]")
	})
	if _, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), ChatRequest{Messages: []Message{{Role: RoleUser, Content: "hi"}}, JSONObject: true}); err != nil {
		t.Fatal(err)
	}
	if format, _ := got["response_format"].(map[string]any); len(format) != 1 || format["type"] != "json_object" {
		t.Errorf("response_format is %v", got["response_format"])
	}
}

// Each is an answer with status 200, as some server or other sends it.
func TestOpenAIAnswers(t *testing.T) {
	sse := func(data ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { stream(w, data...) }
	}
	write := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}
	}
	const transient, permanent, throttled = forebay.ClassTransient, forebay.ClassPermanent, forebay.ClassThrottled
	hello := chunkHello + "\n\ndata: " + chunkWorld
	tests := []struct {
		name    string
		handler http.HandlerFunc
		class   forebay.ErrorClass // "": succeeds with "Hello, wörld"
		code    string
	}{
		{"plain JSON", write("application/json", plainAnswer), "", ""},
		{"plain JSON as text", write("text/plain", " \n"+plainAnswer), "", ""},
		{"stream as text", write("text/plain", ": hi\n\ndata: "+hello+"\n\ndata: "+chunkStop+"\n\n"), "", ""},
		{"CRLF, no spaces, no last blank line", write("text/event-stream", strings.ReplaceAll("data:"+hello+"\n\ndata:"+chunkStop, "\n", "\r\n")), "", ""},
		{"comments and other fields", write("text/event-stream", ": ping\n\nid: 1\nretry: 5\nevent: x\ndata: "+hello+"\n\n: ping\n\ndata: "+chunkStop+"\n\ndata: [DONE]\n\n"), "", ""},
		{"empty choices first, as Azure sends them", sse(`{"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, chunkHello, chunkWorld, chunkStop, "[DONE]"), "", ""},
		{"DONE without a reason", sse(chunkHello, chunkWorld, "[DONE]"), "", ""},
		{"cut after the finish", func(w http.ResponseWriter, r *http.Request) {
			stream(w, chunkHello, chunkWorld, chunkStop)
			panic(http.ErrAbortHandler)
		}, "", ""},
		{"ended before the finish", sse(chunkRole, chunkHello), transient, CodeStreamCut},
		{"cut before the finish", func(w http.ResponseWriter, r *http.Request) {
			stream(w, chunkRole, chunkHello)
			panic(http.ErrAbortHandler)
		}, transient, CodeConnectionLost},
		{"cut before anything", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, transient, CodeConnectionLost},
		{"plain JSON cut", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, plainAnswer)
		}, transient, CodeConnectionLost},
		{"broken JSON in the stream", sse(chunkHello, `{"choices":[{"delta"`), transient, CodeMalformedResponse},
		{"broken JSON", write("application/json", plainAnswer[:40]), transient, CodeMalformedResponse},
		{"wrong types", write("application/json", `{"choices":"none"}`), transient, CodeMalformedResponse},
		{"no choices", write("application/json", `{"choices":[]}`), transient, CodeMalformedResponse},
		{"a proxy's page", write("text/html", "<html>sign in</html>"), transient, CodeMalformedResponse},
		{"empty", write("application/json", ""), transient, CodeMalformedResponse},
		{"empty stream", write("text/event-stream", ""), transient, CodeMalformedResponse},
		{"only DONE", sse("[DONE]"), transient, CodeMalformedResponse},
		{"content filter", sse(chunkHello, chunkFilter, "[DONE]"), permanent, CodeContentFilter},
		{"refusal", sse(`{"choices":[{"index":0,"delta":{"refusal":"I cannot"},"finish_reason":null}]}`, chunkStop, "[DONE]"), permanent, CodeRefused},
		{"error event", sse(chunkHello, `{"error":{"message":"boom","type":"server_error"}}`), transient, CodeServerError},
		{"throttled inside the stream", sse(`{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`), throttled, CodeRateLimited},
		{"numeric code inside the stream", sse(`{"error":{"message":"slow down","code":429}}`), throttled, CodeRateLimited},
		{"no money inside the stream", sse(`{"error":{"code":"insufficient_quota","message":"pay"}}`), permanent, CodeInsufficientQuota},
		{"filtered inside the stream", sse(`{"error":{"code":"content_filter","message":"no"}}`), permanent, CodeContentFilter},
		{"invalid prompt inside the stream", sse(`{"error":{"code":"invalid_prompt","message":"flagged"}}`), permanent, CodeBadRequest},
		{"invalid picture inside the stream", sse(`{"error":{"code":"image_too_large","message":"too large"}}`), permanent, CodeBadRequest},
		{"empty data between events", write("text/event-stream", "data:\n\ndata: "+hello+"\n\ndata: \n\ndata: "+chunkStop+"\n\n"), "", ""},
		{"error finish", sse(chunkHello, `{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`), transient, CodeServerError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := openAIAt(t, serve(t, tt.handler), HTTPConfig{}).Chat(t.Context(), say("hi"))
			if tt.class != "" {
				wantTask(t, err, tt.class, tt.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if resp.Text != "Hello, wörld" || resp.FinishReason != "stop" {
				t.Errorf("got %+v", resp)
			}
			if resp.Usage.InputTokens == 0 || resp.Usage.OutputTokens == 0 {
				t.Errorf("usage was neither reported nor estimated: %+v", resp.Usage)
			}
		})
	}
}

func TestUsageOfAFailedCall(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { stream(w, chunkHello, chunkFilter, chunkUsage, "[DONE]") })
	resp, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), say("hi"))
	wantTask(t, err, forebay.ClassPermanent, CodeContentFilter)
	if resp.Usage.InputTokens != 11 {
		t.Errorf("usage is %+v", resp.Usage)
	}
}

func TestIdleTimeout(t *testing.T) {
	for name, first := range map[string]func(http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"within the stream": func(w http.ResponseWriter) { stream(w, chunkHello) },
		"within an error":   func(w http.ResponseWriter) { w.WriteHeader(500); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				first(w)
				<-r.Context().Done()
				close(gone)
			})
			_, err := openAIAt(t, url, HTTPConfig{IdleTimeout: 2 * time.Second}).Chat(t.Context(), say("hi"))
			wantTask(t, err, forebay.ClassTransient, CodeIdleTimeout)
			<-gone
		})
	}
}

// A stream may take many idle timeouts as long as it moves.
func TestNoTotalTimeout(t *testing.T) {
	t.Parallel()
	const idle = 5 * time.Second
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(idle / 8)
		defer tick.Stop()
		for range 10 {
			<-tick.C
			stream(w, chunkHello)
		}
		stream(w, chunkStop, "[DONE]")
	})
	begun := time.Now()
	if _, err := openAIAt(t, url, HTTPConfig{IdleTimeout: idle}).Chat(t.Context(), say("hi")); err != nil {
		t.Fatal(err)
	}
	if time.Since(begun) < idle {
		t.Error("the stream was over before the idle timeout: nothing was shown")
	}
}

func TestCancelReachesTheUpstream(t *testing.T) {
	stopped := errors.New("the job was cancelled")
	started, gone := make(chan struct{}), make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		stream(w, chunkHello)
		close(started)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(stopped) }()
	_, err := openAIAt(t, url, HTTPConfig{}).Chat(ctx, say("hi"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, stopped) {
		t.Errorf("error is %v", err)
	}
	var task *forebay.TaskError
	if errors.As(err, &task) {
		t.Errorf("a cancelled call is no failure of the provider: %v", task)
	}
	<-gone
}

func TestResponseTooLarge(t *testing.T) {
	long := strings.Repeat("x", 600)
	chunk := `{"choices":[{"index":0,"delta":{"content":"` + long + `"}}]}`
	for name, h := range map[string]http.HandlerFunc{
		"text of a stream": func(w http.ResponseWriter, r *http.Request) { stream(w, chunk, chunk, chunkStop) },
		"plain JSON": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"`+long+long+`"},"finish_reason":"stop"}]}`)
		},
		"one event": func(w http.ResponseWriter, r *http.Request) {
			stream(w, `{"x":"`+strings.Repeat("x", maxErrorBytes+2000)+`"}`)
		},
		"events without text": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				stream(w, chunkRole, chunkRole, chunkRole)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openAIAt(t, serve(t, h), HTTPConfig{MaxOutputBytes: 1000}).Chat(t.Context(), say("hi"))
			wantTask(t, err, forebay.ClassPermanent, CodeResponseTooLarge)
		})
	}
}

func TestNoRedirects(t *testing.T) {
	var calls atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), say("hi"))
	wantTask(t, err, forebay.ClassPermanent, CodeBadRequest)
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestConnectionRefused(t *testing.T) {
	_, err := openAIAt(t, "http://127.0.0.1:1", HTTPConfig{}).Chat(t.Context(), say("hi"))
	wantTask(t, err, forebay.ClassTransient, CodeConnectionFailed)
}

// A server that knows only the other name of a parameter costs one attempt, not every job.
func TestParametersAreLearned(t *testing.T) {
	var seen []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		refuse := func(message, param string) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","param":%s,"code":"unsupported_parameter"}}`, message, param)
		}
		switch {
		case strings.Contains(string(body), `"max_tokens"`):
			seen = append(seen, "max_tokens")
			refuse("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", `"max_tokens"`)
		case strings.Contains(string(body), `"stream_options"`):
			seen = append(seen, "stream_options")
			refuse("Unrecognized request argument supplied: stream_options", "null")
		default:
			seen = append(seen, "ok")
			stream(w, chunkHello, chunkStop, "[DONE]")
		}
	})
	p := openAIAt(t, url, HTTPConfig{})
	req := say("hi")
	req.MaxOutputTokens = 5
	for range 2 {
		_, err := p.Chat(t.Context(), req)
		wantTask(t, err, forebay.ClassThrottled, CodeParameterLearned)
	}
	if _, err := p.Chat(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "max_tokens stream_options ok" {
		t.Errorf("the server saw %s", got)
	}
}

// A value that is refused under both names is the request's fault, for ever.
func TestRefusedValueIsPermanent(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"max_tokens is too large: 5","type":"invalid_request_error","param":"max_tokens","code":null}}`)
	})
	req := say("hi")
	req.MaxOutputTokens = 5
	_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), req)
	wantTask(t, err, forebay.ClassPermanent, CodeBadRequest)
}

// Whatever happens, one call of the provider is one call of the upstream.
func TestNoRetries(t *testing.T) {
	for _, status := range []int{0, 408, 409, 429, 500, 503, 529} {
		var calls atomic.Int64
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
		})
		if _, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), say("hi")); err == nil || calls.Load() != 1 {
			t.Errorf("status %d: %d calls, %v", status, calls.Load(), err)
		}
	}
}

func TestStrictSchema(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`: true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                              false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`:    false,
		`{"type":"object"}`:                  false,
		`{"anyOf":[{"type":"object"}]}`:      false,
		`{"enum":["a","b"],"type":"string"}`: true,
		`{"items":{"type":"object"}}`:        false,
		`not JSON`:                           false,
	} {
		if got := strictSchema(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
