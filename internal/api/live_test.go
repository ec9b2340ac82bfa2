package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// claim hands jobs to a worker, which goes on to have them.
func (f *fixture) claim(n int) {
	f.t.Helper()
	list, err := f.service.Worker().Claim(f.t.Context(), f.service.Worker().Configured()[0], false, n, 1<<20)
	if err != nil || len(list) != n {
		f.t.Fatalf("%d deliveries: %v", len(list), err)
	}
}

// What is of all tenants, or of none, needs the scope view. What is one's own needs read.
func TestWhatHappensNeedsScopes(t *testing.T) {
	f := newFixture(t)
	read, view, submit := f.newKey("t", forebay.ScopeRead), f.newKey("t", forebay.ScopeView), f.newKey("t", forebay.ScopeSubmit)
	for _, c := range []struct {
		key, path string
		status    int
	}{
		{read, "/v1/processes", http.StatusForbidden}, {view, "/v1/processes", http.StatusOK},
		{submit, "/v1/calls", http.StatusForbidden}, {read, "/v1/calls", http.StatusOK},
		{read, "/v1/calls?all_tenants=true", http.StatusForbidden}, {view, "/v1/calls?all_tenants=true", http.StatusOK},
		{submit, "/v1/job-sessions", http.StatusForbidden}, {read, "/v1/job-sessions", http.StatusOK}, {read, "/v1/job-sessions?cursor=x", http.StatusUnprocessableEntity},
		{read, "/v1/job-sessions?all_tenants=true", http.StatusForbidden}, {view, "/v1/job-sessions?all_tenants=true", http.StatusOK}, {read, "/v1/job-sessions?queue=none", http.StatusUnprocessableEntity},
		{read, "/v1/backlog", http.StatusOK}, {read, "/v1/backlog?all_tenants=true", http.StatusForbidden}, {view, "/v1/backlog?all_tenants=true", http.StatusOK},
		{submit, "/v1/events", http.StatusForbidden}, {read, "/v1/events?all_tenants=true", http.StatusForbidden},
		{read, "/v1/events?kinds=deployment", http.StatusForbidden},
	} {
		f.key = c.key
		if r := f.do("GET", c.path, ""); r.StatusCode != c.status {
			t.Errorf("%s: %d, want %d: %s", c.path, r.StatusCode, c.status, r.body)
		}
	}
}

func TestFeedRefusesWhatMakesNoSense(t *testing.T) {
	f := newFixture(t)
	other := f.newKey("other", forebay.Scopes...)
	f.key = f.newKey("t", forebay.Scopes...)
	job := f.submit(jobBody(`1`))
	for query, field := range map[string]string{
		"types=born": "types", "status=happy": "status", "kinds=moon": "kinds", "sums=true&task=echo": "sums", "queue=a/b": "queue", "queue=none": "queue",
		"job=" + strings.Repeat("a,", 101): "job",
	} {
		if r := f.do("GET", "/v1/events?"+query, ""); r.StatusCode/100 != 4 || into[problem](t, r, r.StatusCode).Field != field {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.body)
		}
	}
	wantProblem(t, f.do("GET", "/v1/events?job=job_x", ""), http.StatusNotFound, forebay.CodeNotFound)
	f.key = other
	wantProblem(t, f.do("GET", "/v1/events?job="+job.ID, ""), http.StatusNotFound, forebay.CodeNotFound)
}

// The feed has the events of the caller's own jobs as they happen. It ends with the key.
func TestFeed(t *testing.T) {
	f := newFixture(t)
	other := f.newKey("other", forebay.Scopes...)
	key, err := f.keys.Create(t.Context(), "t", forebay.Scopes, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	f.key = key.Key
	res, events := f.stream("/v1/events?queue=default&types=accepted,succeeded")
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatalf("content type %q", ct)
	}
	f.key = other
	f.submit(jobBody(`1`))
	f.settle(`"ok"`, nil)
	f.key = key.Key
	job := f.submit(jobBody(`2`))
	f.settle(`"ok"`, nil)
	for _, want := range []forebay.EventType{forebay.EventAccepted, forebay.EventSucceeded} {
		e, ok := nextEvent(events)
		var got forebay.FeedJobEvent
		if !ok || json.Unmarshal([]byte(e.data), &got) != nil || e.event != "job" || got.Type != want || got.JobID != job.ID || got.Tenant != "t" ||
			got.Queue != forebay.DefaultQueue || got.Task != "echo" || got.CorrelationID != job.ID {
			t.Fatalf("want %s, got %+v", want, e)
		}
	}
	if _, err := f.keys.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if e, ok := nextEvent(events); ok {
		t.Errorf("after its key was revoked the stream goes on with %+v", e)
	}
}

// A stop of the server ends the feed. Sums come without any other event.
func TestFeedOfSumsEndsWithTheServer(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("t", forebay.Scopes...)
	_, events := f.stream("/v1/events?sums=true&all_tenants=true")
	f.submit(jobBody(`1`))
	for {
		e, ok := nextEvent(events)
		var sums forebay.FeedCounts
		if !ok || e.event != "sums" || json.Unmarshal([]byte(e.data), &sums) != nil || sums.Seconds <= 0 {
			t.Fatalf("%+v", e)
		}
		if len(sums.Counts) > 0 {
			if c := sums.Counts[0]; c != (forebay.FeedCount{Queue: forebay.DefaultQueue, Type: forebay.EventAccepted, Count: 1}) {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	f.api.Drain()
	for ok := true; ok; {
		_, ok = nextEvent(events)
	}
}

// A job that runs says where its call goes, and so do the lists of calls and attempts.
func TestRunningAttempt(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("t", forebay.Scopes...)
	job := f.submit(jobBody(`1`))
	if job.RunningAttempt != nil {
		t.Errorf("a job that waits has %+v", job.RunningAttempt)
	}
	f.submit(jobBody(`2`))
	f.claim(1)
	job = into[forebay.Job](t, f.do("GET", job.Links.Self, ""), http.StatusOK)
	if r := job.RunningAttempt; r == nil || r.Number != 1 || r.StartedAt.IsZero() {
		t.Errorf("a job that runs has %+v", r)
	}
	r := f.do("GET", job.Links.Attempts, "")
	attempts := into[forebay.Page[forebay.Attempt]](t, r, http.StatusOK).Items
	if len(attempts) != 1 || attempts[0].Outcome != forebay.OutcomeRunning || !attempts[0].FinishedAt.IsZero() || strings.Contains(string(r.body), "finished_at") {
		t.Errorf("its attempts are %s", r.body)
	}
	calls := into[forebay.RunningCalls](t, f.do("GET", "/v1/calls", ""), http.StatusOK)
	if calls.Total != 1 || calls.Items[0].JobID != job.ID || calls.Items[0].Process == "" {
		t.Errorf("calls: %+v", calls)
	}
	backlog := into[forebay.Backlog](t, f.do("GET", "/v1/backlog", ""), http.StatusOK)
	if len(backlog.Lines) != 1 || backlog.Lines[0].Waiting != 1 || backlog.Lines[0].Scheduled != 1 || backlog.Lines[0].Priority != 5 || backlog.Lines[0].Lane != "main" {
		t.Errorf("backlog: %+v", backlog)
	}
	f.key = f.newKey("other", forebay.ScopeView)
	if got := into[forebay.RunningCalls](t, f.do("GET", "/v1/calls", ""), http.StatusOK); got.Total != 0 {
		t.Errorf("another tenant has the calls %+v", got)
	}
	if got := into[forebay.RunningCalls](t, f.do("GET", "/v1/calls?all_tenants=true", ""), http.StatusOK); got.Total != 1 {
		t.Errorf("all tenants have the calls %+v", got)
	}
	if got := into[forebay.Backlog](t, f.do("GET", "/v1/backlog", ""), http.StatusOK); len(got.Lines) != 0 || got.ExpectedEndAt != nil || got.Unknown == "" {
		t.Errorf("another tenant has the backlog %+v", got)
	}
}
