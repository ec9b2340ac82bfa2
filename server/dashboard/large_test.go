package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
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

// Of a hostile result of 50 MB a page shows the beginning, as text. All of it is a download that
// browsers keep and do not show. A job without a result has none.
func TestAHugeResultIsShownInPart(t *testing.T) {
	t.Parallel()
	const size = 50_000_000
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses)
	key := s.Key(t, forebay.ScopeAdmin)
	job := s.Job(t, key, "parse", fmt.Sprintf(`{"good":true,"large":%d}`, size), forebay.StatusSucceeded)
	v := s.Visit(t, key)
	page := v.Get("/jobs/"+job.ID).Is(http.StatusOK).Has("Preview", `\u003cscript`, "This is the beginning", "/ui/jobs/"+job.ID+"/result").Lacks("<script", "None yet")
	if len(page.Body) > 30_000 {
		t.Errorf("the page has %d bytes", len(page.Body))
	}
	later := time.Now().Add(time.Hour)
	waits, _, err := s.Client(t, key).Submit(t.Context(), forebay.SubmitRequest{Task: "parse", Input: json.RawMessage(`{}`), ScheduledAt: &later})
	if err != nil {
		t.Fatal(err)
	}
	v.Get("/jobs/"+waits.ID).Is(http.StatusOK).Has("None yet").Lacks("Preview", "/result")
	whole := v.Get("/jobs/" + job.ID + "/result").Is(http.StatusOK)
	if h := whole.Header; len(whole.Body) < size || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Disposition") != "attachment; filename=result-"+job.ID+".json" {
		t.Errorf("%d bytes come with %v", len(whole.Body), h)
	}
}

// blobsIn keeps large payloads in a folder, and returns a function that loses all of them.
func blobsIn(t *testing.T) (configure func(*server.Options), lose func()) {
	t.Helper()
	folder := t.TempDir()
	return func(o *server.Options) { o.Blob = "file://" + filepath.ToSlash(folder) }, func() {
		t.Helper()
		lost := 0
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			lost++
			return os.Remove(path)
		})
		if err != nil || lost == 0 {
			t.Fatalf("%d files are lost, %v", lost, err)
		}
	}
}

// The page of a job is there although its result cannot be opened. A page that has the result
// already keeps it.
func TestAResultThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	configure, lose := blobsIn(t)
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses, configure)
	key := s.Key(t, forebay.ScopeAdmin)
	large := s.Job(t, key, "parse", `{"good":true,"large":3000000}`, forebay.StatusSucceeded)
	small := s.Job(t, key, "parse", `{"good":true}`, forebay.StatusSucceeded)
	v := s.Visit(t, key)
	page := "/jobs/" + large.ID
	id := v.Get(page).Is(http.StatusOK).Has("Preview", "This is the beginning").Lacks("cannot be opened").One(`<section class="payload" id="([^"]+)" data-keep`)
	lose()
	result := "/v1" + page + "/result</pre>" // among the requests of the page
	broken := v.Get(page).Is(http.StatusOK).Has("Preview", "It cannot be opened now", "/ui"+page+"/result", "Attempts").Lacks("data-keep")
	if !strings.Contains(broken.Body, result) {
		t.Errorf("the page makes these requests: %s", broken.Body)
	}
	again := v.Get(page, "X-Refresh", "other "+id).Is(http.StatusOK).Has(`id="` + id + `" data-keep`).Lacks("cannot be opened")
	if strings.Contains(again.Body, result) {
		t.Error("a refresh reads the result again")
	}
	v.Get(page, "X-Refresh", "1").Has("It cannot be opened now")

	// A small one came with the job.
	one := v.Get("/jobs/"+small.ID).Is(http.StatusOK).Has("Preview", "/ui/jobs/"+small.ID+"/result").Lacks("cannot be opened")
	if !strings.Contains(one.Body, "/v1/jobs/"+small.ID+"/attempts</pre>") || strings.Contains(one.Body, "/v1/jobs/"+small.ID+"/result</pre>") {
		t.Errorf("the page makes these requests: %s", one.Body)
	}
}

// What a page shows of a large result stays when the page is fetched again.
func TestALargeResultStaysOnAnOpenPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	configure, lose := blobsIn(t)
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses, configure)
	key := s.Key(t, forebay.ScopeAdmin)
	large := s.Job(t, key, "parse", `{"good":true,"large":3000000}`, forebay.StatusSucceeded)
	page := s.SignIn(t, browser, key)
	page.Go(s.URL + "/ui/jobs/" + large.ID)
	page.Wait(`document.querySelector('.payload pre')?.textContent.includes('xxxx')`)
	lose()
	page.Evaluate(`document.querySelector('#main h2').textContent = 'Old'`, nil)
	page.Wait(`document.querySelector('#main h2').textContent !== 'Old'`) // it was fetched again
	var shown bool
	if page.Evaluate(`document.querySelector('.payload pre')?.textContent.includes('xxxx') === true`, &shown); !shown {
		t.Error("the page lost what it showed of the result")
	}
	for _, complaint := range page.Complaints() {
		t.Error(complaint)
	}
}
