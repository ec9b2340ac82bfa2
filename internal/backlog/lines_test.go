package backlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/stores"
)

var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, o db.Options) (*stores.Stores, error) { return stores.Open(ctx, o) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// asker asks for the lines of a store.
type asker struct {
	*testing.T
	*stores.Stores
	queue   int64
	limits  quota.Limits
	places  int
	taken   int
	tasks   map[string]bool // that call no deployment
	waiting int
}

func newAsker(t *testing.T, s *stores.Stores) *asker {
	return &asker{T: t, Stores: s, queue: must(s.Queues.EnsureQueue(t.Context(), "default"))(t), places: 4, tasks: map[string]bool{}}
}

func (a *asker) submit(tenant, task string, priority, n int, at *time.Time) {
	a.Helper()
	no := must(a.Queues.EnsureTenant(a.Context(), tenant))(a)
	list := make([]jobs.NewJob, n)
	for i := range list {
		a.waiting++
		list[i] = jobs.NewJob{ID: fmt.Sprintf("job_%d", a.waiting), Tenant: no, Queue: a.queue, Task: task, Priority: priority, MaxAttempts: 3, Input: []byte(`1`), InputSize: 1, ScheduledAt: at, Class: 1}
	}
	must(a.Jobs.Submit(a.Context(), list))(a)
}

func (a *asker) lines(tenant string) forebay.Backlog {
	a.Helper()
	q := backlog.LinesQuery{
		Workers: func(string, bool) (int, int) { return a.places, a.taken },
		Plan: func(task string, _ int64, _ []byte, _ int64) []admission.Option {
			if a.tasks[task] {
				return nil
			}
			return []admission.Option{{Deployment: "west", Limits: a.limits, Request: quota.Request{PromptTokens: 1000, MaxOutputTokens: 10}}}
		},
		Retry: func(int64) (backlog.RetryLimits, bool) { return backlog.RetryLimits{Concurrency: 1}, true },
	}
	if tenant != "" {
		q.Tenant = must(a.Queues.EnsureTenant(a.Context(), tenant))(a)
	}
	return must(a.Backlog.Lines(a.Context(), &q))(a)
}

// finish carries a job out, in no time.
func (a *asker) finish() {
	a.Helper()
	locked := must(a.Jobs.Claim(a.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(a.queue, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute}))(a)
	if err := a.Jobs.Succeed(a.Context(), &locked[0], jobs.AttemptRecord{Deployment: "west", Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte(`2`), Size: 1}); err != nil {
		a.Fatal(err)
	}
}

// Lines are by priority, highest first, and count what is ready and what waits for a time. A
// tenant sees its own jobs alone.
func TestLinesCount(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		a := newAsker(t, s)
		later := s.DB.Now().Add(time.Hour)
		a.submit("acme", "chat", 5, 3, nil)
		a.submit("acme", "chat", 9, 1, nil)
		a.submit("acme", "chat", 5, 2, &later)
		a.submit("zeta", "chat", 5, 4, nil)
		for _, c := range []struct {
			tenant string
			want   string
		}{{"acme", "9:1+0 5:3+2 "}, {"zeta", "5:4+0 "}, {"", "9:1+0 5:7+2 "}, {"nobody", ""}} {
			got := ""
			for _, l := range a.lines(c.tenant).Lines {
				got += fmt.Sprintf("%d:%d+%d ", l.Priority, l.Waiting, l.Scheduled)
				if l.Queue != "default" || l.Lane != "main" || l.WaitingCapped || l.WaitingEstimate != l.Waiting || l.OldestReadyAt == nil {
					t.Errorf("a line is %+v", l)
				}
			}
			if got != c.want {
				t.Errorf("%q: %s, want %s", c.tenant, got, c.want)
			}
		}
	})
}

// Each line says which limit holds it back.
func TestLinesNameTheirLimit(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		a := newAsker(t, s)
		a.submit("acme", "chat", 5, 50, nil)
		want := func(kind forebay.LimitKind, object string) {
			t.Helper()
			if l := a.lines("acme").Lines[0].Limit; l.Kind != kind || l.Object != object || l.Detail == "" {
				t.Errorf("the limit is %+v, want %s of %q", l, kind, object)
			}
		}
		want(forebay.LimitNone, "")
		a.taken = 4
		want(forebay.LimitWorkers, "default")
		a.places = 0
		want(forebay.LimitWorkers, "default")
		a.places = 4
		a.limits = quota.Limits{Accounting: quota.AccountOpenAI, TokensPerMinute: 2000}
		want(forebay.LimitQuota, "west")
		act := audit.Act{Actor: "test", Action: "pause-deployment", Target: "west"}
		if err := s.Admission.PauseDeployment(t.Context(), "west", true, act); err != nil {
			t.Fatal(err)
		}
		want(forebay.LimitPaused, "west")
		if b := a.lines("acme"); b.ExpectedEndAt != nil || b.Lines[0].ExpectedEndAt != nil || b.Lines[0].Unknown == "" {
			t.Errorf("the end of what is paused: %+v", b)
		}
		if err := s.Queues.SetPaused(t.Context(), a.queue, true, act); err != nil {
			t.Fatal(err)
		}
		want(forebay.LimitPaused, "default")
	})
}

// The end follows from the quota and from the time that calls took. Where nothing tells, it is not
// given, and the reason is.
func TestLinesForeseeTheirEnd(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		a := newAsker(t, s)
		a.submit("acme", "chat", 5, 1, nil)
		a.submit("acme", "chat", 9, 20, nil)
		if b := a.lines("acme"); b.ExpectedEndAt != nil || b.Unknown == "" || b.Lines[0].Unknown == "" {
			t.Errorf("without a limit and without calls: %+v", b)
		}
		a.limits = quota.Limits{Accounting: quota.AccountOpenAI, TokensPerMinute: 1000} // one job a minute
		if l := a.lines("acme").Lines[0]; l.LastStartAt == nil || l.ExpectedEndAt != nil || l.Unknown == "" {
			t.Errorf("without a call that has ended: %+v", l)
		}
		a.finish()
		b := a.lines("acme")
		now := s.DB.Now()
		high, low := b.Lines[0], b.Lines[1]
		if high.ExpectedEndAt == nil || low.ExpectedEndAt == nil || b.ExpectedEndAt == nil {
			t.Fatalf("with a quota: %+v", b)
		}
		if in := high.ExpectedEndAt.Sub(now); in < 10*time.Minute || in > 30*time.Minute {
			t.Errorf("19 jobs at one a minute end in %s", in)
		}
		if low.ExpectedEndAt.Before(*high.ExpectedEndAt) || !b.ExpectedEndAt.Equal(*low.ExpectedEndAt) {
			t.Errorf("the last priority ends at %s, the first at %s, all at %s", low.ExpectedEndAt, high.ExpectedEndAt, b.ExpectedEndAt)
		}
		a.tasks["chat"], a.taken = true, 4
		if l := a.lines("acme").Lines[0]; l.ExpectedEndAt == nil || l.Limit.Kind != forebay.LimitWorkers {
			t.Errorf("a function whose calls take no time: %+v", l)
		}
	})
}
