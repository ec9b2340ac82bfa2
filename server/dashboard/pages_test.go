package dashboard_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Whoever has a key signs in, sees pages, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), axeSource(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		key := s.key(t, forebay.ScopeAdmin)
		page := browser.Open(t)
		engine, in, axe := looksOn(database, axe)
		inspect(t, page, axe, s.url+"/ui/sign-in", engine+" sign-in", "API key", in...)
		page.Go(s.url + "/ui/jobs")
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
		page.Go(s.url + "/ui/")
		page.WaitText("API key")
	})
}

// navigation returns where the navigation of a page leads, below the dashboard.
func navigation(page *browsertest.Page) (paths []string) {
	page.Evaluate(`[...document.querySelectorAll('nav.side a')].map(a => a.getAttribute('href').replace('/ui', ''))`, &paths)
	return paths
}

// The first visit is small, and pages are read without a script.
func TestFirstVisit(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	s := start(t, "sqlite:"+dbtest.SQLite(t), parses)
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
	paths := navigation(page)
	if len(paths) < 20 {
		t.Errorf("the navigation leads to %v", paths)
	}
	page.Script(false)
	for _, path := range append(paths, "/quarantine") { // dead letters lead there
		page.Go(s.url + "/ui" + path)
		page.WaitText("The same by command and request")
	}
}

// maxFirstVisit is what a first visit may transfer, in bytes.
const maxFirstVisit = 100_000

// tabTo presses Tab until the element that a CSS selector finds has the focus.
func tabTo(t *testing.T, page *browsertest.Page, selector string) {
	t.Helper()
	for range 200 {
		var there bool
		if page.Evaluate(`document.activeElement?.matches("`+selector+`") === true`, &there); there {
			return
		}
		page.Press("\t")
	}
	t.Fatalf("Tab does not lead to %s", selector)
}

// All that follows is done by the keyboard alone: signing in, moving between pages and rows,
// mending a dead letter, signing out.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, parses)
		key := s.key(t, forebay.ScopeAdmin)
		first := s.job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
		second := s.job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
		bad := s.job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		page := browser.Open(t)
		page.Go(s.url + "/ui/jobs?status=succeeded")
		page.WaitText("API key")
		page.Complaints() // of the answer 401
		tabTo(t, page, "input[name=key]")
		page.Press(key + "\r")
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
		page.Evaluate(`document.activeElement.value = ''`, nil) // Chromium's test interface types the slash too
		page.Press(second.ID + "\r")
		page.Wait(`location.pathname === '/ui/jobs/` + second.ID + `'`)
		page.Press("r")
		page.Wait(`document.getElementById('live').textContent.startsWith('Paused')`)

		page.Press("gd")
		page.Wait(`location.pathname === '/ui/dead-letters'`)
		page.WaitText(bad.ID)
		tabTo(t, page, "main a[href^='/ui/dead-letters/default/"+bad.ID+"']")
		page.Press("\r")
		page.WaitText("Edit and redrive")
		tabTo(t, page, "textarea[name=input]")
		page.Evaluate(`document.activeElement.select()`, nil) // what Ctrl-A does
		page.Press(`{"good":true}`)
		tabTo(t, page, "button[value=redrive]")
		page.Press("\r")
		page.WaitText("Redriven as generation 2")
		page.WaitText("succeeded")
		tabTo(t, page, "form[action$='sign-out'] button")
		page.Press("\r")
		page.WaitText("API key")
		for _, complaint := range page.Complaints() {
			t.Error(complaint)
		}
	})
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
	s := start(t, "sqlite:"+dbtest.SQLite(t), parses)
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
