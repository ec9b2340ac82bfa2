package server

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

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
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		ids := s.submitMany(t, 2000)
		after(8 * time.Second)
		checkForecast(t, s, ids, 400, "")
	})
}

// Where the quota is scarce, it tells; also when it has only just begun to be.
func TestForecastByQuota(t *testing.T) {
	for _, begun := range []time.Duration{3 * time.Second, 45 * time.Second} {
		o := twoSims(64)
		o.Deployments[0].RequestsPerMinute, o.Deployments[1].RequestsPerMinute = 600, 300
		inBubble(t, o, func(t *testing.T, s *Server) {
			ids := s.submitMany(t, 2000)
			after(begun)
			checkForecast(t, s, ids, 400, forebay.WaitQuota)
		})
	}
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
		if job.QueuePosition != nil || job.QueuePositionAtLeast == nil || *job.QueuePositionAtLeast != 2001 || job.ExpectedStartAt != nil {
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
