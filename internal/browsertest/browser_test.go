package browsertest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// listed notes what a test would fail with.
type listed struct {
	testing.TB
	errors []string
}

func (l *listed) Errorf(format string, args ...any) {
	l.errors = append(l.errors, fmt.Sprintf(format, args...))
}

// A page's lines on the console, exceptions, failed loads and violations of its policy are all
// noticed, and so is what axe-core finds.
func TestComplaints(t *testing.T) {
	t.Parallel()
	browser := Start(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone.js" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'self'; script-src 'self' 'nonce-n'")
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>x</title><link rel="icon" href="data:,"><p style="color: red">said</p>
<script nonce="n">console.log("a line"); setTimeout(() => { throw new Error("thrown") })</script><script src="/gone.js" nonce="n"></script>`)
	}))
	t.Cleanup(site.Close)
	page := browser.Open(t)
	page.Go(site.URL)
	var all string
	end := time.Now().Add(patience)
	for _, want := range []string{"console: \"a line\"", "exception: ", "Content Security Policy", "/gone.js"} {
		for !strings.Contains(all, want) {
			page.Wait("document.readyState === 'complete'")
			if all += strings.Join(page.Complaints(), "\n"); time.Now().After(end) {
				t.Fatalf("the page did not complain of %s: %s", want, all)
			}
		}
	}

	list := &listed{TB: t}
	page.t = list
	page.Accessible(`window.axe = {run: () => Promise.resolve({violations: [{id: 'label', help: 'h', nodes: [{html: '<input>', failureSummary: 's'}]}]})}`, "the page")
	if len(list.errors) != 1 || !strings.Contains(list.errors[0], "label") {
		t.Errorf("axe-core's findings become %q", list.errors)
	}
}
