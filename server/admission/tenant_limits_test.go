//go:build unix

package admission_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Refusals by HTTP have a status, a code, the name of the limit and when to try again.
func TestRefusalsAtLimits(t *testing.T) {
	none, one := int64(0), int64(1)
	s := servertest.Start(t, server.Options{Tenants: map[string]server.Tenant{"acme": {Limits: forebay.TenantLimits{KeyRequests: &none, Topics: &one, WaitingJobs: &one}}}})
	url := "http://" + s.Addr(t.Context()).String()
	local, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	key, err := local.CreateKey(t.Context(), "acme", forebay.Scopes, nil)
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path, body string) (*http.Response, forebay.Error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key.Key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p struct {
			Code   forebay.Code `json:"code"`
			Detail string       `json:"detail"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		return resp, forebay.Error{Code: p.Code, Message: p.Detail}
	}
	refused := func(resp *http.Response, e forebay.Error, code forebay.Code, name forebay.LimitName, again bool) {
		t.Helper()
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests || e.Code != code || !strings.Contains(e.Message, string(name)+" is reached") || again != (seconds > 0) {
			t.Errorf("%d %q, Retry-After %d: %+v", resp.StatusCode, resp.Header.Get("Retry-After"), seconds, e)
		}
	}
	do("POST", "/v1/tenants/acme/pause", "")
	for _, path := range []string{"/v1/topics/a", "/v1/topics/a"} { // the second changes the first
		if resp, e := do("PUT", path, "{}"); resp.StatusCode >= 300 {
			t.Fatal(e.Message)
		}
	}
	resp, e := do("PUT", "/v1/topics/b", "{}")
	refused(resp, e, forebay.CodeTenantLimit, forebay.LimitTopics, false)
	if resp, e := do("POST", "/v1/jobs", `{"task":"chat","input":{"messages":[{"role":"user","content":"x"}]}}`); resp.StatusCode != http.StatusAccepted {
		t.Fatal(e.Message)
	}
	resp, e = do("POST", "/v1/jobs", `{"task":"chat","input":{"messages":[{"role":"user","content":"x"}]}}`)
	refused(resp, e, forebay.CodeTenantLimit, forebay.LimitWaitingJobs, true)
	if resp, e := do("PUT", "/v1/tenants/acme", `{"limits":{"requests_per_second":1}}`); resp.StatusCode != http.StatusOK {
		t.Fatal(e.Message)
	}
	servertest.Eventually(t, time.Minute, func() error { // the new rate allows two at once
		if resp, e = do("GET", "/v1/topics/a", ""); resp.StatusCode == http.StatusOK {
			return servertest.ErrNotYet
		}
		return nil
	})
	refused(resp, e, forebay.CodeRateLimited, forebay.LimitRequests, true)
}
