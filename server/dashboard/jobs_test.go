package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// What jobs wrote is text on every page, and a dead letter is mended and redriven.
func TestJobPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Parses)
		key := s.Key(t, forebay.ScopeAdmin)
		good := s.Job(t, key, "parse", `{"good":true,"number":12345678901234567890}`, forebay.StatusSucceeded)
		bad := s.Job(t, key, "parse", `{"good":false,"number":12345678901234567890}`, forebay.StatusFailed)
		other := s.Job(t, s.KeyOf(t, "other", forebay.ScopeAdmin), "parse", `{"good":true}`, forebay.StatusSucceeded)
		page := s.SignIn(t, browser, key)
		page.Go(s.URL + "/ui/jobs/" + good.ID + "?show=input")
		page.WaitText("12345678901234567890")
		page.WaitText(`\u003cscript`)
		page.WaitText("<b>7</b>")

		page.Go(s.URL + "/ui/dead-letters/default/" + bad.ID)
		page.Type("textarea[name=input]", `{"good":true,"number":12345678901234567890}`)
		page.Submit("button[value=check]")
		page.WaitText("What would change")
		page.Wait(`document.querySelector('.diff ins').textContent.includes('good')`)
		page.Submit("button[value=redrive]")
		page.WaitText("Redriven as generation 2")
		page.WaitText("succeeded")
		mended, err := s.Client(t, key).Get(t.Context(), bad.ID)
		if err != nil || mended.Status != forebay.StatusSucceeded || mended.Generation != 2 {
			t.Errorf("mended: %+v, %v", mended, err)
		}
		for _, complaint := range page.Complaints() {
			t.Error(complaint)
		}
		page.Go(s.URL + "/ui/jobs/" + other.ID)
		page.WaitText("Not Found")
	})
}

// A purge takes what its page has shown, and not what was set aside since. The commands of the
// page take the same, in the tenant of the page.
func TestPurgeTakesWhatWasShown(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Parses)
		key := s.Key(t, forebay.ScopeAdmin)
		shown := s.Job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		v := s.Visit(t, key)
		page := v.Get("/dead-letters/default/redrive").Is(http.StatusOK).Has("1 job would go")
		before := page.One(`name="before" value="([^"]+)"`)
		page.Has("forebay dead-letters purge --before " + before + " --queue default<").Lacks("--for-tenant")
		v.Get("/dead-letters").Has("forebay dead-letters list --all-tenants --all-queues<")
		s.Job(t, s.KeyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead), "parse", `{"good":false}`, forebay.StatusFailed)
		v.Get("/dead-letters/default/redrive?tenant=other&task=parse&after=2026-01-02T03:04").Is(http.StatusOK).Has("1 job would go",
			"purge --after 2026-01-02T03:04:00Z --before", "--queue default --task parse --for-tenant other<")
		v.Get("/?tenant=other").Has("forebay dlq list --queue default --for-tenant other<")
		later := s.Job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		v.Post("/dead-letters/default/redrive", url.Values{"act": {"purge"}, "confirm": {"wrong"}, "before": {before}}).Is(http.StatusUnprocessableEntity)
		v.Post("/dead-letters/default/redrive", url.Values{"act": {"purge"}, "confirm": {"default"}, "before": {before}}).Is(http.StatusOK)
		v.Get("/dead-letters").Lacks(shown.ID).Has(later.ID)
	})
}

// An edit of a dead letter is of the generation that the page has shown. What has become of the
// job since is shown beside the edit, which stays.
func TestEditOfWhatWasShown(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Parses)
		key := s.Key(t, forebay.ScopeAdmin)
		job := s.Job(t, key, "parse", `{"good":false,"from":"the first"}`, forebay.StatusFailed)
		v, c := s.Visit(t, key), s.Client(t, key)
		path := "/dead-letters/default/" + job.ID
		shown := v.Get(path).Is(http.StatusOK).Has("the first").Form("/ui"+path, "task", "parse", "input", `{"good":true,"from":"the page"}`, "act", "redrive")
		v.Post(path, with(shown, "act", "check")).Is(http.StatusOK).Has("What would change")

		again := func(generation int, edit *forebay.RedriveEdit) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := c.DeadLetters("default").Redrive(ctx, forebay.RedriveRequest{Filter: forebay.SetAsideFilter{JobIDs: []string{job.ID}}, Edit: edit})
			if err != nil {
				t.Fatal(err)
			}
			if over, err := c.Wait(ctx, job.ID); err != nil || over.Generation != generation {
				t.Fatalf("%+v, %v", over, err)
			}
		}
		again(2, &forebay.RedriveEdit{Input: json.RawMessage(`{"good":false,"from":"somebody else"}`)})
		for _, act := range []string{"check", "redrive"} {
			page := v.Post(path, with(shown, "act", act)).Is(http.StatusConflict).Has("it ran again and was set aside once more", "in generation 2", "the page").Still()
			if page.Form("/ui"+path).Get("etag") == shown.Get("etag") {
				t.Error("the form keeps the version of the first generation")
			}
		}
		if dead, err := c.DeadLetters("default").Peek(t.Context(), job.ID); err != nil || !strings.Contains(string(dead.Input), "somebody else") {
			t.Errorf("the change of another was overwritten: %s, %v", dead.Input, err)
		}

		shown = v.Get(path).Form("/ui"+path, "task", "parse", "input", `{"good":true,"from":"the page"}`, "act", "redrive")
		again(3, &forebay.RedriveEdit{Input: json.RawMessage(`{"good":true}`)})
		v.Post(path, shown).Is(http.StatusConflict).Has("not here any more")
	})
}

// Many jobs are cancelled by one form.
func TestSelectedJobsAreCancelled(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Parses)
	key := s.Key(t, forebay.ScopeAdmin)
	v, c := s.Visit(t, key), s.Client(t, key)
	later := time.Now().Add(time.Hour)
	form := url.Values{"act": {"cancel"}}
	for range 50 {
		job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "parse", Input: json.RawMessage(`{}`), ScheduledAt: &later})
		if err != nil {
			t.Fatal(err)
		}
		form.Add("id", job.ID)
	}
	form.Add("id", "job_unknown")
	v.Post("/jobs", form).Is(http.StatusOK).Has("Cancelled 50 jobs. 1 job did not change")
	v.Post("/jobs", url.Values{"act": {"cancel"}}).Is(http.StatusUnprocessableEntity)
}
