package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// soon is far less than the minute that a call may wait. A call also waits for a period that
// begins within that time, so these tests have budgets of a month: a day ends each midnight.
const soon = 25 * time.Second

// using answers a chat completion that has used so many tokens, once the channel is closed.
func using(tokens int, when <-chan struct{}) func(w http.ResponseWriter, r *http.Request, n int64) {
	return func(w http.ResponseWriter, _ *http.Request, n int64) {
		if n == 1 {
			<-when
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}}`, tokens-1, tokens)
	}
}

// A call whose budget is spent, the tenant's or its key's, is refused without a wait, on every
// endpoint.
func TestCallsWithoutBudgetAreRefusedAtOnce(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		t.Parallel()
		limit, now := int64(1000), make(chan struct{})
		close(now)
		u := servertest.StartUpstream(t, using(1000, now))
		s := servertest.Start(t, server.Options{
			Database: database,
			Deployments: []server.Deployment{
				{Name: "up", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "real", APIKey: "sk-up"},
				{Name: "claude", Provider: server.ProviderAnthropic, Endpoint: u.URL, Model: "claude-real", APIKey: "sk-ant-up"},
			},
			Models:          map[string]server.Model{"chat": server.InOrder("up"), "embedding": server.InOrder("up"), "sonnet": server.InOrder("claude")},
			Tenants:         map[string]server.Tenant{"poor": {Budget: server.Budget{MonthlyTokens: &limit}}},
			ShutdownTimeout: 10 * time.Millisecond,
		})
		url := "http://" + s.Addr(t.Context()).String()
		admin, err := client.New(client.Options{BaseURL: url})
		key := func(tenant string, scope forebay.Scope) (made forebay.APIKey) {
			if err == nil {
				made, err = admin.CreateKey(t.Context(), tenant, []forebay.Scope{scope}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		admin, err = client.New(client.Options{BaseURL: url, Key: forebay.Secret(key(forebay.DefaultTenant, forebay.ScopeAdmin).Key)})
		rich, poor := key("rich", forebay.ScopeSubmit), key("poor", forebay.ScopeSubmit)
		if _, err := admin.SetKeyBudget(t.Context(), rich.ID, forebay.Budget{MonthlyTokens: &limit}); err != nil {
			t.Fatal(err)
		}
		for of, secret := range map[string]string{"the tenant's": poor.Key, "the key's": rich.Key} {
			authorization := []string{"Authorization", "Bearer " + secret}
			first := `{"model":"chat","max_tokens":1,"messages":[{"role":"user","content":"a"}]}`
			if resp, answer := servertest.Post(t, s, "/v1/chat/completions", first, authorization...); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s first call: %d %s", of, resp.StatusCode, answer)
			}
			calls := u.Calls.Load()
			for path, body := range map[string]string{
				"/v1/chat/completions": hello,
				"/v1/embeddings":       `{"model":"embedding","input":"hello"}`,
				"/v1/responses":        `{"model":"chat","input":"hello","stream":true}`,
				"/v1/messages":         `{"model":"sonnet","max_tokens":100,"messages":[{"role":"user","content":"a"}]}`,
			} {
				began := time.Now()
				resp, answer := servertest.Post(t, s, path, body, authorization...)
				if took := time.Since(began); took > soon || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("X-Should-Retry") != "false" {
					t.Fatalf("%s budget, %s after %s: %d %v %s", of, path, took, resp.StatusCode, resp.Header, answer)
				}
				if path == "/v1/messages" {
					if gjson.Get(answer, "error.type").Str != "rate_limit_error" || !strings.Contains(answer, "budget") {
						t.Error(answer)
					}
					continue
				}
				refusedWith(t, resp, answer, http.StatusTooManyRequests, "insufficient_quota")
			}
			if u.Calls.Load() != calls {
				t.Errorf("%s budget is spent, and %d calls were made", of, u.Calls.Load()-calls)
			}
		}
	})
}

// A call waits for what a running call holds of its budget. It is made if that used little, and is
// refused at once if that used all.
func TestCallsWaitForHeldBudget(t *testing.T) {
	for used, want := range map[int]int{10: http.StatusOK, 390: http.StatusTooManyRequests} {
		t.Run(fmt.Sprint(used), func(t *testing.T) {
			servertest.OnDatabases(t, func(t *testing.T, database string) {
				t.Parallel()
				testHeldBudget(t, database, used, want)
			})
		})
	}
}

func testHeldBudget(t *testing.T, database string, used, want int) {
	limit, end := int64(400), make(chan struct{})
	u := servertest.StartUpstream(t, using(used, end))
	s := startForwarding(t, u, func(o *server.Options) {
		o.Database = database
		o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Budget: server.Budget{MonthlyTokens: &limit}}}
	})
	type answered struct {
		status int
		body   string
		at     time.Time
	}
	call := func() <-chan answered {
		answer := make(chan answered, 1)
		go func() {
			resp, body := servertest.Post(t, s, "/v1/chat/completions", `{"model":"chat","max_tokens":300,"messages":[{"role":"user","content":"a"}]}`)
			answer <- answered{resp.StatusCode, body, time.Now()}
		}()
		return answer
	}
	first := call()
	servertest.Eventually(t, time.Minute, func() error {
		if u.Calls.Load() == 0 {
			return servertest.ErrNotYet
		}
		return nil
	})
	second := call()
	select { // it looks several times meanwhile
	case early := <-second:
		close(end)
		t.Fatalf("it did not wait: %d %s", early.status, early.body)
	case <-time.After(4 * time.Second):
	}
	if jobs := callJobs(t, s); len(jobs) != 2 || jobs[0].WaitingFor == nil || *jobs[0].WaitingFor != forebay.WaitBudget {
		t.Errorf("%+v", jobs)
	}
	close(end)
	one := <-first
	two := <-second
	if took := two.at.Sub(one.at); one.status != http.StatusOK || two.status != want || took > soon {
		t.Errorf("%d %s, then after %s %d %s", one.status, one.body, took, two.status, two.body)
	}
	if want != http.StatusOK && gjson.Get(two.body, "error.code").Str != "insufficient_quota" {
		t.Error(two.body)
	}
}
