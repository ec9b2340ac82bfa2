package openai_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

const (
	countPath = "/v1/messages/count_tokens"
	countBody = `{"model":"sonnet","messages":[{"role":"user","content":"a"}]}`
	counted   = `{ "input_tokens": 14, "odd": 1.0 }`
)

// answerCount answers as Anthropic's API counts.
func answerCount(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_up")
	_, _ = io.WriteString(w, counted)
}

// failCount answers with an error of Anthropic's API.
func failCount(w http.ResponseWriter, status int, kind string, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"as said"},"request_id":"req_up"}`, kind)
}

// startCounting starts a server whose model sonnet has these deployments, in order.
func startCounting(t *testing.T, database string, upstreams ...string) *server.Server {
	t.Helper()
	o := server.Options{Database: database, ShutdownTimeout: 10 * time.Millisecond, Models: map[string]server.Model{}}
	var names []string
	for i, endpoint := range upstreams {
		name := fmt.Sprint("claude-", i)
		names = append(names, name)
		o.Deployments = append(o.Deployments, server.Deployment{Name: name, Provider: server.ProviderAnthropic, Endpoint: endpoint, Model: "claude-real", APIKey: "sk-ant-up", RequestsPerMinute: 50})
	}
	o.Models["sonnet"], o.Models["chat"] = server.InOrder(names...), server.InOrder(names...)
	return servertest.Start(t, o)
}

// anthropicError fails unless an answer is an error of Anthropic's API.
func anthropicError(t *testing.T, resp *http.Response, answer string, status int, kind string) {
	t.Helper()
	if e := gjson.Parse(answer); resp.StatusCode != status || e.Get("type").Str != "error" || e.Get("error.type").Str != kind || e.Get("error.message").Str == "" || resp.Header.Get("Request-Id") == "" {
		t.Errorf("%d %v %s; want %d with %s", resp.StatusCode, resp.Header, answer, status, kind)
	}
}

// untouched fails unless nothing is known of a deployment: no call was made by its quota.
func untouched(t *testing.T, s *server.Server, name string) {
	t.Helper()
	var d forebay.Deployment
	if err := servertest.Over(t, s).Get(t.Context(), "/v1/deployments/"+name, &d); err != nil {
		t.Fatal(err)
	}
	if d.Calls+d.Throttled+d.Failed != 0 || d.Used != (forebay.QuotaAmount{}) || d.PausedUntil != nil || d.Breaker != forebay.BreakerClosed || d.Limit.Requests != d.Quota.Requests {
		t.Errorf("%s has learned of counts: %+v", name, d)
	}
}

// TestCountTokens: a request to count and its answer pass byte for byte but for the name of the
// model. No job is made of it, and the quota of the deployment is not used.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[http.Request]
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		got.Store(r)
		answerCount(w)
	})
	s := startCounting(t, "", u.URL)
	const request = `{ "model" : "%s", "odd":{"z":1.50,"a":12345678901234567890}, "messages":[{"role":"user","content":"\u0061"}] }`
	for _, path := range []string{countPath, countPath + "?beta=true", "/anthropic" + countPath} {
		resp, answer := servertest.Post(t, s, path, fmt.Sprintf(request, "sonnet"), "X-Api-Key", "any", "Anthropic-Version", "2023-01-01",
			"Anthropic-Beta", "token-counting-2024-11-01", "X-Other", "not for it")
		if resp.StatusCode != http.StatusOK || answer != counted || resp.Header.Get("Request-Id") != "req_up" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, answer)
		}
		if want := fmt.Sprintf(request, "claude-real"); u.Body() != want {
			t.Errorf("the provider got %s\nwant %s", u.Body(), want)
		}
		if r := got.Load(); r == nil || r.URL.Path != countPath {
			t.Errorf("the provider was called at %v", r)
		} else if h := r.Header; h.Get("Anthropic-Version") != "2023-01-01" || h.Get("Anthropic-Beta") != "token-counting-2024-11-01" || h.Get("X-Api-Key") != "sk-ant-up" || h.Get("X-Other") != "" {
			t.Errorf("the provider got the headers %v", h)
		}
	}
	if jobs := callJobs(t, s); len(jobs) != 0 {
		t.Errorf("jobs were made: %+v", jobs)
	}
	untouched(t, s, "claude-0")
}

// TestCountTokensErrors: errors have Anthropic's shape and statuses. Those of the provider reach
// the client, and no deployment learns from them. No prompt is logged.
func TestCountTokensErrors(t *testing.T) {
	t.Parallel()
	const prompt = "a harbour that waits"
	body := strings.Replace(countBody, `"a"`, `"`+prompt+`"`, 1)
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		switch r.Header.Get("Anthropic-Beta") {
		case "repeat":
			w.Header().Set("Request-Id", "req_1")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"api_error","message":"you said `+prompt+`"}}`)
		case "refuse":
			failCount(w, http.StatusBadRequest, "invalid_request_error", "Request-Id", "req_up")
		case "limit":
			failCount(w, http.StatusTooManyRequests, "rate_limit_error", "Request-Id", "req_up", "Retry-After", "7")
		case "overload":
			failCount(w, 529, "overloaded_error", "Request-Id", "req_up")
		case "no-key":
			failCount(w, http.StatusUnauthorized, "authentication_error", "Request-Id", "req_up")
		case "unknown":
			failCount(w, http.StatusNotFound, "not_found_error", "Request-Id", "req_up")
		case "large":
			_, _ = io.WriteString(w, `{"input_tokens":1,"more":"`+strings.Repeat("x", 80<<10)+`"}`)
		case "uncounted":
			_, _ = io.WriteString(w, `{"output_tokens":1}`)
		case "stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, messagesStream)
		case "gone":
			panic(http.ErrAbortHandler)
		}
	})
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	s := servertest.Start(t, server.Options{
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Deployments: []server.Deployment{
			{Name: "claude-0", Provider: server.ProviderAnthropic, Endpoint: u.URL, Model: "claude-real", APIKey: "sk-ant-up"},
			{Name: "gpt", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "real"},
			{Name: "sim", Provider: server.ProviderSim},
		},
		Models: map[string]server.Model{"sonnet": server.InOrder("claude-0"), "chat": server.InOrder("gpt"), "simulated": server.InOrder("sim")},
		Limits: server.Limits{MaxInputBytes: 10_000},
	})
	for _, c := range []struct {
		what, body string
		status     int
		kind       string
		calls      int64
		retryAfter string
		verbatim   bool
	}{
		{"repeat", body, 500, "api_error", 1, "", false},
		{"refuse", body, 400, "invalid_request_error", 1, "", true},
		{"limit", body, 429, "rate_limit_error", 1, "7", true},
		{"overload", body, 529, "overloaded_error", 1, "", true},
		{"unknown", body, 404, "not_found_error", 1, "", true},
		{"no-key", body, 502, "api_error", 1, "", false}, // it is this server's key, and not the client's
		{"large", body, 502, "api_error", 1, "", false},
		{"uncounted", body, 502, "api_error", 1, "", false},
		{"stream", body, 502, "api_error", 1, "", false},
		{"gone", body, 502, "api_error", 1, "", false},
		{"an unknown model", strings.Replace(countBody, "sonnet", "nix", 1), 404, "not_found_error", 0, "", false},
		{"a model of OpenAI's", strings.Replace(countBody, "sonnet", "chat", 1), 400, "invalid_request_error", 0, "", false},
		{"a simulated model", strings.Replace(countBody, "sonnet", "simulated", 1), 400, "invalid_request_error", 0, "", false},
		{"no model", `{"messages":[]}`, 400, "invalid_request_error", 0, "", false},
		{"no JSON", "{", 400, "invalid_request_error", 0, "", false},
		{"a large body", `{"model":"sonnet","x":"` + strings.Repeat("x", 10_000) + `"}`, 413, "request_too_large", 0, "", false},
	} {
		before := u.Calls.Load()
		resp, answer := servertest.Post(t, s, countPath, c.body, "Anthropic-Beta", c.what)
		anthropicError(t, resp, answer, c.status, c.kind)
		if resp.Header.Get("Retry-After") != c.retryAfter {
			t.Errorf("%s: to be repeated after %q", c.what, resp.Header.Get("Retry-After"))
		}
		if (gjson.Get(answer, "error.message").Str == "as said") != c.verbatim || (resp.Header.Get("Request-Id") == "req_up") != c.verbatim {
			t.Errorf("%s: %v %s", c.what, resp.Header, answer)
		}
		if n := u.Calls.Load() - before; n != c.calls {
			t.Errorf("%s: the provider was called %d times", c.what, n)
		}
	}
	for range 30 { // as many failures of messages would open the breaker
		servertest.Post(t, s, countPath, body, "Anthropic-Beta", "overload")
	}
	untouched(t, s, "claude-0")
	logged, err := os.ReadFile(log.Name())
	if err != nil || !strings.Contains(string(logged), countPath) || strings.Contains(string(logged), prompt) || strings.Contains(string(logged), "sk-ant-up") {
		t.Errorf("%v: %s", err, logged)
	}
	if resp, answer := servertest.Ask(t, s, http.MethodGet, countPath, ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// TestCountTokensElsewhere: what may be the fault of one deployment is asked of one more, and only
// of one more.
func TestCountTokensElsewhere(t *testing.T) {
	t.Parallel()
	var first, second atomic.Pointer[func(http.ResponseWriter)]
	upstream := func(how *atomic.Pointer[func(http.ResponseWriter)]) *servertest.Upstream {
		return servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) { (*how.Load())(w) })
	}
	one, other := upstream(&first), upstream(&second)
	third := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) { answerCount(w) })
	s := startCounting(t, "", one.URL, other.URL, third.URL)
	fail := func(status int, kind string, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { failCount(w, status, kind, append(header, "Request-Id", "req_up")...) }
	}
	gone := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		name          string
		first, second func(http.ResponseWriter)
		status, calls int
	}{
		{"a success", answerCount, nil, 200, 1},
		{"a limit", fail(429, "rate_limit_error"), answerCount, 200, 2},
		{"an overload", fail(529, "overloaded_error"), answerCount, 200, 2},
		{"a lost connection", gone, answerCount, 200, 2},
		{"a wrong key", fail(401, "authentication_error"), answerCount, 200, 2},
		{"a model that is not there", fail(404, "not_found_error"), answerCount, 200, 2},
		{"a wrong request", fail(400, "invalid_request_error"), nil, 400, 1},
		{"two limits", fail(429, "rate_limit_error"), fail(429, "rate_limit_error", "Retry-After", "9"), 429, 2},
	} {
		first.Store(&c.first)
		second.Store(&c.second)
		before := one.Calls.Load() + other.Calls.Load()
		resp, answer := servertest.Post(t, s, countPath, countBody)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, answer)
		}
		if n := one.Calls.Load() + other.Calls.Load() - before; n != int64(c.calls) || third.Calls.Load() != 0 {
			t.Errorf("%s: %d calls, and %d of a third deployment", c.name, n, third.Calls.Load())
		}
	}
}

// TestCountTokensPassesOver: deployments that an operator has paused, or whose breaker is open,
// are not asked. If no other is left, the client learns why.
func TestCountTokensPassesOver(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		turnedAway := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == countPath {
				answerCount(w)
				return
			}
			failCount(w, http.StatusUnauthorized, "authentication_error")
		})
		well := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) { answerCount(w) })
		s := startCounting(t, database, turnedAway.URL, well.URL)
		r := servertest.Over(t, s)
		do := func(what string) {
			t.Helper()
			if _, err := r.Do(t.Context(), http.MethodPost, "/v1/deployments/"+what, nil, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		count := func(status int, first, second int64) (*http.Response, string) {
			t.Helper()
			a, b := turnedAway.Calls.Load(), well.Calls.Load()
			resp, answer := servertest.Post(t, s, countPath, countBody)
			if a, b = turnedAway.Calls.Load()-a, well.Calls.Load()-b; resp.StatusCode != status || a != first || b != second {
				t.Errorf("%d %s after %d and %d calls", resp.StatusCode, answer, a, b)
			}
			return resp, answer
		}
		count(200, 1, 0)
		do("claude-0/pause")
		count(200, 0, 1)
		do("claude-1/pause")
		resp, answer := count(503, 0, 0)
		anthropicError(t, resp, answer, 503, "overloaded_error")
		if resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, "paused") {
			t.Errorf("%v %s", resp.Header, answer)
		}
		do("claude-0/resume")
		count(200, 1, 0)
		job := servertest.Submit(t, s, "chat", "hello") // it is denied, and waits
		servertest.Eventually(t, time.Minute, func() error {
			var d forebay.Deployment
			if err := r.Get(t.Context(), "/v1/deployments/claude-0", &d); err != nil || d.Breaker != forebay.BreakerOpen {
				return fmt.Errorf("%+v %w", d, err)
			}
			return nil
		})
		resp, answer = count(503, 0, 0)
		anthropicError(t, resp, answer, 503, "overloaded_error")
		if resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, "fail") {
			t.Errorf("%v %s", resp.Header, answer)
		}
		if _, err := r.Do(t.Context(), http.MethodPost, "/v1/jobs/"+job.ID+"/cancel", nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		do("claude-1/resume")
		count(200, 0, 1)
	})
}

// TestCountTokensPlaces: a tenant has so many counts at once. What is more waits a moment and is
// refused, while another tenant's counts go on.
func TestCountTokensPlaces(t *testing.T) {
	t.Parallel()
	const places = 64
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		if r.Header.Get("Anthropic-Beta") == "hold" {
			<-hold
		}
		answerCount(w)
	})
	t.Cleanup(release)
	database := "sqlite:" + dbtest.SQLite(t)
	s := startCounting(t, database, u.URL)
	many, few := servertest.Key(t, database, "many", forebay.ScopeSubmit), servertest.Key(t, database, "few", forebay.ScopeSubmit)
	reader := servertest.Key(t, database, "few", forebay.ScopeRead)
	held := make(chan error, places)
	address := "http://" + s.Addr(t.Context()).String() + countPath
	for range places {
		go func() {
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, address, strings.NewReader(countBody))
			if err != nil {
				held <- err
				return
			}
			for name, value := range map[string]string{"Content-Type": "application/json", "X-Api-Key": many, "Anthropic-Beta": "hold"} {
				req.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
			}
			held <- err
		}()
	}
	servertest.Eventually(t, time.Minute, func() error {
		if n := u.Calls.Load(); n != places {
			return fmt.Errorf("%d counts are under way", n)
		}
		return nil
	})
	resp, answer := servertest.Post(t, s, countPath, countBody, "X-Api-Key", many)
	anthropicError(t, resp, answer, 429, "rate_limit_error")
	if resp.Header.Get("Retry-After") == "" {
		t.Errorf("it does not say when to repeat it: %v", resp.Header)
	}
	if resp, answer := servertest.Post(t, s, countPath, countBody, "X-Api-Key", few); resp.StatusCode != http.StatusOK {
		t.Errorf("another tenant: %d %s", resp.StatusCode, answer)
	}
	resp, answer = servertest.Post(t, s, countPath, countBody, "X-Api-Key", reader)
	anthropicError(t, resp, answer, 403, "permission_error")
	resp, answer = servertest.Post(t, s, countPath, countBody, "X-Api-Key", "fb_wrong")
	anthropicError(t, resp, answer, 401, "authentication_error")
	release()
	for range places {
		if err := <-held; err != nil {
			t.Error(err)
		}
	}
	if resp, answer := servertest.Post(t, s, countPath, countBody, "X-Api-Key", many); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d %s", resp.StatusCode, answer)
	}
}
