package model

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

func TestAzure(t *testing.T) {
	var seen *http.Request
	var body map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body = nil
		_ = json.NewDecoder(r.Body).Decode(&body)
		if strings.HasSuffix(r.URL.Path, "/embeddings") {
			_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1]}]}`)
			return
		}
		stream(w, `{"choices":[],"model":"","prompt_filter_results":[]}`, chunkHello, chunkStop, "[DONE]")
	})
	for _, tt := range []struct{ endpoint, version, chat, embed, query string }{
		{url, "", "/openai/deployments/gpt%2F4o/chat/completions", "/openai/deployments/gpt%2F4o/embeddings", "api-version=2024-10-21"},
		{url + "/openai/", "2025-01-01-preview", "/openai/deployments/gpt%2F4o/chat/completions", "/openai/deployments/gpt%2F4o/embeddings", "api-version=2025-01-01-preview"},
		{url, "v1", "/openai/v1/chat/completions", "/openai/v1/embeddings", ""},
	} {
		p, err := NewAzure(AzureConfig{Endpoint: tt.endpoint, Deployment: "gpt/4o", APIVersion: tt.version, APIKey: testKey})
		if err != nil {
			t.Fatal(err)
		}
		req := say("hi")
		req.MaxOutputTokens = 5
		if _, err := p.Chat(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if seen.URL.EscapedPath() != tt.chat || seen.URL.RawQuery != tt.query || seen.Header.Get("api-key") != testKey || seen.Header.Get("Authorization") != "" {
			t.Errorf("called %s with %v", seen.URL, seen.Header)
		}
		if body["model"] != "gpt/4o" || body["max_completion_tokens"] != 5.0 {
			t.Errorf("request is %v", body)
		}
		if _, err := p.Embed(t.Context(), EmbedRequest{Inputs: []string{"x"}}); err != nil || seen.URL.EscapedPath() != tt.embed {
			t.Errorf("called %s: %v", seen.URL, err)
		}
	}
}

// credential hands out numbered tokens that live for an hour, or fails.
type credential struct {
	mu    sync.Mutex
	calls int
	fail  error
	hold  chan struct{}
}

func (c *credential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return azcore.AccessToken{}, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if len(o.Scopes) != 1 || o.Scopes[0] != azureScope {
		return azcore.AccessToken{}, errors.New("wrong scope")
	}
	return azcore.AccessToken{Token: "token-" + string(rune('0'+c.calls)), ExpiresOn: time.Now().Add(time.Hour)}, c.fail
}

func TestAzureEntraID(t *testing.T) {
	var authorization string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization") + r.Header.Get("api-key")
		stream(w, chunkHello, chunkStop, "[DONE]")
	})
	c := &credential{}
	p, err := NewAzure(AzureConfig{Endpoint: url, Deployment: "d", Credential: c})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := p.Chat(t.Context(), say("hi")); err != nil {
			t.Fatal(err)
		}
	}
	if authorization != "Bearer token-1" || c.calls != 1 {
		t.Errorf("%q after %d tokens", authorization, c.calls)
	}

	refused := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 401}}
	for _, tt := range []struct {
		err   error
		class forebay.ErrorClass
		code  string
	}{{refused, forebay.ClassPermanent, CodeUnauthorized}, {errors.New("no route to /var/run/secret"), forebay.ClassTransient, CodeNoCredential}} {
		p, err := NewAzure(AzureConfig{Endpoint: url, Deployment: "d", Credential: &credential{fail: tt.err}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Chat(t.Context(), say("hi"))
		if e := wantTask(t, err, tt.class, tt.code); strings.Contains(e.Message, "secret") {
			t.Errorf("message is %q", e.Message)
		}
		told := &quota.Call{}
		if ReportOutcome(quota.WithCall(t.Context(), told), RateLimits{}, forebay.TokenUsage{}, 0, err); (told.Outcome.Kind == quota.Denied && told.Outcome.Certain) != (tt.code == CodeUnauthorized) {
			t.Errorf("%s is told as %+v", tt.code, told.Outcome)
		}
	}
}

func TestTokenIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &credential{}
		b := newBearer(c)
		get := func(want string) {
			t.Helper()
			if got, err := b.get(t.Context()); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		wait := func(d time.Duration) { <-time.After(d) }
		get("token-1")
		wait(54 * time.Minute)
		get("token-1")
		c.fail = errors.New("down")
		wait(2 * time.Minute) // four minutes of life left: the old one still serves
		get("token-1")
		calls := c.calls
		get("token-1")
		if c.calls != calls {
			t.Error("asked again at once")
		}
		wait(5 * time.Minute)
		if _, err := b.get(t.Context()); err == nil {
			t.Error("an expired token was used")
		}
		c.fail, c.calls = nil, 4
		get("token-5")

		// One call waits for the token; another gives up by its own ctx.
		c.hold = make(chan struct{})
		wait(time.Hour)
		done := make(chan error)
		go func() { _, err := b.get(t.Context()); done <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(c.hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
