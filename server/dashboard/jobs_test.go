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
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// onDatabases runs a test on both engines.
func onDatabases(t *testing.T, test func(t *testing.T, database string)) {
	for engine, database := range map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + dbtest.SQLite(t) },
		"postgresql": func(t *testing.T) string { return dbtest.Postgres(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, database(t))
		})
	}
}

// parses is a task whose jobs fail for good unless their input has good, and whose results are
// hostile.
func parses(o *server.Options) {
	o.Functions = append(o.Functions, forebay.Task{Name: "parse", Description: "fails without good", Run: parse})
}

// hostile is what a model could write to harm those who look at it.
const hostile = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">\u202e\u0000\u001b[2J"

func parse(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	var input struct {
		Good  bool
		Large int
	}
	if err := json.Unmarshal(call.Input, &input); err != nil || !input.Good {
		return forebay.TaskResult{}, forebay.Permanent("unreadable", "the document cannot be read: "+hostile)
	}
	output, err := json.Marshal(map[string]string{"text": hostile + strings.Repeat("x", input.Large)})
	return forebay.TaskResult{Output: output}, err
}

// signIn opens a page as who has a key.
func (s *running) signIn(t *testing.T, b *browsertest.Browser, key string) *browsertest.Page {
	t.Helper()
	page := b.Open(t)
	page.Go(s.url + "/ui/sign-in")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.Wait(`!document.querySelector('input[name=key]')`)
	page.Complaints()
	return page
}

// job submits a job and waits until it has that status.
func (s *running) job(t *testing.T, key, task, input string, status forebay.Status) forebay.Job {
	t.Helper()
	c := s.client(t, key)
	job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: task, Input: json.RawMessage(input), Metadata: map[string]string{"customer": "<b>7</b>"}})
	if err == nil && status != "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		job, err = c.Wait(ctx, job.ID)
	}
	if err != nil || status != "" && job.Status != status {
		t.Fatalf("%s: %v, %v", job.ID, job.Status, err)
	}
	return job
}

// What jobs wrote is text on every page, and a dead letter is mended and redriven.
func TestJobPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, parses)
		key := s.key(t, forebay.ScopeAdmin)
		good := s.job(t, key, "parse", `{"good":true,"number":12345678901234567890}`, forebay.StatusSucceeded)
		bad := s.job(t, key, "parse", `{"good":false,"number":12345678901234567890}`, forebay.StatusFailed)
		other := s.job(t, s.keyOf(t, "other", forebay.ScopeAdmin), "parse", `{"good":true}`, forebay.StatusSucceeded)
		page := s.signIn(t, browser, key)
		page.Go(s.url + "/ui/jobs/" + good.ID + "?show=input")
		page.WaitText("12345678901234567890")
		page.WaitText(`\u003cscript`)
		page.WaitText("<b>7</b>")

		page.Go(s.url + "/ui/dead-letters/default/" + bad.ID)
		page.Type("textarea[name=input]", `{"good":true,"number":12345678901234567890}`)
		page.Submit("button[value=check]")
		page.WaitText("What would change")
		page.Wait(`document.querySelector('.diff ins').textContent.includes('good')`)
		page.Submit("button[value=redrive]")
		page.WaitText("Redriven as generation 2")
		page.WaitText("succeeded")
		mended, err := s.client(t, key).Get(t.Context(), bad.ID)
		if err != nil || mended.Status != forebay.StatusSucceeded || mended.Generation != 2 {
			t.Errorf("mended: %+v, %v", mended, err)
		}
		for _, complaint := range page.Complaints() {
			t.Error(complaint)
		}
		page.Go(s.url + "/ui/jobs/" + other.ID)
		page.WaitText("Not Found")
	})
}

// A purge takes what its page has shown, and not what was set aside since.
func TestPurgeTakesWhatWasShown(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, parses)
		key := s.key(t, forebay.ScopeAdmin)
		shown := s.job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		v := s.visit(t, key)
		page := v.get("/dead-letters/default/redrive").is(http.StatusOK).has("1 job would go")
		before := page.one(`name="before" value="([^"]+)"`)
		later := s.job(t, key, "parse", `{"good":false}`, forebay.StatusFailed)
		v.post("/dead-letters/default/redrive", url.Values{"act": {"purge"}, "confirm": {"wrong"}, "before": {before}}).is(http.StatusUnprocessableEntity)
		v.post("/dead-letters/default/redrive", url.Values{"act": {"purge"}, "confirm": {"default"}, "before": {before}}).is(http.StatusOK)
		v.get("/dead-letters").lacks(shown.ID).has(later.ID)
	})
}

// An edit of a dead letter is of the generation that the page has shown. What has become of the
// job since is shown beside the edit, which stays.
func TestEditOfWhatWasShown(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, parses)
		key := s.key(t, forebay.ScopeAdmin)
		job := s.job(t, key, "parse", `{"good":false,"from":"the first"}`, forebay.StatusFailed)
		v, c := s.visit(t, key), s.client(t, key)
		path := "/dead-letters/default/" + job.ID
		shown := v.get(path).is(http.StatusOK).has("the first").form("/ui"+path, "task", "parse", "input", `{"good":true,"from":"the page"}`, "act", "redrive")
		v.post(path, with(shown, "act", "check")).is(http.StatusOK).has("What would change")

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
			page := v.post(path, with(shown, "act", act)).is(http.StatusConflict).has("it ran again and was set aside once more", "in generation 2", "the page").still()
			if page.form("/ui"+path).Get("etag") == shown.Get("etag") {
				t.Error("the form keeps the version of the first generation")
			}
		}
		if dead, err := c.DeadLetters("default").Peek(t.Context(), job.ID); err != nil || !strings.Contains(string(dead.Input), "somebody else") {
			t.Errorf("the change of another was overwritten: %s, %v", dead.Input, err)
		}

		shown = v.get(path).form("/ui"+path, "task", "parse", "input", `{"good":true,"from":"the page"}`, "act", "redrive")
		again(3, &forebay.RedriveEdit{Input: json.RawMessage(`{"good":true}`)})
		v.post(path, shown).is(http.StatusConflict).has("not here any more")
	})
}

// Many jobs are cancelled by one form.
func TestSelectedJobsAreCancelled(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t), parses)
	key := s.key(t, forebay.ScopeAdmin)
	v, c := s.visit(t, key), s.client(t, key)
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
	v.post("/jobs", form).is(http.StatusOK).has("Cancelled 50 jobs. 1 job did not change")
	v.post("/jobs", url.Values{"act": {"cancel"}}).is(http.StatusUnprocessableEntity)
}
