package model

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forebayhq/forebay"
)

// A provider that is asked for its models says whether it knows the key, at its own address and
// with its own headers.
func TestAskKey(t *testing.T) {
	var got *http.Request
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"data":[],"error":{"message":"no"}}`))
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
		for code, want := range map[int]KeyAnswer{200: KeyTaken, 401: KeyRefused, 403: KeyUnknown, 404: KeyUnknown, 429: KeyUnknown, 500: KeyUnknown} {
			status = code
			answer, err := provider.(KeyAsker).AskKey(t.Context())
			if answer != want || (err != nil) != (want == KeyRefused) {
				t.Errorf("%s answers %d: %v, %v", p.path, code, answer, err)
			}
			if got.Method != http.MethodGet || got.RequestURI != p.path || got.Header.Get(p.header) != p.value || got.ContentLength != 0 || len(got.TransferEncoding) > 0 {
				t.Errorf("asked %s %s, %s %q, %d bytes %v", got.Method, got.RequestURI, p.header, got.Header.Get(p.header), got.ContentLength, got.TransferEncoding)
			}
		}
	}
	s.Close()
	provider, _ := providers[0].make()
	if answer, err := provider.(KeyAsker).AskKey(t.Context()); answer != KeyUnknown || err == nil {
		t.Errorf("nobody there: %v, %v", answer, err)
	}
}
