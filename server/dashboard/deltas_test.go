package dashboard_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// writer is a model that writes what a test gives it, part by part, and ends with the part "".
func writer(t *testing.T) (parts chan<- string, configure func(*server.Options)) {
	t.Helper()
	given := make(chan string)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case part := <-given:
				if part == "" {
					_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
					return
				}
				said, _ := json.Marshal(part)
				_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", said)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(up.Close)
	return given, func(o *server.Options) {
		o.ShutdownTimeout = 10 * time.Millisecond
		o.Deployments = []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: up.URL, Model: "m", APIKey: "sk-up",
			IdleTimeout: time.Hour}} // it is silent while a browser on a busy machine draws
	}
}

// give passes the model what it is to write next.
func give(t *testing.T, parts chan<- string, part string) {
	t.Helper()
	select {
	case parts <- part:
	case <-time.After(time.Minute):
		t.Fatal("no call takes what the model is to write")
	}
}

// The page of a running job shows what its call writes, as text, while it writes. Then it shows
// the result instead.
func TestWhatARunningJobWrites(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), dashboardtest.AxeSource(t, filepath.Join("testdata", "axe"))
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		parts, configure := writer(t)
		s := dashboardtest.Start(t, database, configure)
		key := s.Key(t, forebay.ScopeAdmin)
		job := s.Job(t, key, "chat", `"Which river flows through Zürich?"`, "")
		page := s.SignIn(t, browser, key)
		page.Go(s.URL + "/ui/jobs/" + job.ID)
		page.Evaluate(`window.visited = true`, nil)
		written := func(want string) {
			t.Helper()
			quoted, _ := json.Marshal(want)
			page.Wait(`document.querySelector('#written:not([hidden]) pre')?.textContent === ` + string(quoted))
		}
		give(t, parts, "The <img src=x onerror=\"document.title='broken'\">")
		written("The <img src=x onerror=\"document.title='broken'\">")
		give(t, parts, " Limmat\u202e\u0007")
		written("The <img src=x onerror=\"document.title='broken'\"> Limmat\ufffd\ufffd")
		page.Accessible(axe, "a job that writes")
		var images int
		if page.Evaluate(`document.querySelectorAll('main img').length`, &images); images != 0 {
			t.Errorf("what a model wrote became %d elements", images)
		}

		// A page that is opened later begins with what was written so far.
		other := s.SignIn(t, browser, key)
		other.Go(s.URL + "/ui/jobs/" + job.ID)
		other.Wait(`document.querySelector('#written:not([hidden]) pre')?.textContent.endsWith('Limmat\ufffd\ufffd')`)

		// The page survives that it is fetched again meanwhile.
		page.Evaluate(`document.querySelector('#written pre').dataset.kept = 'yes', performance.clearResourceTimings()`, nil)
		page.Wait(`performance.getEntriesByType('resource').some(e => e.name === location.href)`)
		give(t, parts, " flows.")
		page.Wait(`document.querySelector('#written pre[data-kept]').textContent.endsWith('Limmat\ufffd\ufffd flows.')`)
		give(t, parts, "")
		for _, p := range []*browsertest.Page{page, other} {
			p.WaitText("succeeded")
			p.Wait(`!document.getElementById('written')`)
			p.WaitText("Preview")
		}
		var visited bool
		if page.Evaluate(`window.visited === true`, &visited); !visited {
			t.Error("the page was loaded anew")
		}
		for _, complaint := range page.Complaints() {
			t.Error(complaint)
		}
	})
}

// What a call writes is a payload. Who may not open those of another tenant gets none of it. Who
// may leaves a row in the audit log. Another tenant's job has no stream.
func TestWhoSeesWhatARunningJobWrites(t *testing.T) {
	t.Parallel()
	parts, configure := writer(t)
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), configure)
	admin := s.Key(t, forebay.ScopeAdmin)
	job := s.Job(t, admin, "chat", `"Which river?"`, "")
	give(t, parts, "The Limmat")
	delta := func(stream string) bool { return strings.Contains(stream, "event: delta") }
	changes := func(stream string) bool { return delta(stream) || strings.Count(stream, "event: change") > 1 } // two ticks

	home := s.Visit(t, s.Key(t, forebay.ScopeRead))
	if stream, ok := home.LiveUntil("/jobs/"+job.ID, delta); !ok || !strings.Contains(stream, `"offset":0,"end":10,"text":"The Limmat"`) {
		t.Errorf("a reader of the tenant gets %q", stream)
	}
	home.Get("/jobs/" + job.ID).Is(http.StatusOK).Has(`<section id="written" hidden`).Lacks("The Limmat")
	viewer := s.Visit(t, s.KeyOf(t, "ops", forebay.ScopeView))
	if stream, _ := viewer.LiveUntil("/jobs/"+job.ID+"&tenant=acme", changes); delta(stream) {
		t.Errorf("a viewer of another tenant gets %q", stream)
	}
	if opened := s.AuditOf(t, admin, "open-payload"); len(opened) != 0 {
		t.Errorf("payloads were opened: %+v", opened)
	}
	opener := s.Visit(t, s.KeyOf(t, "ops", forebay.ScopeView, forebay.ScopePayload))
	if stream, ok := opener.LiveUntil("/jobs/"+job.ID+"&tenant=acme", delta); !ok {
		t.Errorf("who may open payloads gets %q", stream)
	}
	if opened := s.AuditOf(t, admin, "open-payload"); len(opened) != 1 || opened[0].Tenant != "acme" || !strings.Contains(opened[0].Target, job.ID) {
		t.Errorf("payloads were opened: %+v", opened)
	}
	rival := s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead))
	if stream, _ := rival.LiveUntil("/jobs/"+job.ID, changes); delta(stream) {
		t.Errorf("another tenant gets %q", stream)
	}
	give(t, parts, "")
}
