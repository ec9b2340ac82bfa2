package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

func TestScopes(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	f := newFixture(t)
	keys := map[forebay.Scope]string{}
	for _, scope := range forebay.Scopes {
		keys[scope] = f.newKey("acme", scope)
	}
	const dlq, none = "/v1/queues/default/dead-letters", "/v1/jobs/job_00000000000000000000000000"
	for _, c := range []struct {
		method, path string
		scope        forebay.Scope
	}{
		{"POST", "/v1/jobs", forebay.ScopeSubmit},
		{"POST", "/v1/jobs/bulk", forebay.ScopeSubmit},
		{"POST", none + "/cancel", forebay.ScopeSubmit},
		{"GET", "/v1/jobs", forebay.ScopeRead},
		{"GET", none, forebay.ScopeRead},
		{"GET", none + "/attempts", forebay.ScopeRead},
		{"GET", none + "/events", forebay.ScopeRead},
		{"GET", none + "/result", forebay.ScopeRead},
		{"GET", none + "/input", forebay.ScopePayload},
		{"GET", "/v1/queues", forebay.ScopeRead},
		{"GET", "/v1/queues/default", forebay.ScopeRead},
		{"GET", "/v1/reports/retries", forebay.ScopeRead},
		{"GET", "/v1/reports/usage", forebay.ScopeRead},
		{"GET", "/v1/tasks", forebay.ScopeRead},
		{"GET", "/v1/tasks/echo", forebay.ScopeRead},
		{"POST", none + "/redrive", forebay.ScopeOperate},
		{"GET", dlq, forebay.ScopeOperate},
		{"GET", dlq + "/x", forebay.ScopeOperate},
		{"GET", "/v1/dead-letters", forebay.ScopeOperate},
		{"GET", "/v1/quarantine/groups", forebay.ScopeOperate},
		{"POST", dlq + "/redrive", forebay.ScopeOperate},
		{"POST", dlq + "/purge", forebay.ScopeOperate},
		{"GET", "/v1/queues/default/quarantine", forebay.ScopeOperate},
		{"POST", "/v1/queues/default/quarantine/purge", forebay.ScopeOperate},
		{"POST", "/v1/queues/default/pause", forebay.ScopeAdmin},
		{"POST", "/v1/queues/default/resume", forebay.ScopeAdmin},
		{"GET", "/v1/deployments", forebay.ScopeAdmin},
		{"GET", "/v1/deployments/sim", forebay.ScopeAdmin},
		{"POST", "/v1/deployments/sim/pause", forebay.ScopeAdmin},
		{"POST", "/v1/deployments/sim/resume", forebay.ScopeAdmin},
		{"POST", "/v1/deployments/sim/forget", forebay.ScopeAdmin},
		{"GET", "/v1/deployments/sim/changes", forebay.ScopeAdmin},
		{"GET", "/v1/deployments/sim/sim", forebay.ScopeAdmin},
		{"PUT", "/v1/deployments/sim/sim", forebay.ScopeAdmin},
		{"GET", "/v1/keys", forebay.ScopeAdmin},
		{"POST", "/v1/keys", forebay.ScopeAdmin},
		{"DELETE", "/v1/keys/x", forebay.ScopeAdmin},
		{"GET", "/v1/webhooks", forebay.ScopeOperate},
		{"POST", "/v1/webhooks", forebay.ScopeOperate},
		{"GET", "/v1/webhooks/x", forebay.ScopeOperate},
		{"PUT", "/v1/webhooks/x", forebay.ScopeOperate},
		{"DELETE", "/v1/webhooks/x", forebay.ScopeOperate},
		{"POST", "/v1/webhooks/x/test", forebay.ScopeOperate},
		{"POST", "/v1/webhooks/x/rotate-secret", forebay.ScopeOperate},
		{"GET", "/v1/webhooks/x/tries", forebay.ScopeOperate},
		{"GET", "/v1/webhooks/x/dead-letters", forebay.ScopeOperate},
		{"POST", "/v1/webhooks/x/redeliver", forebay.ScopeOperate},
		{"GET", "/v1/audit", forebay.ScopeAdmin},
		{"GET", "/v1/audit/verify", forebay.ScopeAdmin},
	} {
		for scope, key := range keys {
			r := f.do(c.method, c.path, "", "Authorization", "Bearer "+key)
			allowed := scope == c.scope || scope == forebay.ScopeAdmin ||
				scope == forebay.ScopeView && c.method == "GET" && c.scope != forebay.ScopePayload
			if allowed == (r.StatusCode == http.StatusForbidden) || r.StatusCode == http.StatusUnauthorized {
				t.Errorf("%s %s with scope %s: %d", c.method, c.path, scope, r.StatusCode)
			}
			if !allowed {
				wantProblem(t, r, http.StatusForbidden, forebay.CodeForbidden)
			}
		}
		r := f.do(c.method, c.path, "")
		wantProblem(t, r, http.StatusUnauthorized, forebay.CodeUnauthorized)
		if got := r.Header.Get("WWW-Authenticate"); got != `Bearer realm="forebay"` {
			t.Errorf("challenge %q", got)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/openapi.yaml", "/"} {
		if r := f.do("GET", path, ""); r.StatusCode != http.StatusOK {
			t.Errorf("%s without a key: %d", path, r.StatusCode)
		}
	}
	for _, header := range []string{"Bearer fb_wrong", "bearer", "Basic abc", "Bearer " + strings.Repeat("x", 1000), keys[forebay.ScopeAdmin]} {
		r := f.do("GET", "/v1/jobs", "", "Authorization", header)
		wantProblem(t, r, http.StatusUnauthorized, forebay.CodeUnauthorized)
		if got := r.Header.Get("WWW-Authenticate"); !strings.Contains(got, "invalid_token") {
			t.Errorf("%q was challenged with %q", header, got)
		}
	}
	for _, key := range keys {
		if strings.Contains(f.logs.String(), key) {
			t.Error("the log holds a key")
		}
	}
}

func TestKeys(t *testing.T) {
	f := newFixture(t)
	r := f.do("POST", "/v1/keys", `{"scopes":["admin"]}`)
	admin := into[forebay.APIKey](t, r, http.StatusCreated)
	if !strings.HasPrefix(admin.Key, "fb_") || admin.Tenant != forebay.DefaultTenant || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("made %+v, headers %v", admin.ID, r.Header)
	}
	f.key = admin.Key
	other := into[forebay.APIKey](t, f.do("POST", "/v1/keys", `{"tenant":"other","scopes":["submit","read"],"expires_at":"2999-01-01T00:00:00Z"}`), http.StatusCreated)
	listed := f.do("GET", "/v1/keys", "")
	if page := into[forebay.Page[forebay.APIKey]](t, listed, http.StatusOK); len(page.Items) != 2 || strings.Contains(string(listed.body), "fb_") {
		t.Errorf("listed %s", listed.body)
	}
	for range 2 { // idempotent
		if key := into[forebay.APIKey](t, f.do("DELETE", "/v1/keys/"+other.ID, ""), http.StatusOK); key.RevokedAt == nil {
			t.Errorf("revoked %+v", key)
		}
	}
	wantProblem(t, f.do("GET", "/v1/jobs", "", "Authorization", "Bearer "+other.Key), http.StatusUnauthorized, forebay.CodeUnauthorized)
}

func TestTenantsAreApart(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeAdmin)
	job := f.submit(jobBody(`1`))
	f.settle("", forebay.Permanent("bad", "bad"))
	const dlq = "/v1/queues/default/dead-letters"

	f.key = f.newKey("other", forebay.ScopeAdmin)
	for method, paths := range map[string][]string{
		"GET":  {job.Links.Self, job.Links.Self + "?wait=1s", job.Links.Attempts, job.Links.Events, job.Links.Result, dlq + "/" + job.ID},
		"POST": {job.Links.Cancel, job.Links.Self + "/redrive"},
	} {
		for _, path := range paths {
			wantProblem(t, f.do(method, path, ""), http.StatusNotFound, forebay.CodeNotFound)
		}
	}
	for _, path := range []string{"/v1/jobs", dlq} {
		if r := f.do("GET", path, ""); strings.Contains(string(r.body), job.ID) {
			t.Errorf("%s shows another tenant's job: %s", path, r.body)
		}
	}
	if got := into[forebay.RedriveReport](t, f.do("POST", dlq+"/redrive", `{"all":true}`), 200); got.Matched != 0 {
		t.Errorf("redrive matched %+v", got)
	}
	if got := into[forebay.PurgeReport](t, f.do("POST", dlq+"/purge", `{"all":true}`), 200); got.Purged != 0 {
		t.Errorf("purged %+v", got)
	}
}

// A server without keys trusts its own machine, but not everything that reaches it from there.
func TestOpenServer(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name, remote, host string
		header             [2]string
		status             int
	}{
		{"loopback", "127.0.0.1:1", "127.0.0.1:8080", [2]string{}, 200},
		{"localhost", "127.0.0.1:1", "LOCALHOST:8080", [2]string{}, 200},
		{"loopback 6", "[::1]:1", "[::1]:8080", [2]string{}, 200},
		{"mapped", "[::ffff:127.0.0.1]:1", "localhost", [2]string{}, 200},
		{"other machine", "192.0.2.7:1", "localhost", [2]string{}, 401},
		{"rebound name", "127.0.0.1:1", "evil.example:8080", [2]string{}, 403},
		{"lookalike name", "127.0.0.1:1", "127.0.0.1.evil.example", [2]string{}, 403},
		{"address of another machine", "127.0.0.1:1", "192.0.2.7:8080", [2]string{}, 403},
		{"no host", "127.0.0.1:1", "", [2]string{}, 403},
		{"cross-site page", "127.0.0.1:1", "localhost:8080", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"page on another port", "127.0.0.1:1", "localhost:8080", [2]string{"Sec-Fetch-Site", "same-site"}, 403},
		{"address bar", "127.0.0.1:1", "localhost:8080", [2]string{"Sec-Fetch-Site", "none"}, 200},
		{"own page", "127.0.0.1:1", "localhost:8080", [2]string{"Origin", "http://localhost:8080"}, 200},
		{"other origin", "127.0.0.1:1", "localhost:8080", [2]string{"Origin", "http://localhost:3000"}, 403},
		{"opaque origin", "127.0.0.1:1", "localhost:8080", [2]string{"Origin", "null"}, 403},
		{"through a proxy", "127.0.0.1:1", "localhost:8080", [2]string{"X-Forwarded-For", "192.0.2.7"}, 401},
		{"through a proxy that tells the host", "127.0.0.1:1", "localhost:8080", [2]string{"X-Forwarded-Host", "forebay.example"}, 401},
		{"through a proxy that tells the scheme", "127.0.0.1:1", "localhost:8080", [2]string{"X-Forwarded-Proto", "https"}, 401},
		{"through a proxy that tells itself", "127.0.0.1:1", "localhost:8080", [2]string{"Via", "1.1 proxy"}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/v1/jobs", nil)
			r.RemoteAddr, r.Host = c.remote, c.host
			if c.header[0] != "" {
				r.Header.Set(c.header[0], c.header[1])
			}
			w := httptest.NewRecorder()
			f.api.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if c.status == 401 && !strings.Contains(w.Body.String(), "keys create") {
				t.Errorf("no hint how to go on: %s", w.Body)
			}
		})
	}
}
