package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
)

type sse struct {
	id, event, data string
}

// nextEvent reads one event, past comments and the retry hint.
func nextEvent(s *bufio.Scanner) (e sse, ok bool) {
	for s.Scan() {
		name, value, _ := strings.Cut(s.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data = value
		case "":
			if e.data != "" && s.Text() == "" {
				return e, true
			}
		}
	}
	return e, false
}

func (f *fixture) stream(path string, headers ...string) (*http.Response, *bufio.Scanner) {
	f.t.Helper()
	res, err := f.server.Client().Do(f.request("GET", path, nil, headers...))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { res.Body.Close() })
	return res, bufio.NewScanner(res.Body)
}

func TestEventStream(t *testing.T) {
	f := newFixture(t)
	job := f.submit(jobBody(`1`))
	res, events := f.stream(job.Links.Events)
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatalf("content type %q", ct)
	}
	if !events.Scan() || events.Text() != "retry: 2000" {
		t.Errorf("the stream begins with %q", events.Text())
	}
	// The first event arrives while the job still waits: nothing buffers.
	first, ok := nextEvent(events)
	if !ok || first.id != "1" || first.event != string(forebay.EventAccepted) {
		t.Fatalf("first event %+v", first)
	}
	f.settle(`"ok"`, nil)
	all := []sse{first}
	for {
		e, ok := nextEvent(events)
		if !ok {
			break
		}
		all = append(all, e)
	}
	for i, e := range all {
		var event forebay.Event
		if err := json.Unmarshal([]byte(e.data), &event); err != nil {
			t.Fatal(err)
		}
		if e.id != strconv.Itoa(i+1) || event.Number != int64(i+1) || string(event.Type) != e.event || event.JobID != job.ID {
			t.Errorf("event %d is %+v", i+1, e)
		}
	}
	last := all[len(all)-1]
	if last.event != string(forebay.EventSucceeded) {
		t.Errorf("the stream ended with %q", last.event)
	}

	_, events = f.stream(job.Links.Events, "Last-Event-ID", "1")
	if e, _ := nextEvent(events); e != all[1] {
		t.Errorf("resumed after 1 with %+v", e)
	}
	_, events = f.stream(job.Links.Events + "?after=" + strconv.Itoa(len(all)-1))
	if e, _ := nextEvent(events); e != last {
		t.Errorf("resumed with %+v, want %+v", e, last)
	}
	if res, _ = f.stream(job.Links.Events, "Last-Event-ID", last.id); res.StatusCode != http.StatusNoContent {
		t.Errorf("a reconnect after the end got status %d", res.StatusCode)
	}
	wantProblem(t, f.do("GET", "/v1/jobs/job_00000000000000000000000000/events", ""), http.StatusNotFound, forebay.CodeNotFound)
}

func TestShutdownEndsStreams(t *testing.T) {
	f := newFixture(t)
	job := f.submit(jobBody(`1`))
	_, events := f.stream(job.Links.Events)
	if _, ok := nextEvent(events); !ok {
		t.Fatal("no event")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.server.Config.Shutdown(ctx); err != nil {
		t.Fatalf("shutdown with an open stream: %v", err)
	}
	if e, ok := nextEvent(events); ok {
		t.Errorf("got %+v after the shutdown", e)
	}
}

// quiet is a service with one job that never changes.
type quiet struct {
	*jobs.Service
	reads int
}

// anyCaller takes any key for one of the same tenant.
type anyCaller struct{ *keys.Service }

func (anyCaller) Authenticate(context.Context, string) (forebay.Caller, bool, error) {
	return forebay.Caller{Tenant: "t", Scopes: forebay.Scopes}, false, nil
}

func (anyCaller) Hold(ctx context.Context, _ forebay.Caller) (context.Context, func()) {
	return ctx, func() {}
}

func (*quiet) Watch(context.Context, string, string) (<-chan struct{}, func(), error) {
	return nil, func() {}, nil
}

func (q *quiet) Events(_ context.Context, _, _ string, after int64) ([]forebay.Event, bool, error) {
	if q.reads++; after > 0 {
		return nil, false, nil
	}
	return []forebay.Event{{Number: 1, Type: forebay.EventAccepted}}, false, nil
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &quiet{}
		a := api.New(api.Options{Jobs: service, Keys: anyCaller{}})
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		var done sync.WaitGroup
		done.Go(func() {
			a.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/v1/jobs/j/events", nil))
		})
		<-time.After(46 * time.Second)
		cancel()
		done.Wait()
		if n := strings.Count(w.Body.String(), ": heartbeat\n\n"); n != 3 {
			t.Errorf("%d heartbeats in 46 s: %q", n, w.Body)
		}
		if n := strings.Count(w.Body.String(), "id: 1\n"); n != 1 || !w.Flushed {
			t.Errorf("the event came %d times: %q", n, w.Body)
		}
	})
}

// failing is a service whose reads go wrong in ways that must not be seen.
type failing struct {
	*jobs.Service
	err error
}

func (f *failing) Get(context.Context, string, string) (forebay.Job, error) {
	if f.err == nil {
		panic("SELECT secret FROM /var/lib/x")
	}
	return forebay.Job{}, f.err
}

func (f *failing) AtOnce() int { return 128 }

func (f *failing) SubmitMany(_ context.Context, _ string, reqs []forebay.SubmitRequest) []forebay.SubmitResult {
	results := make([]forebay.SubmitResult, len(reqs))
	for i := range results {
		results[i].Error = forebay.Errorf(forebay.CodeInternal, "oops /var/lib/x").Caused(f.err)
	}
	return results
}

func TestInternalsStayInside(t *testing.T) {
	secret := errors.New("SELECT secret FROM /var/lib/x")
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   forebay.Code
		logs   int
	}{
		{"unknown error", secret, 500, forebay.CodeInternal, 1},
		{"panic", nil, 500, forebay.CodeInternal, 0}, // its value may be a part of the request
		{"internal", forebay.Errorf(forebay.CodeInternal, "at /var/lib/x").Caused(secret), 500, forebay.CodeInternal, 1},
		{"unavailable", forebay.Errorf(forebay.CodeUnavailable, "later").Caused(secret), 503, forebay.CodeUnavailable, 1},
		{"full", forebay.Errorf(forebay.CodeStorageFull, "the disk is full").Caused(secret), 507, forebay.CodeStorageFull, 1},
		{"timeout", context.DeadlineExceeded, 503, forebay.CodeUnavailable, 0},
		{"code without a status", &forebay.Error{Code: "new_code", Message: "SELECT /var/lib/x"}, 500, forebay.CodeInternal, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, func(o *api.Options) { o.Jobs = &failing{o.Jobs.(*jobs.Service), c.err} })
			r := f.do("GET", "/v1/jobs/x", "")
			p := wantProblem(t, r, c.status, c.code)
			if strings.Contains(string(r.body), "SELECT") || strings.Contains(string(r.body), "/var") {
				t.Errorf("leaked: %s", r.body)
			}
			log := f.logs.String()
			if n := strings.Count(log, "SELECT"); n < c.logs || strings.Count(log, `"level":"ERROR"`) != 1 {
				t.Errorf("logged the inner error %d times: %s", n, log)
			}
			if !strings.Contains(log, p.RequestID) {
				t.Error("the log lacks the request id")
			}
			if c.status == 503 && r.Header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
		})
	}
	t.Run("bulk", func(t *testing.T) {
		f := newFixture(t, func(o *api.Options) { o.Jobs = &failing{o.Jobs.(*jobs.Service), secret} })
		r := f.do("POST", "/v1/jobs/bulk", jobBody(`1`))
		if got := into[forebay.SubmitResult](t, r, http.StatusOK); got.Error == nil || got.Error.Code != forebay.CodeInternal {
			t.Errorf("got %s", r.body)
		}
		if strings.Contains(string(r.body), "/var") || !strings.Contains(f.logs.String(), "SELECT") {
			t.Errorf("answer %s, log %s", r.body, f.logs)
		}
	})
}

// Whoever sees that a job has succeeded sees its result, also if that happens between two looks at
// the database.
func TestSuccessIsSeenWithItsResult(t *testing.T) {
	f := newFixture(t)
	for range 40 {
		job := f.submit(jobBody(`1`))
		var settled sync.WaitGroup
		settled.Go(func() { f.settle(`"ok"`, nil) })
		for done := false; !done; {
			events, _, err := f.service.Events(t.Context(), job.Tenant, job.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Type == forebay.EventSucceeded {
					if done = true; string(e.Result) != `"ok"` {
						t.Fatalf("it has the result %q", e.Result)
					}
				}
			}
		}
		settled.Wait()
	}
}
