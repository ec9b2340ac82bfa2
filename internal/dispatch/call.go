package dispatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/turns"
)

// unknownTaskDelay is how long a job waits if no process here knows its task. A newer worker may
// know it.
const unknownTaskDelay = 15 * time.Second

// maxUnstored is how many bytes of large results may wait for blob storage while the next calls
// run. The calls of more keep their places, so that storage that fails does not fill the memory.
const maxUnstored = 64 << 20

// carryOut runs one delivery up to its settlement and returns how the call went, or errNotCalled,
// or errRefused.
// It always settles, unless the lock is lost. It calls called when the call is over: the next call
// need not wait until the outcome is on disk, unless too many do.
func (d *Dispatcher) carryOut(work context.Context, job *jobs.Delivery, called func()) error {
	task, known := d.worker.Task(job.Task)
	if !known {
		called()
		d.log.Warn("no such task here; the job waits for a worker that knows it", slog.String("task", job.Task), slog.String("job_id", job.ID))
		d.settle(work, work, job, forebay.TaskResult{}, func(ctx context.Context) error {
			return d.worker.Return(ctx, job, unknownTaskDelay, forebay.WaitWorker)
		})
		return errNotCalled
	}
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	if job.Deadline != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, job.Here(*job.Deadline), jobs.ErrDeadline)
		defer stop()
	}
	d.worker.Begin(job, cancel)
	defer d.worker.End(job)
	d.renewer.hold(job, cancel)
	defer d.renewer.release(job)
	ctx, over := d.worker.Observe(ctx, job)
	defer over()

	admitted, callOver := d.worker.Admit(ctx, job)
	result, err := d.call(admitted, task, job)
	callOver()
	job.Called(err)
	if large := int64(len(result.Output)); large <= forebay.InlineBytes {
		called()
	} else {
		if d.unstored.Add(large) <= maxUnstored {
			called()
		}
		defer d.unstored.Add(-large)
	}
	d.conclude(ctx, work, job, result, err)
	var failure *forebay.TaskError
	switch {
	case !errors.As(err, &failure) || !failure.Uncalled:
		return err
	case failure.Class == forebay.ClassThrottled: // it has gone back
		return errNotCalled
	}
	return errRefused
}

// call loads the input, within the memory limit, and runs the task.
func (d *Dispatcher) call(ctx context.Context, task forebay.Task, job *jobs.Delivery) (result forebay.TaskResult, err error) {
	claim := d.memory.Claim(job.Tenant)
	defer claim.Release()
	if job.InputBlob != "" {
		if err := claim.GrowPatiently(ctx, job.InputSize); err != nil {
			return result, err
		}
	}
	input, err := d.worker.Call(ctx, job)
	if err != nil {
		return result, inputError(err)
	}
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "a task panicked", slog.String("task", job.Task), slog.String("job_id", job.ID),
				slog.String("panic", panics.Describe(p)), slog.String("stack", string(debug.Stack())))
			err = &forebay.TaskError{Class: forebay.ClassTransient, Code: "panic", Message: "the task's function panicked", Unmeasured: true}
		}
	}()
	if d.deltas != nil {
		var over func()
		input.Written, over = d.deltas.Begin(&input)
		defer over()
	}
	return task.Run(memory.With(turns.With(ctx, job.Tenant), claim), input) // for payloads that the task reads besides
}

// conclude settles the delivery by the result of the call. If the call failed because its context
// ended, the cause of that decides.
func (d *Dispatcher) conclude(ctx, work context.Context, job *jobs.Delivery, result forebay.TaskResult, err error) {
	cause := context.Cause(ctx)
	if err == nil {
		cause = nil // the call has succeeded all the same
	}
	switch {
	case errors.Is(cause, jobs.ErrCancelled):
		d.settle(ctx, work, job, result, func(ctx context.Context) error { return d.worker.NoteUsed(ctx, job, result) })
	case errors.Is(cause, jobs.ErrLockLost):
		d.log.WarnContext(ctx, "lost the lock; the call was cancelled", which(job))
		d.settle(ctx, work, job, result, func(ctx context.Context) error { return d.worker.LockLost(ctx, job, result) })
	case errors.Is(cause, jobs.ErrStopping):
		d.settle(ctx, work, job, result, func(ctx context.Context) error { return d.worker.Interrupted(ctx, job, result) })
	case errors.Is(cause, jobs.ErrDeadline):
		d.settle(ctx, work, job, result, func(ctx context.Context) error { return d.worker.Expired(ctx, job, result) })
	default:
		d.logCall(ctx, job, result, err)
		call := ctx
		d.settle(ctx, work, job, result, func(ctx context.Context) error {
			failed, settled := d.worker.Finish(ctx, job, result, err)
			if failed != "" {
				code := failed // an invalid result comes without an error
				if err != nil {
					code = forebay.AsTaskError(err).Code
				}
				d.log.WarnContext(call, "a job failed for good and was dead-lettered or quarantined", which(job), slog.String("task", job.Task), slog.String("queue", job.Queue.Name),
					slog.String("tenant", job.Tenant), slog.String("deployment", result.Deployment), slog.String("reason", failed),
					slog.String("error_code", code))
			}
			return settled
		})
	}
}

// inputError returns the error of a job whose input cannot be loaded. It charges no attempt.
func inputError(err error) error {
	switch forebay.CodeOf(err) {
	case forebay.CodeNotFound, forebay.CodePayloadTooLarge:
		return &forebay.TaskError{Class: forebay.ClassPermanent, Code: "input_missing", Message: "the job's input is gone from storage", Err: err}
	}
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: "input_unavailable", Message: "the job's input cannot be read right now",
		Uncalled: true, Waiting: forebay.WaitWorker, RetryAfter: 5 * time.Second, Err: err}
}

func (d *Dispatcher) logCall(ctx context.Context, job *jobs.Delivery, result forebay.TaskResult, err error) {
	if !d.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	where := []any{which(job), slog.String("tenant", job.Tenant), slog.String("task", job.Task), slog.String("queue", job.Queue.Name),
		slog.String("deployment", result.Deployment)}
	if err == nil {
		d.log.DebugContext(ctx, "call succeeded", where...)
		return
	}
	failure := forebay.AsTaskError(err)
	d.log.DebugContext(ctx, "call failed", append(where, slog.String("error_class", string(failure.Class)), slog.String("error_code", failure.Code))...)
}

// which identifies the attempt in a log line.
func which(job *jobs.Delivery) slog.Attr {
	return slog.Group("", slog.String("job_id", job.ID), slog.String("correlation_id", cmp.Or(job.CorrelationID, job.ID)),
		slog.Int("generation", job.Generation), slog.Int("attempt", job.Number))
}

// longestSettleDelay is shorter than the time for which the store delays claims after a disk
// error.
const longestSettleDelay = 500 * time.Millisecond

// maxStrangeErrors bounds the retries of a settlement whose error does not look temporary.
const maxStrangeErrors = 5

// settle repeats a settlement until the store accepts it or the lock is lost. While the disk
// fails, no other process can take the job either. A stop or a permanent error ends the retries.
// Then the job comes back when its lock expires. call is the context of the call. If the job was
// cancelled, its lock is lost by intent.
func (d *Dispatcher) settle(call, work context.Context, job *jobs.Delivery, result forebay.TaskResult, f func(context.Context) error) {
	delay, strange := 100*time.Millisecond, 0
	for {
		err := f(d.settling)
		switch {
		case err == nil:
			return
		case errors.Is(err, forebay.ErrLockLost):
			if !errors.Is(context.Cause(call), jobs.ErrCancelled) {
				d.log.Warn("the lock was lost before the outcome could be recorded", which(job))
			}
			f = func(ctx context.Context) error { return d.worker.NoteUsed(ctx, job, result) }
			continue
		}
		d.log.Warn("cannot record the outcome of a call; trying again", which(job), slog.Any("error", err))
		if !mayPass(err) {
			strange++
		}
		if strange == maxStrangeErrors || sleep.For(work, delay) != nil {
			d.log.Error("the outcome of a call is not recorded; its lock will bring the job back", which(job))
			return
		}
		delay = min(2*delay, longestSettleDelay)
	}
}

// mayPass reports whether an error is temporary, such as a full disk or a busy database.
func mayPass(err error) bool {
	switch forebay.CodeOf(err) {
	case forebay.CodeUnavailable, forebay.CodeStorageFull:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) // from the blob storage
}
