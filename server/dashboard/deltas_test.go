package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
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
		o.Deployments = []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: up.URL, Model: "m", APIKey: "sk-up"}}
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
	browser, axe := browsertest.Start(t), axeSource(t)
	onDatabases(t, func(t *testing.T, database string) {
		parts, configure := writer(t)
		s := start(t, database, configure)
		key := s.key(t, forebay.ScopeAdmin)
		job := s.job(t, key, "chat", `"Which river flows through Zürich?"`, "")
		page := s.signIn(t, browser, key)
		page.Go(s.url + "/ui/jobs/" + job.ID)
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
		other := s.signIn(t, browser, key)
		other.Go(s.url + "/ui/jobs/" + job.ID)
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

// liveUntil reads the stream of a page until it has a text, or says that it ended without.
func (v *visitor) liveUntil(path string, has func(stream string) bool) (stream string, found bool) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/live?page="+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	resp, err := v.http.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	var read strings.Builder
	buffer := make([]byte, 4096)
	for !has(read.String()) {
		n, err := resp.Body.Read(buffer)
		read.Write(buffer[:n])
		if err != nil {
			return read.String(), has(read.String())
		}
	}
	return read.String(), true
}

// What a call writes is a payload. Who may not open those of another tenant gets none of it. Who
// may leaves a row in the audit log. Another tenant's job has no stream.
func TestWhoSeesWhatARunningJobWrites(t *testing.T) {
	t.Parallel()
	parts, configure := writer(t)
	s := start(t, "sqlite:"+dbtest.SQLite(t), configure)
	admin := s.key(t, forebay.ScopeAdmin)
	job := s.job(t, admin, "chat", `"Which river?"`, "")
	give(t, parts, "The Limmat")
	delta := func(stream string) bool { return strings.Contains(stream, "event: delta") }
	changes := func(stream string) bool { return delta(stream) || strings.Count(stream, "event: change") > 1 } // two ticks

	home := s.visit(t, s.key(t, forebay.ScopeRead))
	if stream, ok := home.liveUntil("/jobs/"+job.ID, delta); !ok || !strings.Contains(stream, `"offset":0,"end":10,"text":"The Limmat"`) {
		t.Errorf("a reader of the tenant gets %q", stream)
	}
	home.get("/jobs/" + job.ID).is(http.StatusOK).has(`<section id="written" hidden`).lacks("The Limmat")
	viewer := s.visit(t, s.keyOf(t, "ops", forebay.ScopeView))
	if stream, _ := viewer.liveUntil("/jobs/"+job.ID+"&tenant=acme", changes); delta(stream) {
		t.Errorf("a viewer of another tenant gets %q", stream)
	}
	if opened := s.auditOf(t, admin, "open-payload"); len(opened) != 0 {
		t.Errorf("payloads were opened: %+v", opened)
	}
	opener := s.visit(t, s.keyOf(t, "ops", forebay.ScopeView, forebay.ScopePayload))
	if stream, ok := opener.liveUntil("/jobs/"+job.ID+"&tenant=acme", delta); !ok {
		t.Errorf("who may open payloads gets %q", stream)
	}
	if opened := s.auditOf(t, admin, "open-payload"); len(opened) != 1 || opened[0].Tenant != "acme" || !strings.Contains(opened[0].Target, job.ID) {
		t.Errorf("payloads were opened: %+v", opened)
	}
	rival := s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead))
	if stream, _ := rival.liveUntil("/jobs/"+job.ID, changes); delta(stream) {
		t.Errorf("another tenant gets %q", stream)
	}
	give(t, parts, "")
}
