package modelsim

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

func forward(t *testing.T, p *Provider, path, body string) (string, int, model.ForwardResponse, error) {
	t.Helper()
	var got strings.Builder
	status, writes := 0, 0
	resp, err := p.Forward(t.Context(), model.ForwardRequest{Path: path, Body: []byte(body),
		Begin: func(s int, _ http.Header) error { status = s; return nil },
		Write: func(b []byte) error { writes++; got.Write(b); return nil }})
	if err == nil && status != http.StatusOK || err != nil && writes > 0 {
		t.Errorf("began with %d, %d writes, %v", status, writes, err)
	}
	return got.String(), writes, resp, err
}

const forwardAsk = `{"model":"x","messages":[{"role":"user","content":"Say hello to the harbour."}],"n":2`

// A forwarded answer is the one of Chat, in OpenAI's shape.
func TestForwardChat(t *testing.T) {
	p := newProvider(t, ProviderOptions{})
	want, err := p.Chat(t.Context(), model.ChatRequest{Messages: []model.Message{{Role: model.RoleUser, Content: "Say hello to the harbour."}}})
	if err != nil {
		t.Fatal(err)
	}
	body, _, resp, err := forward(t, p, "chat/completions", forwardAsk+"}")
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Object  string
		Choices []struct{ Message model.Message }
		Usage   struct {
			Prompt int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &whole); err != nil {
		t.Fatal(err)
	}
	if whole.Object != "chat.completion" || len(whole.Choices) != 2 || whole.Choices[1].Message.Content != want.Text {
		t.Errorf("%s, want %q", body, want.Text)
	}
	used := forebay.TokenUsage{InputTokens: want.Usage.InputTokens, OutputTokens: 2 * want.Usage.OutputTokens}
	if resp.Usage != used || whole.Usage.Prompt != used.InputTokens || whole.Usage.Output != used.OutputTokens {
		t.Errorf("usage %+v and %+v, want %+v", resp.Usage, whole.Usage, used)
	}

	body, writes, resp, err := forward(t, p, "chat/completions", forwardAsk+`,"stream":true,"stream_options":{"include_usage":true}}`)
	if err != nil || resp.Usage != used || resp.FinishReason != "stop" {
		t.Fatalf("%v %+v", err, resp)
	}
	text := ""
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	for _, event := range events[:len(events)-1] {
		var chunk struct {
			Choices []struct {
				Index int
				Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &chunk); err != nil {
			t.Fatalf("%q: %v", event, err)
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Index == 0 {
			text += chunk.Choices[0].Delta.Content
		}
	}
	if text != want.Text || events[len(events)-1] != "data: [DONE]" || len(events) != writes {
		t.Errorf("%d writes of %q", writes, body)
	}
}

func TestForwardEmbed(t *testing.T) {
	p := newProvider(t, ProviderOptions{Dimensions: 4})
	body, _, resp, err := forward(t, p, "embeddings", `{"input":["a b","c"],"encoding_format":"base64"}`)
	if err != nil || resp.Usage.InputTokens != 3 || !strings.Contains(body, `"index":1,"embedding":"`) || !json.Valid([]byte(body)) {
		t.Errorf("%v %+v %s", err, resp, body)
	}
}

// Faults are those of Chat, with the answer that a service would give.
func TestForwardFaults(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		faults     ProviderFaults
		status     int
		code, says string
	}{
		"throttled": {"", "", ProviderFaults{ThrottleRate: 1, RetryAfter: 1e9}, 429, model.CodeRateLimited, "rate_limit_exceeded"},
		"failed":    {"", "", ProviderFaults{ErrorRate: 1}, 500, model.CodeServerError, "server_error"},
		"malformed": {"", "", ProviderFaults{MalformedRate: 1}, 0, model.CodeMalformedResponse, ""},
		"filtered":  {"", "", ProviderFaults{RefusePhrases: []string{"HARBOUR"}}, 400, model.CodeContentFilter, "content_filter"},
		"no path":   {"moderations", `{"input":"x"}`, ProviderFaults{}, 404, model.CodeNotFound, "Invalid URL"},
		"no JSON":   {"chat/completions", `{`, ProviderFaults{}, 400, model.CodeBadRequest, "could not parse"},
		"no input":  {"embeddings", `{}`, ProviderFaults{}, 400, model.CodeBadRequest, "'input'"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path, c.body = "chat/completions", forwardAsk+"}"
			}
			_, _, resp, err := forward(t, newProvider(t, ProviderOptions{Faults: c.faults}), c.path, c.body)
			if e := taskError(t, err); e.Code != c.code || resp.Status != c.status || !strings.Contains(string(resp.Body), c.says) {
				t.Errorf("%+v, %d %s", e, resp.Status, resp.Body)
			}
			if c.status != 0 && !json.Valid(resp.Body) || (resp.Header.Get("Retry-After") == "1") != (name == "throttled") {
				t.Errorf("%v %s", resp.Header, resp.Body)
			}
		})
	}
}

func TestForwardToNobody(t *testing.T) {
	p := newProvider(t, ProviderOptions{})
	req := model.ForwardRequest{Path: "chat/completions", Body: []byte(forwardAsk + `,"stream":true}`),
		Begin: func(int, http.Header) error { return nil }, Write: func([]byte) error { return errors.New("gone") }}
	if _, err := p.Forward(t.Context(), req); taskError(t, err).Code != model.CodeClientGone {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req.Write = func([]byte) error { cancel(); return nil }
	if _, err := p.Forward(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
