package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// Of a hostile result of 50 MB a page shows the beginning, as text. All of it is a download that
// browsers keep and do not show. A job without a result has none.
func TestAHugeResultIsShownInPart(t *testing.T) {
	t.Parallel()
	const size = 50_000_000
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db", parses)
	key := s.key(t, forebay.ScopeAdmin)
	job := s.job(t, key, "parse", fmt.Sprintf(`{"good":true,"large":%d}`, size), forebay.StatusSucceeded)
	v := s.visit(t, key)
	page := v.get("/jobs/"+job.ID).is(http.StatusOK).has("Preview", `\u003cscript`, "This is the beginning", "/ui/jobs/"+job.ID+"/result").lacks("<script", "None yet")
	if len(page.body) > 30_000 {
		t.Errorf("the page has %d bytes", len(page.body))
	}
	later := time.Now().Add(time.Hour)
	waits, _, err := s.client(t, key).Submit(t.Context(), forebay.SubmitRequest{Task: "parse", Input: json.RawMessage(`{}`), ScheduledAt: &later})
	if err != nil {
		t.Fatal(err)
	}
	v.get("/jobs/"+waits.ID).is(http.StatusOK).has("None yet").lacks("Preview", "/result")
	whole := v.get("/jobs/" + job.ID + "/result").is(http.StatusOK)
	if h := whole.header; len(whole.body) < size || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Disposition") != "attachment; filename=result-"+job.ID+".json" {
		t.Errorf("%d bytes come with %v", len(whole.body), h)
	}
}
