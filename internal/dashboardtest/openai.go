package dashboardtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/server"
)

// Provider answers chat completions with a nasty text and a call of a tool. It refuses what says
// refuse, and waits with what says wait: until the channel is closed, or for the test's end.
func Provider(t *testing.T, until <-chan struct{}) func(*server.Options) {
	t.Helper()
	ended := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "refuse"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`)
			return
		case strings.Contains(string(body), "wait"):
			select {
			case <-ended:
			case <-until:
			case <-r.Context().Done():
			}
			return
		}
		said, _ := json.Marshal(Nasty)
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"real","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%s,
  "tool_calls":[{"id":"call_7","type":"function","function":{"name":"weather","arguments":"{\"city\":\"<i>Oslo\"}"}}]}}],"usage":{"prompt_tokens":1100,"completion_tokens":7,"total_tokens":1107}}`, said)
	}))
	t.Cleanup(up.Close)
	t.Cleanup(func() { close(ended) })
	return func(o *server.Options) {
		o.Blob = "file://" + t.TempDir()
		o.ShutdownTimeout = 10 * time.Millisecond
		o.Deployments = []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: up.URL, Model: "real", APIKey: "sk-up"}}
	}
}

// BatchOf makes a batch of lines with these contents.
func BatchOf(t *testing.T, s *Running, c *client.Client, lines string) forebay.Batch {
	t.Helper()
	file, err := c.UploadBatchFile(t.Context(), "lines.jsonl", strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.CreateBatch(t.Context(), forebay.NewBatch{InputFile: file, Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"who": Nasty}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// LinesOf is the input of a batch: a chat completion for each content.
func LinesOf(contents ...string) string {
	var b strings.Builder
	for i, content := range contents {
		fmt.Fprintf(&b, `{"custom_id":"r%d","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":%q}]}}`+"\n", i, content)
	}
	return b.String()
}

// WaitBatch waits until a batch has ended.
func WaitBatch(t *testing.T, c *client.Client, id string) forebay.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := c.WaitBatch(ctx, id)
	if err != nil {
		t.Fatalf("%s is %s: %v", id, b.Status, err)
	}
	return b
}

// Ask makes a response of OpenAI's API and returns its id.
func Ask(t *testing.T, s *Running, c *client.Client, input string, background bool) string {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	err := c.Call(t.Context(), http.MethodPost, "/v1/responses", nil, map[string]any{"model": "chat", "input": input, "background": background,
		"tools": []any{map[string]any{"type": "function", "name": "weather", "parameters": map[string]any{"type": "object"}}}}, &made)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// ResponseIs waits until a response has that status.
func ResponseIs(t *testing.T, c *client.Client, id, status string) forebay.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		page, err := c.Responses(ctx, client.ResponseFilter{ID: id})
		if err != nil || len(page.Data) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		if page.Data[0].Status == status {
			return page.Data[0]
		}
	}
}
