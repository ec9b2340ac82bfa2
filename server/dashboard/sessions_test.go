package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// lasts is a task whose calls last until the test ends.
func lasts(t *testing.T) func(*server.Options) {
	t.Helper()
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	return func(o *server.Options) {
		o.ShutdownTimeout = 10 * time.Millisecond // it stops before the test has ended, while calls go on
		o.Functions = append(o.Functions, forebay.Task{Name: "last", Description: "lasts", Run: func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return forebay.TaskResult{}, ctx.Err()
		}})
	}
}

// submitIn submits jobs to a session, and returns their ids.
func submitIn(t *testing.T, c *client.Client, task, session string, many int) (ids []string) {
	t.Helper()
	for range many {
		req := forebay.SubmitRequest{Task: task, Input: json.RawMessage(`{}`)}
		if session != "" {
			req.SessionID = &session
		}
		job, _, err := c.Submit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	return ids
}

// eventually returns once something holds.
func eventually(t *testing.T, holds func() bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !holds() {
		if sleep.For(ctx, 20*time.Millisecond) != nil {
			t.Fatal("it does not come to be that " + what)
		}
	}
}

// awaitRunning returns once the job runs.
func awaitRunning(t *testing.T, c *client.Client, id string) {
	t.Helper()
	eventually(t, func() bool {
		job, err := c.Get(t.Context(), id)
		return err == nil && job.Status == forebay.StatusRunning
	}, "the job runs")
}

// Sessions of jobs are listed with what holds them up, of one's own tenant, or of all.
func TestJobSessionPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, lasts(t), parses)
		key := s.key(t, forebay.ScopeAdmin)
		c, admin := s.client(t, key), s.visit(t, key)
		admin.get("/sessions/jobs").is(http.StatusOK).has("No session has jobs to run")
		const id = "order <b>7</b>"
		ids := submitIn(t, c, "last", id, 3)
		awaitRunning(t, c, ids[0])
		theirs := s.client(t, s.keyOf(t, "rival", forebay.ScopeSubmit, forebay.ScopeRead))
		other := submitIn(t, theirs, "last", "theirs", 2)

		admin.get("/sessions/jobs").is(http.StatusOK).has("order &lt;b&gt;7", ids[0], other[0], "2 sessions on this page", "rival", "forebay jobs sessions --all-tenants", "/v1/job-sessions").lacks("<b>7</b>")
		admin.get("/sessions/jobs?tenant=rival").is(http.StatusOK).has("theirs", "1 session on this page").lacks(ids[0])
		admin.get("/sessions/jobs?session_id=theirs").is(http.StatusOK).has(other[0]).lacks(ids[0])
		admin.get("/sessions/jobs?queue=none").is(http.StatusUnprocessableEntity).has("there is no queue none")
		admin.get("/sessions/jobs?cursor=x").is(http.StatusUnprocessableEntity)
		admin.get("/sessions").is(http.StatusOK).has("/ui/sessions/jobs")

		// The page of a job that waits leads to its session, and that to its jobs.
		admin.get("/jobs/"+ids[1]).is(http.StatusOK).has("Another job of its session goes first", "/ui/sessions/jobs?session_id=order&#43;%3Cb%3E7%3C%2Fb%3E&amp;queue=default")
		admin.get("/jobs?session_id=order+%3Cb%3E7%3C%2Fb%3E").is(http.StatusOK).has(ids[0], ids[1], ids[2])

		reader := s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead))
		reader.get("/sessions/jobs").is(http.StatusOK).has("theirs", other[0]).lacks("order", ids[0])
		reader.get("/sessions/jobs?tenant=acme").is(http.StatusForbidden)

		var listed []forebay.JobSession
		for one, err := range c.JobSessions(t.Context(), forebay.JobSessionFilter{AllTenants: true, Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, one)
		}
		if len(listed) != 2 {
			t.Fatalf("%d sessions over pages of one", len(listed))
		}
		mine := listed[0]
		if mine.Tenant != "acme" {
			mine = listed[1]
		}
		if mine.SessionID != id || mine.Queue != "default" || mine.Waiting != 2 || mine.Running != 1 || mine.First == nil || mine.First.JobID != ids[0] || mine.First.Status != forebay.StatusRunning {
			t.Errorf("%+v, %+v", mine, mine.First)
		}
		for _, err := range theirs.JobSessions(t.Context(), forebay.JobSessionFilter{AllTenants: true}) {
			if forebay.CodeOf(err) != forebay.CodeForbidden {
				t.Errorf("a tenant lists the sessions of all: %v", err)
			}
		}
		page := s.signIn(t, browser, key)
		page.Go(s.url + "/ui/jobs/" + ids[1])
		page.WaitText("Why it waits")
		page.Submit(`.needs a`)
		page.WaitText("Sessions of jobs")
		page.WaitText(ids[0])
	})
}

// Each cause leads to what can be changed about it, for those who may open that page.
func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, lasts(t))
		key := s.key(t, forebay.ScopeAdmin)
		c, admin := s.client(t, key), s.visit(t, key)
		tenant := s.visit(t, s.keyOf(t, "acme", forebay.ScopeRead))
		deployments := must[[]forebay.Deployment](t)(c.Deployments(t.Context()))
		var chat string
		for _, d := range deployments {
			if len(d.Models) > 0 {
				chat = d.Name
				must[forebay.Deployment](t)(c.PauseDeployment(t.Context(), d.Name))
			}
		}
		paused, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "summarize", Input: json.RawMessage(`"a text"`)})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			job, err := c.Get(t.Context(), paused.ID)
			return err == nil && job.WaitingFor != nil && *job.WaitingFor == forebay.WaitPaused && len(job.WaitingOn) > 0
		}, "the job waits for the deployment")
		admin.get("/jobs/"+paused.ID).is(http.StatusOK).has("Why it waits", "The deployment "+chat+" is paused", "/ui/deployments/"+chat+"#state")
		tenant.get("/jobs/"+paused.ID).is(http.StatusOK).has("The deployment "+chat+" is paused", "An operator of the server can change that").lacks("/ui/deployments/")

		if err := c.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		admin.get("/jobs/"+paused.ID).is(http.StatusOK).has("Its queue is paused", "/ui/queues/default#pause").lacks("Its tenant is paused")
		if _, err := c.PauseTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		admin.get("/jobs/"+paused.ID).is(http.StatusOK).has("Its queue is paused", "Its tenant is paused", "/ui/tenants/acme#pause")
		if err := c.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		admin.get("/jobs/" + paused.ID).is(http.StatusOK).has("Its tenant is paused").lacks("Its queue is paused")
		if _, err := c.ResumeTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}

		// The tenant's concurrency, its budget, and a schedule.
		must[forebay.Tenant](t)(c.SetConcurrency(t.Context(), "acme", 1))
		first, second := submitIn(t, c, "last", "", 1)[0], ""
		awaitRunning(t, c, first)
		second = submitIn(t, c, "last", "", 1)[0]
		eventually(t, func() bool {
			job, err := c.Get(t.Context(), second)
			return err == nil && len(job.WaitingOn) == 1 && job.WaitingOn[0].Kind == forebay.CauseTenant && job.WaitingOn[0].Reason == forebay.WaitConcurrency
		}, "the job waits for the tenant's concurrency")
		admin.get("/jobs/"+second).is(http.StatusOK).has("as many calls under way", "/ui/tenants/acme#concurrency").lacks("/ui/deployments")
		later := time.Now().Add(time.Hour)
		scheduled, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "last", Input: json.RawMessage(`{}`), ScheduledAt: &later})
		if err != nil {
			t.Fatal(err)
		}
		admin.get("/jobs/"+scheduled.ID).is(http.StatusOK).has("Its time has not come", "It may start at")
	})
}
