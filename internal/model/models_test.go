package model

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forebayhq/forebay"
)

// A provider that is asked for its models says whether it knows the key, at its own address and
// with its own headers.
func TestAskKey(t *testing.T) {
	var got *http.Request
	status, body := http.StatusOK, `{"data":[],"error":{"message":"no"}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	const key = forebay.Secret("the-key")
	providers := []struct {
		make                func() (Provider, error)
		path, header, value string
	}{
		{func() (Provider, error) {
			return NewOpenAI(OpenAIConfig{Endpoint: s.URL + "/v1", Model: "m", APIKey: key})
		}, "/v1/models", "Authorization", "Bearer the-key"},
		{func() (Provider, error) { return NewAzure(AzureConfig{Endpoint: s.URL, Deployment: "m", APIKey: key}) }, "/openai/models?api-version=2024-10-21", "api-key", "the-key"},
		{func() (Provider, error) {
			return NewAzure(AzureConfig{Endpoint: s.URL, Deployment: "m", APIKey: key, APIVersion: "v1"})
		}, "/openai/v1/models", "api-key", "the-key"},
		{func() (Provider, error) {
			return NewAnthropic(AnthropicConfig{Endpoint: s.URL, Model: "m", APIKey: key})
		}, "/v1/models", "x-api-key", "the-key"},
	}
	for _, p := range providers {
		provider, err := p.make()
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range []int{200, 400, 401, 403, 404, 429, 500} {
			status = code
			said, err := provider.(KeyAsker).AskKey(t.Context())
			if said.Said != (code == 200) || said.Unlisted || (err != nil) != (code == 401) {
				t.Errorf("%s answers %d: %v, %v", p.path, code, said.Said, err)
			}
			if got.Method != http.MethodGet || got.RequestURI != p.path || got.Header.Get(p.header) != p.value || got.ContentLength != 0 || len(got.TransferEncoding) > 0 {
				t.Errorf("asked %s %s, %s %q, %d bytes %v", got.Method, got.RequestURI, p.header, got.Header.Get(p.header), got.ContentLength, got.TransferEncoding)
			}
		}
	}
	provider, _ := providers[0].make()
	status, body = http.StatusBadRequest, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`
	said, err := provider.(KeyAsker).AskKey(t.Context())
	if failure, ok := errors.AsType[*forebay.TaskError](err); said.Said || !ok || failure.Code != CodeUnauthorized {
		t.Errorf("Gemini refuses the key: %v, %v", said, err)
	}
	s.Close()
	if said, err := provider.(KeyAsker).AskKey(t.Context()); said.Said || err == nil {
		t.Errorf("nobody there: %v, %v", said, err)
	}
}

// A model that the provider's list lacks is noticed, but not one whose name is close to one there,
// and not where the list may be a part.
func TestModelsThatAreNotListed(t *testing.T) {
	list := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) }))
	defer s.Close()
	const some = `{"data":[{"id":"gpt-5-2025-08-07"},{"id":"llama3:latest"},{"id":"claude-sonnet-4-5-20250929"},{"id":"models/gemini-2.5-flash"},{"id":"mistral-small"}]}`
	for _, c := range []struct {
		list, model string
		want        bool
	}{
		{some, "gpt-5", false}, {some, "llama3", false}, {some, "claude-sonnet-4-5-latest", false}, {some, "gemini-2.5-flash", false},
		{some, "mistralai/mistral-small", false}, {some, "GPT-5", false}, {some, "gpt-55", true}, {some, "mistral-large", true},
		{`{"data":[{"id":"a"}],"has_more":true}`, "gpt-5", false}, {`{"data":[]}`, "gpt-5", false}, {`[]`, "gpt-5", false}, {`{"data":[{"id":"a"}`, "gpt-5", false},
	} {
		list = c.list
		for _, make := range []func() (Provider, error){
			func() (Provider, error) {
				return NewOpenAI(OpenAIConfig{Endpoint: s.URL, Model: c.model, APIKey: "k"})
			},
			func() (Provider, error) {
				return NewAnthropic(AnthropicConfig{Endpoint: s.URL, Model: c.model, APIKey: "k"})
			},
		} {
			p, err := make()
			if err != nil {
				t.Fatal(err)
			}
			if said, err := p.(KeyAsker).AskKey(t.Context()); err != nil || !said.Said || said.Unlisted != c.want {
				t.Errorf("%s in %s: %+v, %v", c.model, c.list, said, err)
			}
		}
	}
	azure, err := NewAzure(AzureConfig{Endpoint: s.URL, Deployment: "mine", APIKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	list = some
	if said, err := azure.(KeyAsker).AskKey(t.Context()); err != nil || !said.Said || said.Unlisted {
		t.Errorf("a deployment of Azure: %+v, %v", said, err)
	}
}
