package dashboard_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
)

// Whoever has a key signs in, sees pages, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), axeSource(t)
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db")
	key := s.key(t, forebay.ScopeAdmin)
	page := browser.Open(t)
	inspect(t, page, axe, s.url+"/ui/sign-in", "sign-in")
	page.Go(s.url + "/ui/jobs")
	page.WaitText("API key")
	page.Type("input[name=key]", "fb_wrong")
	page.Submit("main button")
	page.WaitText("unknown, expired or revoked")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.WaitText("No job here")
	page.Submit("form[action$=sign-out] button")
	page.WaitText("API key")
	page.Go(s.url + "/ui/")
	page.WaitText("API key")
}

// withoutObjects are the pages that need no object of their own.
var withoutObjects = []string{
	"/", "/backlog", "/calls", "/jobs", "/dead-letters", "/quarantine", "/retries", "/batches", "/responses", "/sessions", "/deployments", "/usage", "/tenants",
	"/queues", "/topics", "/webhooks", "/orchestrations", "/workflows", "/documents", "/search", "/processes", "/audit", "/keys", "/sign-ins",
}

// Every page of the navigation is quiet and accessible with data, in both themes and widths.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), axeSource(t)
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db", parses)
	key := s.key(t, forebay.ScopeAdmin)
	s.job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
	s.job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
	s.job(t, key, "summarize", `"Rivers carry water. Water carries boats. Boats carry people."`, forebay.StatusSucceeded)
	page := s.signIn(t, browser, key)
	var shown []string
	page.Evaluate(`[...document.querySelectorAll('nav.side a')].map(a => a.getAttribute('href').replace('/ui', ''))`, &shown)
	slices.Sort(shown)
	want := slices.DeleteFunc(slices.Sorted(slices.Values(withoutObjects)), func(path string) bool { return path == "/quarantine" }) // dead letters lead there
	if !slices.Equal(shown, want) {
		t.Errorf("the navigation has %v, the test %v", shown, want)
	}
	for _, path := range withoutObjects {
		inspect(t, page, axe, s.url+"/ui"+path, "page "+path)
	}
}

// The first visit is small, and pages are read without a script.
func TestFirstVisit(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db", parses)
	key := s.key(t, forebay.ScopeAdmin)
	s.job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
	page := browser.Open(t)
	page.Go(s.url + "/ui/sign-in")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.WaitText("Needs you")
	if n := page.Received(); n > maxFirstVisit {
		t.Errorf("signing in and the first page took %d bytes, %d are enough", n, maxFirstVisit)
	}
	page.Script(false)
	for _, path := range withoutObjects {
		page.Go(s.url + "/ui" + path)
		page.WaitText("The same by command and request")
	}
}

// maxFirstVisit is what a first visit may transfer, in bytes.
const maxFirstVisit = 100_000

// Keys move between pages and rows.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db", parses)
	key := s.key(t, forebay.ScopeAdmin)
	first := s.job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
	second := s.job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
	page := s.signIn(t, browser, key)
	page.Press("g")
	page.Press("j")
	page.WaitText(first.ID)
	page.Press("j")
	page.Wait(`document.querySelector('tr.at').innerText.includes('` + second.ID + `')`)
	page.Press("j")
	page.Wait(`document.querySelector('tr.at').innerText.includes('` + first.ID + `')`)
	page.Press("\r")
	page.WaitText("Attempts")
	page.Press("?")
	page.Wait(`document.getElementById('keys').open`)
	page.Press("\x1b")
	page.Wait(`!document.getElementById('keys').open`)
	page.Press("/")
	page.Wait(`document.activeElement.id === 'find'`)
	page.Type("#find", second.ID)
	page.Press("\r")
	page.Wait(`location.pathname === '/ui/jobs/` + second.ID + `'`)
	page.Press("r")
	page.Wait(`document.getElementById('live').textContent.startsWith('Paused')`)
}

// A key that is revoked ends its pages and streams at once.
func TestRevokedKeyEndsPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		admin := s.key(t, forebay.ScopeAdmin)
		viewer := s.key(t, forebay.ScopeView)
		page := s.signIn(t, browser, viewer)
		page.Go(s.url + "/ui/")
		page.WaitText("Needs you")
		page.Wait(`document.getElementById('live').textContent === 'Live'`)
		keys, err := s.client(t, admin).Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if slices.Contains(k.Scopes, forebay.ScopeView) {
				if err := s.client(t, admin).RevokeKey(t.Context(), k.ID); err != nil {
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
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db", parses)
	v := s.visit(t, s.key(t, forebay.ScopeAdmin))
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}} {
		for _, path := range []string{"/sign-out", "/theme", "/sign-in", "/jobs"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/ui"+path, strings.NewReader("id=x"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = header.Clone()
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := v.http.Do(req)
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
