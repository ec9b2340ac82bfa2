package servertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay/server"
)

// Upstream is a provider whose answers a test writes.
type Upstream struct {
	*httptest.Server
	Calls atomic.Int64
	mu    sync.Mutex
	last  []byte // body of the latest request
}

// StartUpstream starts a provider. n counts its calls.
func StartUpstream(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int64)) *Upstream {
	t.Helper()
	u := &Upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.last = body
		u.mu.Unlock()
		answer(w, r, u.Calls.Add(1))
	}))
	t.Cleanup(u.Close)
	return u
}

// Body is that of the latest request.
func (u *Upstream) Body() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return string(u.last)
}

// PlainAnswer is an answer with what no struct of ours would keep.
const PlainAnswer = `{ "id":"chatcmpl-1","object":"chat.completion","created":1,"model":"real","big":12345678901234567890,
 "choices":[{"index":0,"message":{"role":"assistant","content":"h\u00ef","odd":[1.0,1e2]},"finish_reason":"stop"}],
 "usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18} }`

// AnswerPlainly answers with PlainAnswer.
func AnswerPlainly(w http.ResponseWriter, _ *http.Request, _ int64) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, PlainAnswer)
}

// Post makes a call of OpenAI's API.
func Post(t *testing.T, s *server.Server, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	return Ask(t, s, http.MethodPost, path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

// Ask makes a request and reads the whole answer.
func Ask(t *testing.T, s *server.Server, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr(t.Context()).String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}
