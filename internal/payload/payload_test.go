package payload_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/stores"
)

// refusing is a service over a database that can be made to refuse rows.
type refusing struct {
	*jobs.Service
	worker   *jobs.Worker
	blobs    *blob.Store
	payloads *payload.Store
	file     string
}

func newRefusing(t *testing.T) refusing {
	t.Helper()
	file := filepath.Join(t.TempDir(), "forebay.db")
	st, err := stores.Open(t.Context(), db.Options{Path: file, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	return newRefusingOn(t, file, st)
}

func newRefusingOn(t *testing.T, file string, st *stores.Stores) refusing {
	t.Helper()
	blobs, err := blob.Open(t.Context(), filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(st.DB.Close(), blobs.Close()); err != nil {
			t.Error(err)
		}
	})
	payloads := st.Payloads(blobs)
	opts := jobs.Options{Store: st.Jobs, Payloads: payloads}
	opts.MaxInputBytes, opts.Tasks = 1<<20, map[string]forebay.Task{"work": {Name: "work"}}
	opts.Queues = []jobs.Queue{{Name: forebay.DefaultQueue, Concurrency: 8, LockDuration: time.Minute, MaxDeliveryCount: 3, OnFailure: forebay.DeadLetters,
		Retry: retry.Policy{Backoff: retry.Fixed, First: time.Minute, Max: time.Hour, Coefficient: 2, Attempts: 3}}}
	svc, err := jobs.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return refusing{svc, svc.Worker(), blobs, payloads, file}
}

// run runs SQL beside the service.
func (r refusing) run(t *testing.T, sql string) {
	t.Helper()
	c, err := sqlite.OpenConn(r.file, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetBlockOnBusy()
	if err := sqlitex.ExecuteScript(c, sql, nil); err != nil {
		t.Fatal(err)
	}
}

// keys are those of all blobs.
func (r refusing) keys(t *testing.T) (keys []string) {
	t.Helper()
	_, err := r.blobs.Sweep(t.Context(), time.Now().Add(time.Hour), func(some []string) (map[string]bool, error) {
		used := map[string]bool{}
		for _, key := range some {
			keys, used[key] = append(keys, key), true
		}
		return used, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func large(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size) + `"`) }

func (r refusing) claim(t *testing.T) *jobs.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := r.worker.Claim(ctx, r.worker.Configured()[0], false, 1, 1<<20)
	if err != nil || len(got) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(got), err)
	}
	return got[0]
}

// However often an outcome is tried to be recorded, its result is stored once, and it is what
// the job has in the end.
func TestRepeatedSettlementStoresItsResultOnce(t *testing.T) {
	s := newRefusing(t)
	job, _, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "work", Input: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	d := s.claim(t)
	s.run(t, "CREATE TRIGGER refuse BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'refused'); END")
	result := forebay.TaskResult{Output: large(200_000)}
	for range 10 {
		if _, err := s.worker.Finish(t.Context(), d, result, nil); err == nil {
			t.Fatal("the database took what it refuses")
		}
	}
	if keys := s.keys(t); len(keys) != 1 {
		t.Errorf("ten tries left %d blobs", len(keys))
	}
	s.run(t, "DROP TRIGGER refuse")
	for n := range 2 { // the second: as if the answer to the first had been lost
		if _, err := s.worker.Finish(t.Context(), d, result, nil); (n == 0) != (err == nil) {
			t.Fatal(err)
		}
	}
	r, size, err := s.Result(t.Context(), forebay.DefaultTenant, job.ID)
	if err != nil || size != int64(len(result.Output)) {
		t.Fatalf("a result of %d bytes: %v", size, err)
	}
	r.Close()
	if keys := s.keys(t); len(keys) != 1 {
		t.Errorf("%d blobs are left", len(keys))
	}
}

// A result that cannot be recorded for hours is swept meanwhile. It is there all the same when it
// is recorded.
func TestResultThatWaitsForTheDatabaseIsKept(t *testing.T) {
	s := newRefusing(t)
	var u payload.Upload
	result := large(200_000)
	put := func() string {
		t.Helper()
		_, key, err := s.payloads.PutOnce(t.Context(), &u, 1, "job_a", "result", result)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := put()
	if again := put(); again != first {
		t.Errorf("stored a second time as %s", again)
	}
	u.Age(payload.SweptAfter)
	unused := func([]string) (map[string]bool, error) { return nil, nil }
	if removed, err := s.blobs.Sweep(t.Context(), time.Now().Add(time.Hour), unused); err != nil || removed != 1 {
		t.Fatalf("%d blobs are swept: %v", removed, err)
	}
	kept, err := s.payloads.Get(t.Context(), nil, put(), int64(len(result)))
	if err != nil || string(kept) != string(result) {
		t.Errorf("%d bytes are left: %v", len(kept), err)
	}
}

// A result that comes too late is removed at once.
func TestResultOfALostLockIsRemoved(t *testing.T) {
	s := newRefusing(t)
	job, _, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "work", Input: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	d := s.claim(t)
	if _, err := s.Cancel(t.Context(), forebay.DefaultTenant, job.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.worker.Finish(t.Context(), d, forebay.TaskResult{Output: large(200_000)}, nil); !errors.Is(err, forebay.ErrLockLost) {
		t.Errorf("recorded after a cancel: %v", err)
	}
	if keys := s.keys(t); len(keys) != 0 {
		t.Errorf("%d blobs are left", len(keys))
	}
}

// The large input of a job that was not stored is removed soon, and that of one that was stays,
// whatever its client was told.
func TestInputsOfRefusedJobsAreRemoved(t *testing.T) {
	s := newRefusing(t)
	submit := func() (forebay.Job, error) {
		job, _, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "work", Input: large(100_000)})
		return job, err
	}
	job, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	stored := s.keys(t)
	s.payloads.Doubt(job.ID, stored[0])
	s.run(t, "CREATE TRIGGER refuse BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'refused'); END")
	for range 5 {
		if _, err := submit(); err == nil {
			t.Fatal("the database took what it refuses")
		}
	}
	if removed, err := s.payloads.RemoveDoubtful(t.Context(), time.Now()); err != nil || removed != 0 {
		t.Errorf("removed %d at once: %v", removed, err)
	}
	if removed, err := s.payloads.RemoveDoubtful(t.Context(), time.Now().Add(2*payload.DoubtfulAfter)); err != nil || removed != 5 {
		t.Errorf("removed %d, not 5: %v", removed, err)
	}
	if keys := s.keys(t); len(keys) != 1 || keys[0] != stored[0] || s.payloads.Doubtful() != 0 {
		t.Errorf("%d blobs are left, and %d in doubt", len(keys), s.payloads.Doubtful())
	}
}
