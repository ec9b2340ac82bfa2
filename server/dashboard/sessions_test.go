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
	"github.com/forebayhq/forebay/internal/dashboardtest"
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
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, lasts(t), dashboardtest.Parses)
		key := s.Key(t, forebay.ScopeAdmin)
		c, admin := s.Client(t, key), s.Visit(t, key)
		admin.Get("/sessions/jobs").Is(http.StatusOK).Has("No session has jobs to run")
		const id = "order <b>7</b>"
		ids := submitIn(t, c, "last", id, 3)
		awaitRunning(t, c, ids[0])
		theirs := s.Client(t, s.KeyOf(t, "rival", forebay.ScopeSubmit, forebay.ScopeRead))
		other := submitIn(t, theirs, "last", "theirs", 2)

		admin.Get("/sessions/jobs").Is(http.StatusOK).Has("order &lt;b&gt;7", ids[0], other[0], "2 sessions on this page", "rival", "forebay jobs sessions --all-tenants", "/v1/job-sessions").Lacks("<b>7</b>")
		admin.Get("/sessions/jobs?tenant=rival").Is(http.StatusOK).Has("theirs", "1 session on this page").Lacks(ids[0])
		admin.Get("/sessions/jobs?session_id=theirs").Is(http.StatusOK).Has(other[0]).Lacks(ids[0])
		admin.Get("/sessions/jobs?queue=none").Is(http.StatusUnprocessableEntity).Has("there is no queue none")
		admin.Get("/sessions/jobs?cursor=x").Is(http.StatusUnprocessableEntity)
		admin.Get("/sessions").Is(http.StatusOK).Has("/ui/sessions/jobs")

		// The page of a job that waits leads to its session, and that to its jobs.
		admin.Get("/jobs/"+ids[1]).Is(http.StatusOK).Has("Another job of its session goes first", "/ui/sessions/jobs?session_id=order&#43;%3Cb%3E7%3C%2Fb%3E&amp;queue=default")
		admin.Get("/jobs?session_id=order+%3Cb%3E7%3C%2Fb%3E").Is(http.StatusOK).Has(ids[0], ids[1], ids[2])

		reader := s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead))
		reader.Get("/sessions/jobs").Is(http.StatusOK).Has("theirs", other[0]).Lacks("order", ids[0])
		reader.Get("/sessions/jobs?tenant=acme").Is(http.StatusForbidden)

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
		page := s.SignIn(t, browser, key)
		page.Go(s.URL + "/ui/jobs/" + ids[1])
		page.WaitText("Why it waits")
		page.Submit(`.needs a`)
		page.WaitText("Sessions of jobs")
		page.WaitText(ids[0])
	})
}

// Each cause leads to what can be changed about it, for those who may open that page.
func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, lasts(t))
		key := s.Key(t, forebay.ScopeAdmin)
		c, admin := s.Client(t, key), s.Visit(t, key)
		tenant := s.Visit(t, s.KeyOf(t, "acme", forebay.ScopeRead))
		deployments := dashboardtest.Must[[]forebay.Deployment](t)(c.Deployments(t.Context()))
		var chat string
		for _, d := range deployments {
			if len(d.Models) > 0 {
				chat = d.Name
				dashboardtest.Must[forebay.Deployment](t)(c.PauseDeployment(t.Context(), d.Name))
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
		admin.Get("/jobs/"+paused.ID).Is(http.StatusOK).Has("Why it waits", "The deployment "+chat+" is paused", "/ui/deployments/"+chat+"#state")
		tenant.Get("/jobs/"+paused.ID).Is(http.StatusOK).Has("The deployment "+chat+" is paused", "An operator of the server can change that").Lacks("/ui/deployments/")

		if err := c.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		admin.Get("/jobs/"+paused.ID).Is(http.StatusOK).Has("Its queue is paused", "/ui/queues/default#pause").Lacks("Its tenant is paused")
		if _, err := c.PauseTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		admin.Get("/jobs/"+paused.ID).Is(http.StatusOK).Has("Its queue is paused", "Its tenant is paused", "/ui/tenants/acme#pause")
		if err := c.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		admin.Get("/jobs/" + paused.ID).Is(http.StatusOK).Has("Its tenant is paused").Lacks("Its queue is paused")
		if _, err := c.ResumeTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}

		// The tenant's concurrency, its budget, and a schedule.
		dashboardtest.Must[forebay.Tenant](t)(c.SetConcurrency(t.Context(), "acme", 1))
		first, second := submitIn(t, c, "last", "", 1)[0], ""
		awaitRunning(t, c, first)
		second = submitIn(t, c, "last", "", 1)[0]
		eventually(t, func() bool {
			job, err := c.Get(t.Context(), second)
			return err == nil && len(job.WaitingOn) == 1 && job.WaitingOn[0].Kind == forebay.CauseTenant && job.WaitingOn[0].Reason == forebay.WaitConcurrency
		}, "the job waits for the tenant's concurrency")
		admin.Get("/jobs/"+second).Is(http.StatusOK).Has("as many calls under way", "/ui/tenants/acme#concurrency").Lacks("/ui/deployments")
		later := time.Now().Add(time.Hour)
		scheduled, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "last", Input: json.RawMessage(`{}`), ScheduledAt: &later})
		if err != nil {
			t.Fatal(err)
		}
		admin.Get("/jobs/"+scheduled.ID).Is(http.StatusOK).Has("Its time has not come", "It may start at")
	})
}
