package dashboard_test

import (
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// The first visit is small, and pages are read without a script.
func TestFirstVisit(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses)
	key := s.Key(t, forebay.ScopeAdmin)
	s.Job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
	page := browser.Open(t)
	page.Go(s.URL + "/ui/sign-in")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.WaitText("Needs you")
	if n := page.Received(); n > maxFirstVisit {
		t.Errorf("signing in and the first page took %d bytes, %d are enough", n, maxFirstVisit)
	}
	paths := dashboardtest.Navigation(page)
	if len(paths) < 20 {
		t.Errorf("the navigation leads to %v", paths)
	}
	page.Script(false)
	for _, path := range append(paths, "/quarantine") { // dead letters lead there
		page.Go(s.URL + "/ui" + path)
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
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Parses)
		key := s.Key(t, forebay.ScopeAdmin)
		first := s.Job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
		second := s.Job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
		bad := s.Job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		page := browser.Open(t)
		page.Go(s.URL + "/ui/jobs?status=succeeded")
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
