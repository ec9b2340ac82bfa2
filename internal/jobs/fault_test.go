package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// put submits n plain jobs.
func put(t *testing.T, s *stores, tenant, queue int64, n int, change func(*NewJob)) {
	t.Helper()
	jobs := make([]NewJob, n)
	for i := range jobs {
		jobs[i] = NewJob{ID: fmt.Sprintf("job_%d_%d", time.Now().UnixNano(), i), Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 5,
			Input: []byte("1"), InputSize: 1}
		if change != nil {
			change(&jobs[i])
		}
	}
	results, err := s.Jobs.Submit(context.Background(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// take claims n jobs that are there.
func take(t *testing.T, s *stores, subqueue queue.Subqueue, n int, lock time.Duration) []LockedJob {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: n, MaxBytes: 1 << 20, Lock: lock, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
	if err != nil || len(got) != n {
		t.Fatalf("claimed %d, expected %d: %v", len(got), n, err)
	}
	return got
}

func TestReadsEndAfterClose(t *testing.T) {
	s, err := openStores(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Queues.QueueRows(t.Context()); forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Errorf("a read after Close gave %v", err)
	}
	if _, err := s.Queues.EnsureTenant(t.Context(), "x"); forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Errorf("a change after Close gave %v", err)
	}
}

func TestReleasesLeaveOneEvent(t *testing.T) {
	s, tenant, queueID := open(t)
	put(t, s, tenant, queueID, 1, nil)
	var d LockedJob
	for range 20 {
		d = take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 1, time.Minute)[0]
		if err := s.Jobs.Release(t.Context(), &d, 0, forebay.WaitWorker); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.Jobs.Events(t.Context(), d.Seq, 0, 100)
	if err != nil || len(events) != 2 || events[1].Type != forebay.EventStarted {
		t.Errorf("%v %+v", err, events)
	}
}

func TestOneServerAFileWhateverItsName(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "forebay.db"), filepath.Join(dir, "link.db")
	s, err := openStores(t.Context(), db.Options{Path: file, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if _, err := openStores(t.Context(), db.Options{Path: path, Serve: true}); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
			t.Errorf("a second server got %v", err)
		}
	}
	beside, err := openStores(t.Context(), db.Options{Path: link})
	if err != nil {
		t.Fatalf("administration beside the server: %v", err)
	}
	if err := beside.DB.Close(); err != nil {
		t.Error(err)
	}
}

func TestAbsurdUsageDoesNotBreakTheList(t *testing.T) {
	s, tenant, queueID := open(t)
	put(t, s, tenant, queueID, 1, nil)
	for _, kind := range []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry} {
		d := take(t, s, queue.SubqueueOf(queueID, kind), 1, time.Minute)
		record := AttemptRecord{Outcome: forebay.OutcomeRetried, Usage: forebay.TokenUsage{InputTokens: 1 << 62, OutputTokens: -5}, Cost: 1 << 62}
		if err := s.Jobs.Retry(t.Context(), &d[0], record); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Jobs.Jobs(t.Context(), JobQuery{Tenant: tenant, Limit: 10})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Usage.InputTokens != 2*admission.MaxTokens || page.Jobs[0].Usage.OutputTokens != 0 {
		t.Errorf("%v %+v", err, page.Jobs)
	}
}

// A message that cannot be claimed, for whatever reason, must not fail submissions to its
// subqueue. The claim gets the error.
func TestWhatIsDueCannotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tenant, queueID := open(t)
		put(t, s, tenant, queueID, 1, nil)
		subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
		d := take(t, s, subqueue, 1, time.Second)[0]
		// A row in the way of the lost attempt's, as only a damaged database could have it.
		if _, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
			return struct{}{}, t.attempt(attempted{seq: d.Seq, generation: d.Generation, number: d.Number, startedAt: 1}, AttemptRecord{Outcome: forebay.OutcomeLost})
		}); err != nil {
			t.Fatal(err)
		}
		claimed := make(chan error, 1)
		go func() {
			_, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: subqueue, Max: 1, MaxBytes: 1, Lock: time.Second, MaxDeliveries: 3})
			claimed <- err
		}()
		<-time.After(2 * time.Second)
		put(t, s, tenant, queueID, 3, nil)
		if err := <-claimed; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the claim ended with %v", err)
		}
	})
}

func TestCancelWhoseCallerLeaves(t *testing.T) {
	s, tenant, queue := open(t)
	const n = 100
	put(t, s, tenant, queue, n, nil)
	for seq := range int64(n) {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if _, err := s.Jobs.Cancel(ctx, seq+1); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
}

func TestFreeDeadlineIsNotHiddenByLockedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tenant, queueID := open(t)
		soon, later := time.Now().Add(time.Second), time.Now().Add(10*time.Second)
		put(t, s, tenant, queueID, 600, func(j *NewJob) { j.Deadline = &soon })
		take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 600, 5*time.Minute)
		put(t, s, tenant, queueID, 1, func(j *NewJob) { j.Deadline = &later; j.ID = "job_free" })
		<-time.After(11 * time.Second)
		synctest.Wait()
		job, err := s.Jobs.Job(t.Context(), tenant, "job_free")
		if err != nil || job.Status != forebay.StatusExpired {
			t.Errorf("after its deadline it is %s (%v)", job.Status, err)
		}
	})
}

func TestExceededDeliveriesKeepTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tenant, queueID := open(t)
		put(t, s, tenant, queueID, 1, func(j *NewJob) { j.ID = "job_a" })
		subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
		for range 3 {
			take(t, s, subqueue, 1, time.Second)
			<-time.After(2 * time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: subqueue, Max: 1, MaxBytes: 1, Lock: time.Second, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter}); err == nil {
			t.Fatalf("delivered a fourth time: %+v", got)
		}
		job, err := s.Jobs.Job(t.Context(), tenant, "job_a")
		if err != nil || job.Status != forebay.StatusFailed || job.Failure.Code != "MaxDeliveryCountExceeded" || job.StartedAt == nil {
			t.Errorf("%v %+v", err, job)
		}
	})
}

// Polling finds what no wake-up told of.
func TestMissedWakeUpIsFoundByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tenant, queueID := open(t)
		at := time.Now().Add(time.Hour)
		put(t, s, tenant, queueID, 1, func(j *NewJob) { j.ScheduledAt = &at })
		delivered := make(chan struct{})
		go func() {
			defer close(delivered)
			if _, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 3}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep("UPDATE messages SET visible_at = 1").Exec() // as if by another hand
		}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-delivered
		if took := time.Since(start); took > s.DB.Writer.Polling {
			t.Errorf("it was found after %s", took)
		}
	})
}
