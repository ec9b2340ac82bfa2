package server

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/raced"
)

// job is what a client is told of a job.
func (s *Server) job(t *testing.T, id string) forebay.Job {
	t.Helper()
	job, err := s.jobs.Get(t.Context(), forebay.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// checkForecast compares what is said of jobs while they wait with when they start.
func checkForecast(t *testing.T, s *Server, ids []string, every int, waiting forebay.WaitReason) {
	t.Helper()
	type said struct {
		id       string
		at       time.Time
		expected time.Time
	}
	var all []said
	last := int64(0)
	for i := every; i < len(ids); i += every {
		job := s.job(t, ids[i])
		if job.Status != forebay.StatusQueued {
			continue
		}
		if job.QueuePosition == nil || job.ExpectedStartAt == nil || *job.QueuePosition <= last {
			t.Fatalf("job %d: %+v after position %d", i, job, last)
		}
		got := forebay.WaitReason("")
		if job.WaitingFor != nil {
			got = *job.WaitingFor
		}
		if got != waiting {
			t.Errorf("job %d waits for %q, want %q", i, got, waiting)
		}
		last = *job.QueuePosition
		all = append(all, said{job.ID, time.Now(), *job.ExpectedStartAt})
	}
	if len(all) < 3 {
		t.Fatalf("only %d of them wait", len(all))
	}
	s.await(t, ids, time.Hour)
	for _, a := range all {
		took, expected := s.job(t, a.id).StartedAt.Sub(a.at), a.expected.Sub(a.at)
		if ratio := float64(took) / float64(expected); ratio < 0.5 || ratio > 2 {
			t.Errorf("%s was expected to start in %v and did in %v", a.id, expected, took)
		}
	}
}

// Where workers are what is scarce, the rate at which jobs have started lately tells.
func TestForecastByRate(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		ids := s.submitMany(t, 2000)
		after(8 * time.Second)
		checkForecast(t, s, ids, 400, "")
	})
}

// Where the quota is scarce, it tells; also when it has only just begun to be.
func TestForecastByQuota(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	for _, begun := range []time.Duration{3 * time.Second, 45 * time.Second} {
		o := twoSims(64)
		o.Deployments[0].RequestsPerMinute, o.Deployments[1].RequestsPerMinute = 600, 300
		t.Run(begun.String(), func(t *testing.T) {
			inBubble(t, o, func(t *testing.T, s *Server) {
				ids := s.submitMany(t, 1200) // 80 seconds of the quota
				after(begun)
				checkForecast(t, s, ids, 100, forebay.WaitQuota)
			})
		})
	}
}

// Behind more jobs than are counted position and start are estimates.
func TestForecastBehindMany(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	inBubble(t, twoSims(16), func(t *testing.T, s *Server) {
		const jobs = 10_000
		ids := s.submitMany(t, jobs)
		after(8 * time.Second)
		gone := s.job(t, ids[jobs/4]).QueuePosition
		for i := jobs / 2; i < jobs; i += jobs / 8 {
			job := s.job(t, ids[i])
			if job.QueuePosition == nil || job.QueuePositionAtLeast == nil || *job.QueuePositionAtLeast != 1001 || gone == nil {
				t.Fatalf("behind %d: %+v", i, job)
			}
			if want := *gone + int64(i-jobs/4); *job.QueuePosition < want*9/10 || *job.QueuePosition > want*11/10 {
				t.Errorf("behind %d it is in place %d", want, *job.QueuePosition)
			}
		}
		checkForecast(t, s, ids, jobs/4, "")
	})
}

// Behind its tenant's limit a job starts when so many of its calls are over.
func TestForecastBehindConcurrency(t *testing.T) {
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		two := 2
		if _, err := s.tenants.Set(t.Context(), forebay.DefaultTenant, forebay.TenantSettings{Concurrency: &two}, "me"); err != nil {
			t.Fatal(err)
		}
		ids := s.submitMany(t, 400)
		after(50 * time.Millisecond)
		if job := s.job(t, ids[200]); job.ExpectedStartAt != nil || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitConcurrency {
			t.Errorf("before any call has ended: %+v", job)
		}
		after(5 * time.Second)
		checkForecast(t, s, ids, 80, forebay.WaitConcurrency)
	})
}

// A retry starts when it is due and those before it have gone, by the rate of the retry lane.
func TestForecastOfRetries(t *testing.T) {
	o := twoSims(8)
	o.Queues["default"] = Queue{Concurrency: 8, Retry: Retry{Policy: "fixed", First: 20 * time.Second, Rate: 1}}
	inBubble(t, o, func(t *testing.T, s *Server) {
		s.broken(t, true, "east", "west")
		ids := s.submitMany(t, 8)
		after(2 * time.Second)
		s.broken(t, false, "east", "west")
		said := make([]time.Time, len(ids))
		var last time.Duration
		for i, id := range ids {
			job := s.job(t, id)
			if job.Status != forebay.StatusRetrying || job.ScheduledAt == nil || job.ExpectedStartAt == nil || job.ExpectedStartAt.Before(*job.ScheduledAt) || job.QueuePosition != nil {
				t.Fatalf("%d: %+v", i, job)
			}
			said[i] = *job.ExpectedStartAt
			last = max(last, said[i].Sub(*job.ScheduledAt))
		}
		if last < 6*time.Second {
			t.Errorf("the last of %d is expected %v after it is due, at one a second", len(ids), last)
		}
		s.await(t, ids, time.Hour)
		for i, id := range ids {
			attempts, err := s.jobs.Attempts(t.Context(), forebay.DefaultTenant, id)
			if err != nil || len(attempts) != 2 {
				t.Fatal(attempts, err)
			}
			if off := attempts[1].StartedAt.Sub(said[i]); off < -2*time.Second || off > 2*time.Second {
				t.Errorf("retry %d started %v after it was expected to", i, off)
			}
		}
	})
}

// While a retry budget is used up it tells how fast retries go.
func TestForecastByRetryBudget(t *testing.T) {
	o := twoSims(64)
	o.Deployments, o.Models = o.Deployments[:1], map[string]Model{ModelChat: InOrder("east"), ModelEmbedding: InOrder("east")}
	o.Queues["default"] = Queue{Concurrency: 64, Retry: Retry{Policy: "fixed", First: 5 * time.Second, Attempts: 50, Concurrency: 4}}
	inBubble(t, o, func(t *testing.T, s *Server) {
		queues := s.jobs.Worker().Configured()
		queue := queues[slices.IndexFunc(queues, func(q *jobs.Queue) bool { return q.Name == forebay.DefaultQueue })]
		used := 0.0
		queue.PaceRetries(func() float64 { return used })
		s.broken(t, true, "east")
		ids := s.submitMany(t, 8)
		after(time.Second)
		s.broken(t, false, "east")
		var waits [2]time.Duration
		for i, pace := range []float64{0, 0.5} {
			used = pace
			for _, id := range ids {
				if job := s.job(t, id); job.ExpectedStartAt != nil && job.ScheduledAt != nil {
					waits[i] = max(waits[i], job.ExpectedStartAt.Sub(*job.ScheduledAt))
				}
			}
		}
		if waits[0] > time.Second || waits[1] < 10*time.Second {
			t.Errorf("the last is expected %v after it is due, with the budget used up %v", waits[0], waits[1])
		}
	})
}

// What a budget has no room for starts when its period ends and those before it have gone; what it
// never has room for, never.
func TestForecastByBudget(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	o := twoSims(8)
	o.Deployments[0].RequestsPerMinute, o.Deployments[1].RequestsPerMinute = 60, 60
	inBubble(t, o, func(t *testing.T, s *Server) {
		limit := func(tokens int64) {
			t.Helper()
			if _, err := s.tenants.Set(t.Context(), forebay.DefaultTenant, forebay.TenantSettings{Budget: &forebay.Budget{DailyTokens: &tokens}}, "me"); err != nil {
				t.Fatal(err)
			}
		}
		submit := func(n int) (ids []string) {
			t.Helper()
			for range n {
				job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "chat",
					Input: json.RawMessage(`{"messages": [{"role": "user", "content": "say something"}], "max_tokens": 20}`)})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, job.ID)
			}
			return ids
		}
		limit(0)
		ids := submit(200)
		after(10 * time.Second)
		if job := s.job(t, ids[100]); job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBudget || job.ExpectedStartAt != nil {
			t.Fatalf("of a budget of nothing: %+v", job)
		}
		limit(1)
		after(10 * time.Second)
		if job := s.job(t, ids[100]); job.ExpectedStartAt != nil {
			t.Errorf("of a budget that has never room: %+v", job)
		}
		limit(1_000_000_000)
		s.await(t, ids, time.Hour)
		tenant, err := s.tenants.Get(t.Context(), forebay.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
		limit(tenant.Usage[0].Tokens) // used up today, and enough tomorrow
		turn := tenant.Usage[0].EndsAt
		ids = submit(180)
		after(time.Minute)
		expected := make([]time.Time, len(ids))
		for i, id := range ids {
			job := s.job(t, id)
			if job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBudget || job.ExpectedStartAt == nil || job.QueuePosition != nil {
				t.Fatalf("%d: %+v", i, job)
			}
			if expected[i] = *job.ExpectedStartAt; expected[i].Before(turn) || i >= 20 && !expected[i].After(expected[i-20]) {
				t.Errorf("%d of those that wait for %v is expected at %v", i, turn, expected[i])
			}
		}
		if last := expected[len(ids)-1].Sub(turn); last < 30*time.Second {
			t.Errorf("the last is expected %v after the budget's turn; the quota takes longer", last)
		}
		s.await(t, ids, 25*time.Hour)
		for i, id := range ids {
			if off := s.job(t, id).StartedAt.Sub(expected[i]); off < -30*time.Second || off > 30*time.Second {
				t.Errorf("%d started %v after it was expected to", i, off)
			}
		}
	})
}

// What is not known is not said, and what was counted to its end is.
func TestForecastIsHonest(t *testing.T) {
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		for _, name := range []string{"east", "west"} {
			if err := s.deployments.SetPaused(t.Context(), name, true, "me"); err != nil {
				t.Fatal(err)
			}
		}
		first := s.submitMany(t, 2100)
		job := s.job(t, first[0])
		if job.QueuePosition == nil || *job.QueuePosition != 1 || job.ExpectedStartAt != nil || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitPaused {
			t.Errorf("the first of paused deployments: %+v", job)
		}
		job = s.job(t, first[2050])
		if job.QueuePosition == nil || *job.QueuePosition != 2051 || job.QueuePositionAtLeast == nil || *job.QueuePositionAtLeast != 1001 || job.ExpectedStartAt != nil {
			t.Errorf("behind more than are counted: %+v", job)
		}
		urgent := 9
		req := forebay.SubmitRequest{Task: "chat", Input: []byte(`"x"`), Priority: &urgent}
		high, err := s.Submit(t.Context(), forebay.DefaultTenant, req)
		if err != nil {
			t.Fatal(err)
		}
		if job := s.job(t, high.ID); job.QueuePosition == nil || *job.QueuePosition != 1 {
			t.Errorf("of the highest priority: %+v", job)
		}
		if job := s.job(t, first[10]); job.QueuePosition == nil || *job.QueuePosition != 12 {
			t.Errorf("with one of a higher priority ahead: %+v", job)
		}
		page, err := s.jobs.List(t.Context(), forebay.DefaultTenant, forebay.JobFilter{Limit: 5})
		if err != nil || len(page.Items) != 5 {
			t.Fatal(page, err)
		}
		for _, job := range page.Items {
			if job.QueuePosition != nil || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitPaused {
				t.Errorf("in a list: %+v", job)
			}
		}
		s.broken(t, true, "east", "west")
		if err := s.deployments.SetPaused(t.Context(), "east", false, "me"); err != nil {
			t.Fatal(err)
		}
		after(15 * time.Second)
		if job := s.job(t, first[100]); job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBreaker {
			t.Errorf("of one that is broken and one that is paused: %+v", job)
		}
	})
}
