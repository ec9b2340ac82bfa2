package jobs

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/queue"
)

func TestDepths(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		testDepths(t, db.Options{Path: dbtest.SQLite(t), Serve: true})
	})
	t.Run("postgresql", func(t *testing.T) { testDepths(t, db.Options{URL: dbtest.Postgres(t), Serve: true}) })
}

func testDepths(t *testing.T, opts db.Options) {
	s, tenant, queueID := openWith(t, opts)
	if _, err := s.Queues.EnsureQueue(t.Context(), "idle"); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(24 * time.Hour)
	for n := range 16 {
		job := NewJob{ID: fmt.Sprintf("job_%d", n), Tenant: tenant, Queue: queueID, Task: "echo", Priority: n % 10, MaxAttempts: 5, Input: []byte("1"), InputSize: 1}
		if n >= 13 {
			job.ScheduledAt = &later
		}
		if made, err := s.Jobs.Submit(t.Context(), []NewJob{job}); err != nil || made[0].Err != nil {
			t.Fatal(err, made)
		}
	}
	claimed, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 6, MaxBytes: 1 << 20, Lock: forebay.MaxLockDuration, MaxDeliveries: 10})
	if err != nil || len(claimed) != 6 {
		t.Fatal(err, len(claimed))
	}
	failed := AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "x"}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.Jobs.DeadLetter(t.Context(), &claimed[0], failed, queue.SubqueueDeadLetter, "x"))
	ok(s.Jobs.DeadLetter(t.Context(), &claimed[1], failed, queue.SubqueueQuarantine, "x"))
	ok(s.Jobs.Retry(t.Context(), &claimed[2], AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: time.Hour}))
	ok(s.Jobs.Succeed(t.Context(), &claimed[3], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{}))

	got, err := s.Backlog.Depths(t.Context(), 100)
	ok(err)
	want := []backlog.Depth{
		{Queue: "default", Ready: 7, Scheduled: 4, Locked: 2, Retrying: 1, DeadLetter: 1, Quarantine: 1},
		{Queue: "idle"},
	}
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if age := got[0].OldestAge; age < 0 || age > time.Minute {
		t.Errorf("the oldest is %s old", age)
	}
	got[0].OldestAge = 0
	if got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
	limited, err := s.Backlog.Depths(t.Context(), 1)
	ok(err)
	if d := limited[0]; d.Ready > want[0].Ready || d.Ready < 1 || d.Scheduled > want[0].Scheduled || d.Locked > want[0].Locked {
		t.Errorf("counted to a limit of 1 each: %+v", d)
	}
}

// The commits that an observer hears of tell what became of all jobs, each once.
func TestOnCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tenant, queueID := open(t)
		var sum events.Tally
		var operations int
		s.DB.OnCommit(func(c db.Commit) { operations += c.Operations })
		s.Jobs.OnJobsChanged(func(c events.Tally) {
			sum.Succeeded, sum.Failed, sum.Cancelled = sum.Succeeded+c.Succeeded, sum.Failed+c.Failed, sum.Cancelled+c.Cancelled
			sum.Expired, sum.AttemptsLost, sum.AttemptsCancelled = sum.Expired+c.Expired, sum.AttemptsLost+c.AttemptsLost, sum.AttemptsCancelled+c.AttemptsCancelled
		})
		soon := time.Now().Add(time.Minute)
		for n := range 4 {
			job := NewJob{ID: fmt.Sprintf("job_%d", n), Tenant: tenant, Queue: queueID, Task: "echo", Priority: 9 - n, MaxAttempts: 5, Input: []byte("1"), InputSize: 1}
			if n == 3 {
				job.Deadline = &soon
			}
			if made, err := s.Jobs.Submit(t.Context(), []NewJob{job}); err != nil || made[0].Err != nil {
				t.Fatal(err, made)
			}
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 3, MaxBytes: 1 << 20, Lock: time.Second, MaxDeliveries: 10}
		claimed, err := s.Jobs.Claim(t.Context(), request)
		if err != nil || len(claimed) != 3 {
			t.Fatal(err, len(claimed))
		}
		if err := s.Jobs.Succeed(t.Context(), &claimed[0], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Jobs.Cancel(t.Context(), claimed[1].Seq); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second) // the lock of the third ends
		request.Max = 1
		if again, err := s.Jobs.Claim(t.Context(), request); err != nil || again[0].Seq != claimed[2].Seq {
			t.Fatal(err, again)
		} else if err := s.Jobs.DeadLetter(t.Context(), &again[0], AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "x"); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Minute) // the fourth was never claimed
		synctest.Wait()
		if want := (events.Tally{Succeeded: 1, Failed: 1, Cancelled: 1, Expired: 1, AttemptsLost: 1, AttemptsCancelled: 1}); sum != want {
			t.Errorf("%+v, want %+v", sum, want)
		}
		if operations != 4+3+2 {
			t.Errorf("%d operations", operations)
		}
	})
}

// BenchmarkDepths looks at a backlog of a million jobs.
func BenchmarkDepths(b *testing.B) {
	run := func(b *testing.B, opts db.Options, fill string) {
		s, tenant, queueID := openWith(b, opts)
		_, err := db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep(fill).Int(int64(queue.SubqueueOf(queueID, queue.SubqueueMain))).Int(t.Now - 1).Int(tenant).Exec()
		})
		if err != nil {
			b.Fatal(err)
		}
		for _, limit := range []int64{1000, 10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprint(limit), func(b *testing.B) {
				for b.Loop() {
					if got, err := s.Backlog.Depths(b.Context(), limit); err != nil || got[0].Ready != limit {
						b.Fatal(err, got)
					}
				}
			})
		}
		b.Run("Together", func(b *testing.B) {
			for b.Loop() {
				if d, err := s.Backlog.QueueDepth(b.Context(), queueID, maxTogether); err != nil || d.Ready != maxTogether || !d.Capped {
					b.Fatal(err, d)
				}
			}
		})
		b.Run("Counts", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Backlog.TenantDepth(b.Context(), queueID, tenant, entity.CountLimit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	const columns = "INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) SELECT n, ?1, 1024 * ?3 + 4, ?2, 1000, ?3 FROM "
	b.Run("sqlite", func(b *testing.B) {
		run(b, db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true},
			"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000000) "+columns+"s")
	})
	b.Run("postgresql", func(b *testing.B) {
		run(b, db.Options{URL: dbtest.Postgres(b), Serve: true}, columns+"generate_series(1, 1000000) AS n")
	})
}
