package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestOpenAIEmbed(t *testing.T) {
	answer := ""
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model      string
			Input      []string
			Dimensions int
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if r.URL.Path != "/v1/embeddings" || body.Model != "small" || len(body.Input) != 2 || body.Dimensions != 2 {
			http.Error(w, "wrong request", http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, answer)
	})
	p := openAIAt(t, url, HTTPConfig{})
	req := EmbedRequest{Inputs: []string{"one", "two"}, Dimensions: 2}

	answer = `{"object":"list","model":"e-1","data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2.5]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`
	resp, err := p.Embed(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(resp.Vectors) != "[[1 2.5] [3 4]]" || resp.Model != "e-1" || resp.Usage.InputTokens != 2 {
		t.Errorf("got %+v", resp)
	}

	answer = `{"data":[{"embedding":[1]},{"embedding":[2]}]}`
	if resp, err = p.Embed(t.Context(), req); err != nil || fmt.Sprint(resp.Vectors) != "[[1] [2]]" || resp.Usage.InputTokens == 0 {
		t.Errorf("got %+v, %v", resp, err)
	}

	for _, bad := range []string{``, `{}`, `{"data":[{"index":0,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}`,
		`{"data":[{"index":0,"embedding":[1]},{"index":7,"embedding":[2]}]}`, `{"data":[{"embedding":[1]},{"embedding":[]}]}`,
		`{"data":[{"embedding":"AAAA"},{"embedding":[1]}]}`} {
		answer = bad
		_, err = p.Embed(t.Context(), req)
		wantTask(t, err, forebay.ClassTransient, CodeMalformedResponse)
	}
	answer = `{"error":{"message":"no","code":503}}`
	_, err = p.Embed(t.Context(), req)
	wantTask(t, err, forebay.ClassTransient, CodeUnavailable)
}

func TestConfigIsChecked(t *testing.T) {
	for _, endpoint := range []string{"ftp://x/v1", "x.example/v1", "http://", "https://user:pw@x/v1", "http://x/v1?a=b", "http://x/\x7f", "file:///etc"} {
		if _, err := NewOpenAI(OpenAIConfig{Endpoint: endpoint, Model: "m"}); err == nil {
			t.Errorf("endpoint %q was taken", endpoint)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("the password is in %q", err)
		}
	}
	if _, err := NewOpenAI(OpenAIConfig{}); err == nil {
		t.Error("no model was taken")
	}
	if _, err := NewOpenAI(OpenAIConfig{Model: "m", APIKey: "two\nlines"}); err == nil || strings.Contains(err.Error(), "lines") {
		t.Errorf("a key with a line break: %v", err)
	}
	if _, err := NewAnthropic(AnthropicConfig{}); err == nil {
		t.Error("no model was taken")
	}
	for _, c := range []AzureConfig{{}, {Endpoint: "https://x"}, {Endpoint: "https://x", Deployment: "d"},
		{Endpoint: "https://x", Deployment: "d", APIKey: "k", EntraID: true},
		{Endpoint: "https://x/openai/deployments/d/chat/completions", Deployment: "d", APIKey: "k"}} {
		if _, err := NewAzure(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
