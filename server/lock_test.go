package server

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// A lock is renewed for as long as its call takes.
func TestCallLongerThanItsLockRunsOnce(t *testing.T) {
	const lock = 5 * time.Second
	var calls atomic.Int64
	o := twoSims(8)
	o.Queues["default"] = Queue{LockDuration: lock}
	o.Functions = []forebay.Task{{Name: "long", Run: func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
		calls.Add(1)
		select {
		case <-time.After(2*lock + lock/10):
			return forebay.TaskResult{Output: json.RawMessage("1")}, nil
		case <-ctx.Done():
			return forebay.TaskResult{}, ctx.Err()
		}
	}}}
	inBubble(t, o, func(t *testing.T, s *Server) {
		sent, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "long", Input: json.RawMessage("1")})
		if err != nil {
			t.Fatal(err)
		}
		s.await(t, []string{sent.ID}, time.Minute)
		job, attempts := s.job(t, sent.ID), s.attempts(t, sent.ID)
		if job.Status != forebay.StatusSucceeded || job.Attempt != 1 || len(attempts) != 1 || calls.Load() != 1 {
			t.Errorf("%s after %d calls and %d attempts", job.Status, calls.Load(), len(attempts))
		}
		if took := job.CompletedAt.Sub(*job.StartedAt); took < 2*lock {
			t.Errorf("the call took only %s", took)
		}
	})
}

// A job whose task this server does not know waits for a server that does.
func TestUnknownTaskWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		older := twoSims(8)
		older.Database = "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
		older.Queues["default"] = Queue{MaxDeliveryCount: 1}
		knows := older
		knows.Functions = []forebay.Task{{Name: "count", Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{Output: call.Input}, nil
		}}}
		s, err := New(knows)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "count", Input: json.RawMessage("1")})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}

		s, stop := runWorker(t, older)
		after(50 * time.Second) // it was delivered several times, once each 15 s
		if job := s.job(t, sent.ID); job.Status != forebay.StatusQueued || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitWorker {
			t.Errorf("it is %s and waits for %v", job.Status, job.WaitingFor)
		}
		stop()

		s, stop = runWorker(t, knows)
		defer stop()
		s.await(t, []string{sent.ID}, time.Minute)
		if job, attempts := s.job(t, sent.ID), s.attempts(t, sent.ID); job.Status != forebay.StatusSucceeded || job.Attempt != 1 || len(attempts) != 1 {
			t.Errorf("%s, charged %d, %d attempts", job.Status, job.Attempt, len(attempts))
		}
	})
}

func (s *Server) attempts(t *testing.T, id string) []forebay.Attempt {
	t.Helper()
	attempts, err := s.jobs.Attempts(t.Context(), forebay.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return attempts
}
