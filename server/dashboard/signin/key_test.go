// Package signin_test signs in to the dashboard of a server, by keys and at a provider of OpenID
// Connect, and out again.
package signin_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Whoever has a key signs in, sees pages, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), dashboardtest.AxeSource(t, filepath.Join("..", "testdata", "axe"))
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		key := s.Key(t, forebay.ScopeAdmin)
		page := browser.Open(t)
		engine, in, axe := dashboardtest.LooksOn(database, axe)
		dashboardtest.Inspect(t, page, axe, s.URL+"/ui/sign-in", engine+" sign-in", "API key", in...)
		page.Go(s.URL + "/ui/jobs")
		page.WaitText("API key")
		page.Type("input[name=key]", "fb_wrong")
		page.Submit("main button")
		page.WaitText("unknown, expired or revoked")
		page.Type("input[name=key]", key)
		page.Complaints() // of the answers 401
		page.Submit("main button")
		page.WaitText("No job here")
		page.Submit("form[action$=sign-out] button")
		page.WaitText("API key")
		for _, complaint := range page.Complaints() {
			t.Error(complaint)
		}
		page.Go(s.URL + "/ui/")
		page.WaitText("API key")
	})
}

// A key that is revoked ends its pages and streams at once.
func TestRevokedKeyEndsPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		admin := s.Key(t, forebay.ScopeAdmin)
		viewer := s.Key(t, forebay.ScopeView)
		page := s.SignIn(t, browser, viewer)
		page.Go(s.URL + "/ui/")
		page.WaitText("Needs you")
		page.Wait(`document.getElementById('live').textContent === 'Live'`)
		keys, err := s.Client(t, admin).Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if slices.Contains(k.Scopes, forebay.ScopeView) {
				if err := s.Client(t, admin).RevokeKey(t.Context(), k.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		page.WaitText("API key")
	})
}

// What a page of another origin sends changes nothing, and a link changes nothing.
func TestFormsOfOtherOrigins(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses)
	v := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}} {
		for _, path := range []string{"/sign-out", "/theme", "/sign-in", "/jobs"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/ui"+path, strings.NewReader("id=x"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = header.Clone()
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := v.HTTP.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%v to %s: %d", header, path, resp.StatusCode)
			}
		}
	}
}

// Whose session ends on a page with a form comes back to that page, and to no other than those of
// the dashboard.
func TestSignInLeadsBack(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses)
	key := s.Key(t, forebay.ScopeAdmin)
	v := s.Visit(t, key)
	v.Post("/sign-out", url.Values{}).Is(http.StatusOK).Has("API key")
	for _, c := range []struct{ method, path, referer, want string }{
		{http.MethodGet, "/jobs?task=chat", s.URL + "/ui/", "/ui/jobs?task=chat"},
		{http.MethodPost, "/jobs/job_1/cancel", s.URL + "/ui/jobs/job_1?tenant=acme", "/ui/jobs/job_1?tenant=acme"},
		{http.MethodPost, "/jobs/job_1/cancel", s.URL + "/v1/jobs", "/ui/"},
		{http.MethodPost, "/jobs/job_1/cancel", s.URL + "/ui/../v1/jobs", "/ui/"},
		{http.MethodPost, "/jobs/job_1/cancel", "about:blank", "/ui/"},
		{http.MethodPost, "/jobs/job_1/cancel", "", "/ui/"},
	} {
		page := v.Do(c.method, c.path, nil, "Referer", c.referer).Is(http.StatusUnauthorized)
		if next := page.Hidden("/ui/sign-in", "next"); next != c.want {
			t.Errorf("%s %s from %q: a sign-in leads to %q, want %q", c.method, c.path, c.referer, next, c.want)
		}
	}
	for _, next := range []string{"//evil.example", "/ui/../..//evil.example", "/ui/%2e%2e/v1/jobs", `/ui/\evil`, "https://evil.example/ui/"} {
		if signedIn := v.Post("/sign-in", url.Values{"key": {key}, "next": {next}}).Is(http.StatusOK); signedIn.Path != "/ui/" {
			t.Errorf("the sign-in with %q leads to %q", next, signedIn.Path)
		}
	}
}
