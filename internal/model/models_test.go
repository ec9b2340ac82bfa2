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
			if said != (code == 200) || (err != nil) != (code == 401) {
				t.Errorf("%s answers %d: %v, %v", p.path, code, said, err)
			}
			if got.Method != http.MethodGet || got.RequestURI != p.path || got.Header.Get(p.header) != p.value || got.ContentLength != 0 || len(got.TransferEncoding) > 0 {
				t.Errorf("asked %s %s, %s %q, %d bytes %v", got.Method, got.RequestURI, p.header, got.Header.Get(p.header), got.ContentLength, got.TransferEncoding)
			}
		}
	}
	provider, _ := providers[0].make()
	status, body = http.StatusBadRequest, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`
	said, err := provider.(KeyAsker).AskKey(t.Context())
	if failure, ok := errors.AsType[*forebay.TaskError](err); said || !ok || failure.Code != CodeUnauthorized {
		t.Errorf("Gemini refuses the key: %v, %v", said, err)
	}
	s.Close()
	if said, err := provider.(KeyAsker).AskKey(t.Context()); said || err == nil {
		t.Errorf("nobody there: %v, %v", said, err)
	}
}
