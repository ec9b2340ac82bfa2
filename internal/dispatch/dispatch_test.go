package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/stores"
)

// serve runs a dispatcher over a store of its own inside the bubble, with one task, until the test
// ends or stop is called.
func serve(t *testing.T, queue jobs.Queue, run func(context.Context, forebay.TaskCall) (forebay.TaskResult, error), with ...func(*Dispatcher)) (svc *jobs.Service, stop func()) {
	t.Helper()
	dir := t.TempDir()
	st, err := stores.Open(context.Background(), db.Options{Path: filepath.Join(dir, "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(context.Background(), filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	queue.Name = forebay.DefaultQueue
	o := jobs.Options{Store: st.Jobs, Payloads: st.Payloads(blobs)}
	o.Queues, o.MaxInputBytes = []jobs.Queue{queue}, 1<<20
	o.Tasks = map[string]forebay.Task{"work": {Name: "work", Run: run}}
	svc, err = jobs.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{Worker: svc.Worker(), Logger: slog.New(slog.DiscardHandler), MemoryBytes: 1 << 20, ShutdownTimeout: 5 * time.Second})
	for _, f := range with {
		f(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		d.Run(ctx)
		close(done)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(st.DB.Close(), blobs.Close()); err != nil {
			t.Error(err)
		}
	})
	return svc, stop
}

func defaults() jobs.Queue {
	return jobs.Queue{
		Concurrency: 8, LockDuration: 10 * time.Second, MaxDeliveryCount: 3, OnFailure: forebay.DeadLetters,
		Retry: retry.Policy{Backoff: retry.Fixed, First: time.Minute, Max: time.Hour, Coefficient: 2, Attempts: 3, Concurrency: 2, Budget: 0.2},
	}
}

func submit(t *testing.T, svc *jobs.Service, change func(*forebay.SubmitRequest)) forebay.Job {
	t.Helper()
	req := forebay.SubmitRequest{Task: "work", Input: json.RawMessage(`"x"`)}
	if change != nil {
		change(&req)
	}
	job, _, err := svc.Submit(t.Context(), forebay.DefaultTenant, req)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func get(t *testing.T, svc *jobs.Service, id string) forebay.Job {
	t.Helper()
	job, err := svc.Get(t.Context(), forebay.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func attempts(t *testing.T, svc *jobs.Service, id string) []forebay.Attempt {
	t.Helper()
	list, err := svc.Attempts(t.Context(), forebay.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wait waits for that long in the bubble's time.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestCallOfManyLockDurationsRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			calls++
			select {
			case <-time.After(10 * time.Minute): // sixty locks
				return forebay.TaskResult{Output: json.RawMessage(`1`)}, nil
			case <-ctx.Done():
				return forebay.TaskResult{}, context.Cause(ctx)
			}
		})
		job := submit(t, svc, nil)
		wait(11 * time.Minute)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusSucceeded || calls != 1 {
			t.Fatalf("%s after %d calls", got.Status, calls)
		}
	})
}

// What tasks read besides their inputs counts in the memory of running jobs, until they end.
func TestTasksClaimMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, end := make(chan error, 3), make(chan struct{})
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			got <- memory.Grow(ctx, 1<<20) // as much as there is
			<-end
			return forebay.TaskResult{Output: json.RawMessage(`1`)}, nil
		})
		for _, want := range []error{nil, memory.ErrFull} {
			submit(t, svc, nil)
			if err := <-got; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		close(end)
		wait(time.Second)
		submit(t, svc, nil)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// While blob storage fails, calls go on only until too much waits for it: results wait in memory.
func TestLargeResultsThatWaitForStorageAreBounded(t *testing.T) {
	for waiting, want := range map[int64]int{0: 3, maxUnstored - forebay.InlineBytes: 1} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			queue := defaults()
			queue.Concurrency = 1
			svc, _ := serve(t, queue, func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
				calls++
				return forebay.TaskResult{Output: json.RawMessage(`"` + strings.Repeat("x", forebay.InlineBytes) + `"`)}, nil
			}, func(d *Dispatcher) { d.unstored.Store(waiting) })
			folders, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "blobs"))
			if err != nil || len(folders) != 1 || os.Remove(folders[0]) != nil {
				t.Fatal(folders, err)
			}
			for range 3 {
				submit(t, svc, nil)
			}
			wait(time.Minute)
			if calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
		})
	}
}

func TestFailuresRetryInTheRetryLaneAndThenDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		svc, _ := serve(t, defaults(), func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			at = append(at, time.Now())
			return forebay.TaskResult{Deployment: "east"}, &forebay.TaskError{Class: forebay.ClassTransient, Code: "server_error", Message: "boom"}
		})
		job := submit(t, svc, nil)
		wait(30 * time.Second)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusRetrying || got.Attempt != 1 || got.ScheduledAt == nil {
			t.Fatalf("after the first failure it is %+v", got)
		}
		wait(10 * time.Minute)
		got := get(t, svc, job.ID)
		if got.Status != forebay.StatusFailed || got.Attempt != 3 || len(at) != 3 {
			t.Fatalf("%s after %d calls", got.Status, len(at))
		}
		for i := 1; i < len(at); i++ {
			if delay := at[i].Sub(at[i-1]); delay < time.Minute || delay > time.Minute+time.Second {
				t.Errorf("retry %d came after %s", i, delay)
			}
		}
		page, err := svc.DeadLetters(t.Context(), forebay.DefaultTenant, forebay.DefaultQueue, forebay.DeadLetters, forebay.SetAsideFilter{}, 10, "")
		if err != nil || len(page.Items) != 1 || page.Items[0].Reason != "MaxAttemptsExceeded" {
			t.Fatalf("dead letters: %+v %v", page, err)
		}
	})
}

func TestThrottlingChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		svc, _ := serve(t, defaults(), func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			if calls++; calls <= 20 {
				return forebay.TaskResult{Deployment: "east"}, &forebay.TaskError{Class: forebay.ClassThrottled, Code: "rate_limited", RetryAfter: 10 * time.Second}
			}
			return forebay.TaskResult{}, nil
		})
		job := submit(t, svc, nil)
		wait(5 * time.Second)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusQueued || got.WaitingFor == nil || *got.WaitingFor != forebay.WaitQuota || got.Attempt != 0 {
			t.Fatalf("a throttled job is %+v", got)
		}
		wait(20 * 11 * time.Second)
		got := get(t, svc, job.ID)
		if got.Status != forebay.StatusSucceeded || got.Attempt != 1 || len(attempts(t, svc, job.ID)) != 21 {
			t.Fatalf("%s, attempt %d, %d rows", got.Status, got.Attempt, len(attempts(t, svc, job.ID)))
		}
	})
}

func TestDeadlineCutsTheCallOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			<-ctx.Done()
			return forebay.TaskResult{Deployment: "east"}, ctx.Err()
		})
		job := submit(t, svc, func(r *forebay.SubmitRequest) {
			at := time.Now().Add(time.Minute)
			r.Deadline = &at
		})
		wait(59 * time.Second)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusRunning {
			t.Fatalf("a second before its deadline it is %s", got.Status)
		}
		wait(2 * time.Second)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusExpired {
			t.Fatalf("after its deadline it is %s", got.Status)
		}
	})
}

func TestGracefulStopReturnsWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, stop := serve(t, defaults(), func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			length := 2 * time.Second
			if string(call.Input) == `"long"` {
				length = time.Hour
			}
			select {
			case <-time.After(length):
				return forebay.TaskResult{}, nil
			case <-ctx.Done():
				return forebay.TaskResult{}, ctx.Err()
			}
		})
		short := submit(t, svc, nil)
		long := submit(t, svc, func(r *forebay.SubmitRequest) { r.Input = json.RawMessage(`"long"`) })
		wait(time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the stop took %s; the grace period is 5 s", took)
		}
		if got := get(t, svc, short.ID); got.Status != forebay.StatusSucceeded {
			t.Errorf("a call that ended within the grace period left its job %s", got.Status)
		}
		got, rows := get(t, svc, long.ID), attempts(t, svc, long.ID)
		if got.Status != forebay.StatusQueued || got.Attempt != 0 || len(rows) != 1 || rows[0].Outcome != forebay.OutcomeLost {
			t.Errorf("a call that was cut off left its job %s, attempt %d: %+v", got.Status, got.Attempt, rows)
		}
	})
}

func TestCancelAbortsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return forebay.TaskResult{Deployment: "east", Usage: forebay.TokenUsage{InputTokens: 7}}, ctx.Err()
		})
		job := submit(t, svc, nil)
		wait(time.Second)
		if _, err := svc.Cancel(t.Context(), forebay.DefaultTenant, job.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(cause, jobs.ErrCancelled) {
			t.Fatalf("the call's context ended by %v", cause)
		}
		rows := attempts(t, svc, job.ID)
		if len(rows) != 1 || rows[0].Outcome != forebay.OutcomeCancelled || rows[0].Deployment != "east" || rows[0].Usage.InputTokens != 7 {
			t.Fatalf("attempts: %+v", rows)
		}
		if _, err := svc.Cancel(t.Context(), forebay.DefaultTenant, job.ID); err != nil {
			t.Errorf("cancelling again: %v", err)
		}
	})
}

// A call that succeeds although its job was cancelled has lost its lock by intent. Operators are
// not warned of that.
func TestCancelledCallThatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			<-ctx.Done()
			return forebay.TaskResult{}, nil
		}, func(d *Dispatcher) { d.log = slog.New(slog.NewTextHandler(&said, nil)) })
		job := submit(t, svc, nil)
		wait(time.Second)
		if _, err := svc.Cancel(t.Context(), forebay.DefaultTenant, job.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if rows := attempts(t, svc, job.ID); len(rows) != 1 || rows[0].Outcome != forebay.OutcomeCancelled {
			t.Errorf("attempts: %+v", rows)
		}
		if said.Len() != 0 {
			t.Errorf("it was logged: %s", &said)
		}
	})
}

func TestPanicIsAFailureOfTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		svc, _ := serve(t, defaults(), func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			if calls++; calls == 1 {
				panic("secret words")
			}
			return forebay.TaskResult{}, nil
		})
		job := submit(t, svc, nil)
		wait(2 * time.Minute)
		rows := attempts(t, svc, job.ID)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusSucceeded || len(rows) != 2 || *rows[0].ErrorCode != "panic" || *rows[0].ErrorMessage != "the task's function panicked" {
			t.Fatalf("%s %+v", got.Status, rows)
		}
	})
}

func TestPausedQueueStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		svc, _ := serve(t, defaults(), func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			calls++
			return forebay.TaskResult{}, nil
		})
		if err := svc.PauseQueue(t.Context(), forebay.DefaultQueue, "test"); err != nil {
			t.Fatal(err)
		}
		job := submit(t, svc, nil)
		wait(time.Hour)
		if got := get(t, svc, job.ID); calls != 0 || got.Status != forebay.StatusQueued || *got.WaitingFor != forebay.WaitPaused {
			t.Fatalf("%d calls, %+v", calls, got)
		}
		if err := svc.ResumeQueue(t.Context(), forebay.DefaultQueue, "test"); err != nil {
			t.Fatal(err)
		}
		wait(time.Millisecond)
		if got := get(t, svc, job.ID); got.Status != forebay.StatusSucceeded {
			t.Fatalf("after the resume it is %s", got.Status)
		}
	})
}

// A process that shares its database gives a call up whose lock it cannot renew in time. If the
// job is still its own once the database is back, what the call has used is recorded. The job
// goes back at once.
func TestCallThatIsGivenUpIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		giveUp := make(chan struct{})
		var d *Dispatcher
		svc, _ := serve(t, defaults(), func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
			if calls++; calls > 1 {
				return forebay.TaskResult{Deployment: "east"}, nil
			}
			close(giveUp)
			<-ctx.Done()
			return forebay.TaskResult{Deployment: "east", Usage: forebay.TokenUsage{InputTokens: 7}}, ctx.Err()
		}, func(made *Dispatcher) { d = made })
		job := submit(t, svc, nil)
		<-giveUp
		d.renewer.mu.Lock()
		for _, h := range d.renewer.held {
			h.cancel(jobs.ErrLockLost)
		}
		d.renewer.mu.Unlock()
		wait(time.Second)
		rows := attempts(t, svc, job.ID)
		if len(rows) != 2 || rows[0].Outcome != forebay.OutcomeLost || rows[0].Deployment != "east" || rows[0].Usage.InputTokens != 7 {
			t.Errorf("attempts: %+v", rows)
		}
		if got := get(t, svc, job.ID); got.Status != forebay.StatusSucceeded || got.Usage.InputTokens != 7 {
			t.Errorf("%s, with %d tokens", got.Status, got.Usage.InputTokens)
		}
	})
}

// Jobs that are refused for good before a call, such as for their own limits, do not pause a lane.
// Others come right behind them.
func TestRefusedJobsDoNotPauseALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, _ := serve(t, defaults(), func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if string(call.Input) == `"refused"` {
				return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassPermanent, Code: "cost_limit", Uncalled: true}
			}
			return forebay.TaskResult{}, nil
		})
		for range 10 * defaults().Concurrency {
			submit(t, svc, func(r *forebay.SubmitRequest) { r.Input = json.RawMessage(`"refused"`) })
		}
		other := submit(t, svc, nil)
		wait(time.Millisecond)
		if got := get(t, svc, other.ID); got.Status != forebay.StatusSucceeded {
			t.Errorf("behind refused jobs it is %s", got.Status)
		}
	})
}
