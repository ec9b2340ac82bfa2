package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// messagesStream is a stream of Anthropic's API with what no struct of ours would keep.
const messagesStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-real\",\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":4,\"output_tokens\":1},\"odd\":1.0}}\n\n" +
	": a comment\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\\u00ef\"}}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":6}}\n\n" +
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

// startMessages starts a server with a model of Anthropic's and one of OpenAI's.
func startMessages(t *testing.T, u *servertest.Upstream) *server.Server {
	return servertest.Start(t, server.Options{
		Deployments: []server.Deployment{
			{Name: "claude", Provider: server.ProviderAnthropic, Endpoint: u.URL, Model: "claude-real", APIKey: "sk-ant-up"},
			{Name: "gpt", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "real"},
		},
		Models: map[string]server.Model{"sonnet": server.InOrder("claude"), "both": server.InOrder("gpt", "claude"), "chat": server.InOrder("gpt")},
		Queues: map[string]server.Queue{server.CallsQueue: {Retry: server.Retry{First: 1e6, Max: 1e6, Attempts: 3}}},
	})
}

// TestMessagesAPI: requests of Anthropic's API and their answers pass byte for byte but for the
// name of the model, streaming and not, and are counted.
func TestMessagesAPI(t *testing.T) {
	t.Parallel()
	const plain = `{ "id":"msg_2","type":"message","role":"assistant","model":"claude-real","content":[{"type":"text","text":"h\u00ef"}],"big":12345678901234567890,"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":3} }`
	var got atomic.Pointer[http.Header]
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		header := r.Header.Clone()
		got.Store(&header)
		if r.URL.Path != "/v1/messages" {
			http.Error(w, "wrong path", http.StatusTeapot)
			return
		}
		w.Header().Set("Request-Id", "req_up")
		if strings.Contains(r.Header.Get("Anthropic-Beta"), "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, messagesStream)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, plain)
	})
	s := startMessages(t, u)
	request := `{ "model" : "%s", "max_tokens":100, "odd":{"z":1.50,"a":12345678901234567890}, "messages":[{"role":"user","content":"a"}]%s }`
	for _, path := range []string{"/v1/messages", "/anthropic/v1/messages"} {
		for _, name := range []string{"sonnet", "both"} {
			resp, answer := servertest.Post(t, s, path, fmt.Sprintf(request, name, ""), "X-Api-Key", "any", "Anthropic-Version", "2023-01-01", "X-Other", "not for it")
			if resp.StatusCode != http.StatusOK || answer != plain || resp.Header.Get("Request-Id") != "req_up" {
				t.Errorf("%s %s: %d %s", path, name, resp.StatusCode, answer)
			}
			if want := fmt.Sprintf(request, "claude-real", ""); u.Body() != want {
				t.Errorf("the provider got %s\nwant %s", u.Body(), want)
			}
		}
	}
	header := *got.Load()
	if header.Get("Anthropic-Version") != "2023-01-01" || header.Get("X-Api-Key") != "sk-ant-up" || header.Get("X-Other") != "" {
		t.Errorf("the provider got the headers %v", header)
	}
	resp, answer := servertest.Post(t, s, "/v1/messages", fmt.Sprintf(request, "sonnet", `,"stream":true`), "Anthropic-Beta", "stream")
	if resp.StatusCode != http.StatusOK || answer != messagesStream || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %q", resp.StatusCode, answer)
	}
	servertest.Eventually(t, time.Minute, func() error { // a call is recorded after its answer
		jobs, err := servertest.Over(t, s).List(t.Context())
		var input, output int64
		for _, job := range jobs {
			input, output = input+job.Usage.InputTokens, output+job.Usage.OutputTokens
		}
		if err != nil || len(jobs) != 5 || input != 4*9+14 || output != 4*3+6 {
			return fmt.Errorf("%d jobs, %d tokens of input and %d of output are counted (%w)", len(jobs), input, output, err)
		}
		return nil
	})
}

// TestMessagesAPIErrors: errors have Anthropic's shape, a call that fails is made again before its
// answer begins, and a stream that breaks ends with an error.
func TestMessagesAPIErrors(t *testing.T) {
	t.Parallel()
	const refusal = `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large"},"request_id":"req_1"}`
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		w.Header().Set("Content-Type", "application/json")
		switch r.Header.Get("Anthropic-Beta") {
		case "refuse":
			w.Header().Set("Request-Id", "req_1")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, refusal)
		case "overload":
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		case "break":
			w.Header().Set("Content-Type", "text/event-stream")
			begun, _, _ := strings.Cut(messagesStream, "event: message_delta")
			_, _ = io.WriteString(w, begun)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	s := startMessages(t, u)
	const body = `{"model":"sonnet","max_tokens":5,"messages":[{"role":"user","content":"a"}]%s}`
	fail := func(what string, status int, kind, path, body string, header ...string) string {
		t.Helper()
		resp, answer := servertest.Post(t, s, path, body, header...)
		if e := gjson.Parse(answer); resp.StatusCode != status || e.Get("type").Str != "error" || e.Get("error.type").Str != kind || e.Get("error.message").Str == "" {
			t.Errorf("%s: %d %s", what, resp.StatusCode, answer)
		}
		if id := resp.Header.Get("Request-Id"); status != 529 && (id == "" || id != gjson.Get(answer, "request_id").Str) {
			t.Errorf("%s: the request %q in the header, and %s", what, id, answer)
		}
		return answer
	}
	if got := fail("refused", 400, "invalid_request_error", "/v1/messages", fmt.Sprintf(body, ""), "Anthropic-Beta", "refuse"); strings.TrimSpace(got) != refusal {
		t.Errorf("the provider's refusal became %s", got)
	}
	before := u.Calls.Load()
	fail("overloaded", 529, "overloaded_error", "/v1/messages", fmt.Sprintf(body, ""), "Anthropic-Beta", "overload")
	if n := u.Calls.Load() - before; n != 3 {
		t.Errorf("called %d times", n)
	}
	resp, answer := servertest.Post(t, s, "/v1/messages", fmt.Sprintf(body, `,"stream":true`), "Anthropic-Beta", "break")
	if _, end, _ := strings.Cut(answer, "event: error\ndata: "); resp.StatusCode != http.StatusOK || gjson.Get(end, "error.type").Str != "api_error" {
		t.Errorf("%d %q", resp.StatusCode, answer)
	}
	before = u.Calls.Load()
	fail("a model of OpenAI's", 400, "invalid_request_error", "/v1/messages", strings.Replace(fmt.Sprintf(body, ""), "sonnet", "chat", 1))
	fail("an unknown model", 404, "not_found_error", "/v1/messages", strings.Replace(fmt.Sprintf(body, ""), "sonnet", "nix", 1))
	fail("no JSON", 400, "invalid_request_error", "/v1/messages", "{")
	fail("no such route", 404, "not_found_error", "/v1/messages/batches", "{}")
	fail("nor here", 404, "not_found_error", "/anthropic/v1/complete", "{}")
	if u.Calls.Load() != before {
		t.Error("something was called")
	}
	// Anthropic's deployments take no requests of OpenAI's API.
	if resp, answer := servertest.Post(t, s, "/v1/chat/completions", fmt.Sprintf(body, "")); resp.StatusCode != 400 || gjson.Get(answer, "error.code").Str != "not_supported" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// TestMessagesAPIModels: lists of models and of files are at addresses of OpenAI's API. A request
// of Anthropic's API finds there what that API has: the models that it can call, and no files.
func TestMessagesAPIModels(t *testing.T) {
	t.Parallel()
	s := startMessages(t, servertest.StartUpstream(t, func(http.ResponseWriter, *http.Request, int64) {}))
	version := []string{"Anthropic-Version", "2023-06-01"}
	ask := func(method, path string, header ...string) (int, gjson.Result) {
		t.Helper()
		resp, answer := servertest.Ask(t, s, method, path, "", header...)
		return resp.StatusCode, gjson.Parse(answer)
	}
	for path, want := range map[string]string{
		"/v1/models":                             `["both","sonnet"] false both sonnet`,
		"/anthropic/v1/models":                   `["both","sonnet"] false both sonnet`,
		"/v1/models?limit=1":                     `["both"] true both both`,
		"/v1/models?after_id=both":               `["sonnet"] false sonnet sonnet`,
		"/v1/models?after_id=sonnet":             `[] false  `,
		"/v1/models?before_id=sonnet":            `["both"] false both both`,
		"/v1/models?before_id=sonnet&limit=1000": `["both"] false both both`,
	} {
		status, list := ask(http.MethodGet, path, version...)
		if got := fmt.Sprint(list.Get("data.#.id"), list.Get("has_more"), list.Get("first_id"), list.Get("last_id")); status != http.StatusOK || got != want {
			t.Errorf("%s: %d %s", path, status, list)
		}
	}
	status, one := ask(http.MethodGet, "/v1/models/sonnet", version...)
	created, err := time.Parse(time.RFC3339, one.Get("created_at").Str)
	if status != http.StatusOK || one.Get("type").Str != "model" || one.Get("display_name").Str != "sonnet" || one.Get("lifecycle").Str != "active" || err != nil || created.IsZero() {
		t.Errorf("%d %s", status, one)
	}
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{http.MethodGet, "/v1/models/chat", 404, "not_found_error"},
		{http.MethodGet, "/anthropic/v1/models/nix", 404, "not_found_error"},
		{http.MethodGet, "/v1/models?limit=0", 400, "invalid_request_error"},
		{http.MethodGet, "/v1/models?before_id=nix", 400, "invalid_request_error"},
		{http.MethodGet, "/v1/files?beta=true", 404, "not_found_error"},
		{http.MethodGet, "/v1/files/f/content", 404, "not_found_error"},
		{http.MethodDelete, "/v1/files/f", 404, "not_found_error"},
		{http.MethodDelete, "/v1/models/sonnet", 405, "invalid_request_error"},
	} {
		if status, e := ask(c.method, c.path, version...); status != c.status || e.Get("type").Str != "error" || e.Get("error.type").Str != c.kind {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, e)
		}
	}
	// Without the header both are OpenAI's.
	if status, list := ask(http.MethodGet, "/v1/models"); status != http.StatusOK || list.Get("object").Str != "list" || list.Get("data.#").Int() != 3 {
		t.Errorf("%d %s", status, list)
	}
	if status, list := ask(http.MethodGet, "/v1/files"); status != http.StatusOK || list.Get("object").Str != "list" {
		t.Errorf("%d %s", status, list)
	}
}
