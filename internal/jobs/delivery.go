package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/retry"
)

// Delivery is a job that this process holds under a lock.
type Delivery struct {
	LockedJob
	Tenant   string
	Queue    *Queue
	Received time.Time // by this process's clock; LockedAt is the same by the database's

	observed ObservedCall   // nil: there is no observer
	upload   payload.Upload // of its result
}

// Here converts a time of the database's clock to this process's clock.
func (d *Delivery) Here(at time.Time) time.Time { return d.Received.Add(at.Sub(d.LockedAt)) }

// Why a call's context was cancelled.
var (
	ErrCancelled = errors.New("the job was cancelled")
	ErrLockLost  = errors.New("the lock was lost")
	ErrStopping  = errors.New("the server is stopping")
	ErrDeadline  = errors.New("the job's deadline passed")
)

// Configured returns the queues of this process. The dispatcher runs a main and a retry lane for
// each.
func (w *Worker) Configured() []*Queue {
	return slices.Collect(maps.Values(w.queues.byName))
}

// Claim waits until at least one job of the lane is ready and returns up to limit of them,
// locked. Their inputs have at most maxBytes together, unless the first alone is larger.
func (w *Worker) Claim(ctx context.Context, q *Queue, retryLane bool, limit int, maxBytes int64) ([]*Delivery, error) {
	kind := queue.SubqueueMain
	if retryLane {
		kind = queue.SubqueueRetry
	}
	rows, err := w.store.Claim(ctx, ClaimRequest{
		Subqueue: queue.SubqueueOf(q.no, kind), Max: limit, MaxBytes: maxBytes,
		Lock: q.LockDuration, MaxDeliveries: q.MaxDeliveryCount, FailureSubqueue: q.failureSubqueue(), NoDeadLetters: q.NoDeadLetters, Volatile: q.Own, Share: w.settings.share, Plan: w.settings.plan, Held: w.held(q), Spare: q.Spare,
	})
	if err != nil {
		return nil, err
	}
	received := time.Now()
	deliveries := make([]*Delivery, len(rows))
	for i := range rows {
		tenant, err := w.store.TenantName(context.WithoutCancel(ctx), rows[i].Tenant)
		if err != nil {
			return nil, errors.Join(err, w.releaseAll(ctx, rows))
		}
		deliveries[i] = &Delivery{LockedJob: rows[i], Tenant: tenant, Queue: q, Received: received}
	}
	return deliveries, nil
}

// releaseAll puts claimed jobs back that cannot be delivered.
func (w *Worker) releaseAll(ctx context.Context, rows []LockedJob) (err error) {
	for i := range rows {
		err = errors.Join(err, w.store.Release(context.WithoutCancel(ctx), &rows[i], time.Second, ""))
	}
	return err
}

func (q *Queue) failureSubqueue() queue.SubqueueKind {
	if q.OnFailure == forebay.Quarantine {
		return queue.SubqueueQuarantine
	}
	return queue.SubqueueDeadLetter
}

// Renew extends the locks of deliveries from one queue and reports for each whether it still held.
func (w *Worker) Renew(ctx context.Context, q *Queue, deliveries []*Delivery) ([]bool, error) {
	locks := make([]queue.Lock, len(deliveries))
	for i, d := range deliveries {
		locks[i] = d.Lock
	}
	return w.store.Renew(ctx, locks, q.LockDuration)
}

// Task returns the task of that name, if this process knows it.
func (w *Worker) Task(name string) (forebay.Task, bool) {
	task, ok := w.settings.Load().tasks[name]
	return task, ok
}

// Call loads what a task's function gets.
func (w *Worker) Call(ctx context.Context, d *Delivery) (forebay.TaskCall, error) {
	input, err := w.payloads.Get(ctx, d.Input, d.InputBlob, d.InputSize)
	if err != nil {
		return forebay.TaskCall{}, err
	}
	call := forebay.TaskCall{
		JobID: d.ID, Task: d.Task, Tenant: d.Tenant, Queue: d.Queue.Name,
		CorrelationID: request.Correlation(d.CorrelationID, d.ID), Traceparent: d.traceparent(),
		Generation: d.Generation, Number: d.Number, Input: input,
		Metadata: request.DecodeMetadata(d.Metadata), EnqueuedAt: d.CreatedAt, ScheduledAt: d.ScheduledAt, LastError: request.Text(d.LastError),
	}
	if d.MaxCost == nil && d.MaxTotalTokens == nil {
		return call, nil
	}
	spent, err := w.store.Spent(ctx, d.Seq)
	if err != nil {
		return forebay.TaskCall{}, err
	}
	if d.MaxCost != nil {
		left := *d.MaxCost - forebay.Money(spent.Cost)
		call.CostLeft = &left
	}
	if d.MaxTotalTokens != nil {
		left := *d.MaxTotalTokens - spent.Tokens
		call.TokensLeft = &left
	}
	return call, nil
}

// Finish settles a delivery by what its call returned. It records the result, schedules a retry,
// puts the message back if the provider throttled, or dead-letters the job. setAside is the
// reason why it dead-lettered or quarantined the job, if it did. It returns forebay.ErrLockLost,
// and records nothing, if the lock no longer held the message.
func (w *Worker) Finish(ctx context.Context, d *Delivery, res forebay.TaskResult, err error) (setAside string, settled error) {
	record := AttemptRecord{Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost}
	if err == nil {
		return w.succeed(ctx, d, record, res.Output)
	}
	failure := forebay.AsTaskError(err)
	if failure.Class == "" {
		failure.Class = forebay.ClassTransient
	}
	next := d.Queue.Retry.Next(w.failed(ctx, d), failure, rand.Float64)
	if next.Step == retry.Release {
		return "", w.Return(ctx, d, next.Delay, next.Waiting)
	}
	record.ErrorClass, record.ErrorCode, record.Unmeasured = failure.Class, failure.Code, failure.Unmeasured
	record.ErrorMessage = []byte(failure.Message)
	record.ErrorMessage = record.ErrorMessage[:min(len(record.ErrorMessage), forebay.MaxErrorMessageBytes)]
	record.Outcome, record.RetryDelay = forebay.OutcomeRetried, next.Delay
	switch next.Step {
	case retry.SetAside:
		if d.Admission != nil && d.Admission.Outcome != nil && d.Admission.Outcome.Kind == quota.Denied {
			return w.denied(ctx, d, record, failure.Code)
		}
		return w.fail(ctx, d, record, next.Reason)
	case retry.Throttle:
		if failure.Class == forebay.ClassThrottled {
			record.Outcome = forebay.OutcomeThrottled
		}
		return "", d.settled(record, "", w.store.Throttle(ctx, &d.LockedJob, record, next.Waiting))
	}
	record.Uncharged = !next.Charged
	return "", d.settled(record, "", w.store.Retry(ctx, &d.LockedJob, record))
}

// failed is the delivery as the retry policy sees it when its call fails now.
func (w *Worker) failed(ctx context.Context, d *Delivery) retry.Failed {
	f := retry.Failed{Number: d.Number, Charged: d.Attempt, MaxAttempts: d.MaxAttempts, Age: time.Since(d.Here(d.StartedAt))}
	if d.Admission != nil {
		r := d.Admission.Reservation
		f.Probe, f.Unwell, f.Mixed, f.Elsewhere = r.Probe, r.Unwell, r.Mixed, d.Admission.Elsewhere
	}
	if f.Failures = d.Number - 1; (f.Unwell || f.Probe) && d.Number >= retry.Excused*d.MaxAttempts { // their kinds matter only then
		_, f.Failures = w.comebacks(ctx, d)
	}
	return f
}

// comebacks returns how many earlier calls turned the job away, and how many failed. It returns
// none if they cannot be read: the job is then called once more.
func (w *Worker) comebacks(ctx context.Context, d *Delivery) (denied, failed int) {
	denied, failed, err := w.store.Comebacks(ctx, d.Seq, d.Generation)
	if err != nil {
		return 0, 0
	}
	return denied, failed
}

// A job that so many calls have turned away is held to be at fault itself. For certain denials,
// only a call that was no probe decides: then nobody had found the deployment to deny calls.
const (
	certainDenials  = 10
	doubtfulDenials = 3
)

// denied settles a delivery whose deployment turned the call away for its key, its account or its
// name. That is not the job's fault: the job goes back at once, for another deployment or until
// this one takes calls. A denial that may be the job's own fault is permanent, unless others were
// denied too or the deployment was failing.
func (w *Worker) denied(ctx context.Context, d *Delivery, record AttemptRecord, reason string) (setAside string, settled error) {
	back := record
	back.Outcome = forebay.OutcomeRetried
	before := d.Number - 1
	if before >= doubtfulDenials { // else it makes no difference what they were
		before, _ = w.comebacks(ctx, d)
	}
	switch is, perhaps := d.atFault(before); {
	case is:
		return w.fail(ctx, d, record, reason)
	case !perhaps || d.Queue.Own || d.Queue.NoDeadLetters:
		return "", d.settled(back, "", w.store.Throttle(ctx, &d.LockedJob, back, ""))
	}
	record.Outcome = forebay.OutcomeFailed
	failed, err := w.store.DeadLetterUnlessDenied(ctx, &d.LockedJob, record, back, d.Queue.failureSubqueue(), reason)
	if !failed {
		return "", d.settled(back, "", err)
	}
	if d.settled(record, forebay.StatusFailed, err) != nil {
		return "", err
	}
	return reason, nil
}

// atFault judges a job whose call was denied, like so many before. is: the job itself is at
// fault; perhaps: it may be.
func (d *Delivery) atFault(before int) (is, perhaps bool) {
	if d.Admission.Outcome.Certain {
		return !d.Admission.Reservation.Probe && before >= certainDenials, false
	}
	return before >= doubtfulDenials, true
}

func (w *Worker) fail(ctx context.Context, d *Delivery, record AttemptRecord, reason string) (setAside string, settled error) {
	record.Outcome = forebay.OutcomeFailed
	if d.Queue.Own || d.Queue.NoDeadLetters {
		return "", d.settled(record, forebay.StatusFailed, w.store.Fail(ctx, &d.LockedJob, record))
	}
	err := w.store.DeadLetter(ctx, &d.LockedJob, record, d.Queue.failureSubqueue(), reason)
	if d.settled(record, forebay.StatusFailed, err) != nil {
		return "", err
	}
	return reason, nil
}

func (w *Worker) succeed(ctx context.Context, d *Delivery, record AttemptRecord, output json.RawMessage) (setAside string, settled error) {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if !jsoncheck.Valid(output) {
		record.ErrorClass, record.ErrorCode = forebay.ClassPermanent, "invalid_result"
		record.ErrorMessage = []byte("the task's function returned a result that is not JSON")
		return w.fail(ctx, d, record, "invalid_result")
	}
	if !utf8.Valid(output) { // the check lets it pass, but no client could read it
		output = json.RawMessage(request.Text(output))
	}
	inline, key, err := w.payloads.PutOnce(ctx, &d.upload, d.LockedJob.Tenant, d.ID, "result", output)
	if err != nil {
		return "", err
	}
	record.Outcome = forebay.OutcomeSucceeded
	out := Output{Inline: inline, Blob: key, Size: int64(len(output))}
	if d.Reply != nil && key != "" && out.Size <= events.MaxReply(w.store.MaxReplyBytes.Load()) {
		out.Reply = output
	}
	err = w.store.Succeed(ctx, &d.LockedJob, record, out)
	if key != "" && errors.Is(err, forebay.ErrLockLost) {
		w.payloads.RemoveUnrecorded(ctx, d.ID, key) // an earlier attempt may have recorded it, though it reported a failure
	}
	return "", d.settled(record, forebay.StatusSucceeded, err)
}

// Return puts a delivery back untouched: nothing was called.
func (w *Worker) Return(ctx context.Context, d *Delivery, delay time.Duration, why forebay.WaitReason) error {
	err := w.store.Release(ctx, &d.LockedJob, delay, why)
	if err == nil && w.observer != nil {
		w.observer.Returned(d, why)
	}
	return err
}

// Interrupted puts a delivery back whose call a stop cut off. It is recorded, but charged neither
// as an attempt nor as a delivery.
func (w *Worker) Interrupted(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	record := lostCall(res, "interrupted", "the server stopped before the call ended")
	return d.settled(record, "", w.store.Interrupt(ctx, &d.LockedJob, record))
}

// LockLost is for a call that was cut off because its lock was lost, or could not be renewed in
// time. If nobody else has the job yet, the call is recorded and the job goes back at once. Else
// it returns forebay.ErrLockLost.
func (w *Worker) LockLost(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	record := lostCall(res, "lock_lost", "the worker could not renew its lock, and gave the call up")
	return d.settled(record, "", w.store.Lose(ctx, &d.LockedJob, record))
}

func lostCall(res forebay.TaskResult, code, message string) AttemptRecord {
	return AttemptRecord{
		Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Outcome: forebay.OutcomeLost,
		ErrorClass: forebay.ClassTransient, ErrorCode: code, ErrorMessage: []byte(message), Unmeasured: res.Deployment != "",
	}
}

// Expired ends a job whose call its deadline cut off.
func (w *Worker) Expired(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	record := AttemptRecord{
		Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Outcome: forebay.OutcomeFailed,
		ErrorClass: forebay.ClassPermanent, ErrorCode: "deadline_exceeded", ErrorMessage: []byte("the deadline passed during the call"),
		Unmeasured: res.Deployment != "",
	}
	return d.settled(record, forebay.StatusExpired, w.store.Expire(ctx, &d.LockedJob, record))
}

// NoteUsed is for a call that is over and whose lock was lost. It adds what the call has used to
// its attempt, which ended without its worker.
func (w *Worker) NoteUsed(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	if d.Admission != nil {
		if err := w.store.Admission.RecordOutcome(ctx, *d.Admission); err != nil {
			return err
		}
		d.Admission = nil // so that a retry of what follows does not record it again
	}
	used := AttemptRecord{Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Unmeasured: res.Deployment != ""}
	if res.Deployment == "" && d.SessionID == "" && !d.Held {
		return d.settled(used, "", nil)
	}
	return d.settled(used, "", w.store.Amend(ctx, &d.LockedJob, used))
}
