package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
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
func (s *Service) Configured() []*Queue {
	var list []*Queue
	for _, q := range s.queues {
		list = append(list, q)
	}
	return list
}

// Claim waits until at least one job of the lane is ready and returns up to limit of them,
// locked. Their inputs have at most maxBytes together, unless the first alone is larger.
func (s *Service) Claim(ctx context.Context, q *Queue, retryLane bool, limit int, maxBytes int64) ([]*Delivery, error) {
	kind := queue.SubqueueMain
	if retryLane {
		kind = queue.SubqueueRetry
	}
	rows, err := s.store.Claim(ctx, ClaimRequest{
		Subqueue: queue.SubqueueOf(q.no, kind), Max: limit, MaxBytes: maxBytes,
		Lock: q.LockDuration, MaxDeliveries: q.MaxDeliveryCount, FailureSubqueue: q.failureSubqueue(), Share: s.share, Plan: s.plan, Held: s.held(q),
	})
	if err != nil {
		return nil, err
	}
	received := time.Now()
	deliveries := make([]*Delivery, len(rows))
	for i := range rows {
		tenant, err := s.store.TenantName(context.WithoutCancel(ctx), rows[i].Tenant)
		if err != nil {
			return nil, errors.Join(err, s.releaseAll(ctx, rows))
		}
		deliveries[i] = &Delivery{LockedJob: rows[i], Tenant: tenant, Queue: q, Received: received}
	}
	return deliveries, nil
}

// releaseAll puts claimed jobs back that cannot be delivered.
func (s *Service) releaseAll(ctx context.Context, rows []LockedJob) (err error) {
	for i := range rows {
		err = errors.Join(err, s.store.Release(context.WithoutCancel(ctx), &rows[i], time.Second, ""))
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
func (s *Service) Renew(ctx context.Context, q *Queue, deliveries []*Delivery) ([]bool, error) {
	locks := make([]queue.Lock, len(deliveries))
	for i, d := range deliveries {
		locks[i] = d.Lock
	}
	return s.store.Renew(ctx, locks, q.LockDuration)
}

// Begin registers cancel as the way to abort this process's call for the delivery, until end is
// called. The key is the lock's token, because an older call of the same job may still be
// running.
func (s *Service) Begin(d *Delivery, cancel context.CancelCauseFunc) (end func()) {
	if _, early := s.running.LoadOrStore(d.Token, cancel); early {
		cancel(ErrCancelled)
	}
	return func() { s.running.Delete(d.Token) }
}

// abort ends the call whose lock a cancel voided. If the call has not begun yet, it leaves a note
// for Begin for a while. Perhaps no call ever begins.
func (s *Service) abort(token int64) {
	const keep = time.Minute
	if cancel, begun := s.running.LoadOrStore(token, context.CancelCauseFunc(func(error) {})); begun {
		cancel.(context.CancelCauseFunc)(ErrCancelled)
		return
	}
	time.AfterFunc(keep, func() { s.running.Delete(token) })
}

// abortRunning ends the call whose lock a cancel in another process voided, if it runs here.
func (s *Service) abortRunning(token int64) {
	if cancel, ok := s.running.Load(token); ok {
		cancel.(context.CancelCauseFunc)(ErrCancelled)
	}
}

// Task returns the task of that name, if this process knows it.
func (s *Service) Task(name string) (forebay.Task, bool) {
	task, ok := s.settings.Load().tasks[name]
	return task, ok
}

// Call loads what a task's function gets.
func (s *Service) Call(ctx context.Context, d *Delivery) (forebay.TaskCall, error) {
	input, err := s.payloads.Get(ctx, d.Input, d.InputBlob, d.InputSize)
	if err != nil {
		return forebay.TaskCall{}, err
	}
	call := forebay.TaskCall{
		JobID: d.ID, Task: d.Task, Tenant: d.Tenant, Queue: d.Queue.Name,
		CorrelationID: correlation(d.CorrelationID, d.ID), Traceparent: d.traceparent(),
		Generation: d.Generation, Number: d.Number, Input: input,
		Metadata: decodeMetadata(d.Metadata), EnqueuedAt: d.CreatedAt, ScheduledAt: d.ScheduledAt, LastError: text(d.LastError),
	}
	if d.MaxCost == nil && d.MaxTotalTokens == nil {
		return call, nil
	}
	spent, err := s.store.Spent(ctx, d.Seq)
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
func (s *Service) Finish(ctx context.Context, d *Delivery, res forebay.TaskResult, err error) (setAside string, settled error) {
	record := AttemptRecord{Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost}
	if err == nil {
		return s.succeed(ctx, d, record, res.Output)
	}
	failure := forebay.AsTaskError(err)
	if failure.Class == "" {
		failure.Class = forebay.ClassTransient
	}
	next := d.Queue.Retry.Next(s.failed(ctx, d), failure, rand.Float64)
	if next.Step == retry.Release {
		return "", s.release(ctx, d, next.Delay, next.Waiting)
	}
	record.ErrorClass, record.ErrorCode, record.Unmeasured = failure.Class, failure.Code, failure.Unmeasured
	record.ErrorMessage = []byte(failure.Message)
	record.ErrorMessage = record.ErrorMessage[:min(len(record.ErrorMessage), forebay.MaxErrorMessageBytes)]
	record.Outcome, record.RetryDelay = forebay.OutcomeRetried, next.Delay
	switch next.Step {
	case retry.SetAside:
		if d.Admission != nil && d.Admission.Outcome != nil && d.Admission.Outcome.Kind == quota.Denied {
			return s.denied(ctx, d, record, failure.Code)
		}
		return s.fail(ctx, d, record, next.Reason)
	case retry.Throttle:
		if failure.Class == forebay.ClassThrottled {
			record.Outcome = forebay.OutcomeThrottled
		}
		return "", d.settled(record, "", s.store.Throttle(ctx, &d.LockedJob, record, next.Waiting))
	}
	record.Uncharged = !next.Charged
	return "", d.settled(record, "", s.store.Retry(ctx, &d.LockedJob, record))
}

// failed is the delivery as the retry policy sees it when its call fails now.
func (s *Service) failed(ctx context.Context, d *Delivery) retry.Failed {
	f := retry.Failed{Number: d.Number, Charged: d.Attempt, MaxAttempts: d.MaxAttempts, Age: time.Since(d.Here(d.StartedAt))}
	if d.Admission != nil {
		r := d.Admission.Reservation
		f.Probe, f.Unwell, f.Mixed = r.Probe, r.Unwell, r.Mixed
	}
	if f.Failures = d.Number - 1; (f.Unwell || f.Probe) && d.Number >= retry.Excused*d.MaxAttempts { // their kinds matter only then
		_, f.Failures = s.comebacks(ctx, d)
	}
	return f
}

// comebacks returns how many earlier calls turned the job away, and how many failed. It returns
// none if they cannot be read: the job is then called once more.
func (s *Service) comebacks(ctx context.Context, d *Delivery) (denied, failed int) {
	denied, failed, err := s.store.Comebacks(ctx, d.Seq, d.Generation)
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
func (s *Service) denied(ctx context.Context, d *Delivery, record AttemptRecord, reason string) (setAside string, settled error) {
	back := record
	back.Outcome = forebay.OutcomeRetried
	before := d.Number - 1
	if before >= doubtfulDenials { // else it makes no difference what they were
		before, _ = s.comebacks(ctx, d)
	}
	switch is, perhaps := d.atFault(before); {
	case is:
		return s.fail(ctx, d, record, reason)
	case !perhaps:
		return "", d.settled(back, "", s.store.Throttle(ctx, &d.LockedJob, back, ""))
	}
	record.Outcome = forebay.OutcomeFailed
	failed, err := s.store.DeadLetterUnlessDenied(ctx, &d.LockedJob, record, back, d.Queue.failureSubqueue(), reason)
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

func (s *Service) fail(ctx context.Context, d *Delivery, record AttemptRecord, reason string) (setAside string, settled error) {
	record.Outcome = forebay.OutcomeFailed
	err := s.store.DeadLetter(ctx, &d.LockedJob, record, d.Queue.failureSubqueue(), reason)
	if d.settled(record, forebay.StatusFailed, err) != nil {
		return "", err
	}
	return reason, nil
}

func (s *Service) succeed(ctx context.Context, d *Delivery, record AttemptRecord, output json.RawMessage) (setAside string, settled error) {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if !jsoncheck.Valid(output) {
		record.ErrorClass, record.ErrorCode = forebay.ClassPermanent, "invalid_result"
		record.ErrorMessage = []byte("the task's function returned a result that is not JSON")
		return s.fail(ctx, d, record, "invalid_result")
	}
	if !utf8.Valid(output) { // the check lets it pass, but no client could read it
		output = json.RawMessage(text(output))
	}
	inline, key, err := s.payloads.PutOnce(ctx, &d.upload, d.LockedJob.Tenant, d.ID, "result", output)
	if err != nil {
		return "", err
	}
	record.Outcome = forebay.OutcomeSucceeded
	err = s.store.Succeed(ctx, &d.LockedJob, record, Output{Inline: inline, Blob: key, Size: int64(len(output))})
	if key != "" && errors.Is(err, forebay.ErrLockLost) {
		s.payloads.RemoveUnrecorded(ctx, d.ID, key) // an earlier attempt may have recorded it, though it reported a failure
	}
	return "", d.settled(record, forebay.StatusSucceeded, err)
}

// Return puts a delivery back untouched: nothing was called.
func (s *Service) Return(ctx context.Context, d *Delivery, delay time.Duration, why forebay.WaitReason) error {
	return s.release(ctx, d, delay, why)
}

// Interrupted puts a delivery back whose call a stop cut off. It is recorded, but charged neither
// as an attempt nor as a delivery.
func (s *Service) Interrupted(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	record := AttemptRecord{
		Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Outcome: forebay.OutcomeLost,
		ErrorClass: forebay.ClassTransient, ErrorCode: "interrupted", ErrorMessage: []byte("the server stopped before the call ended"),
		Unmeasured: res.Deployment != "",
	}
	return d.settled(record, "", s.store.Interrupt(ctx, &d.LockedJob, record))
}

// Expired ends a job whose call its deadline cut off.
func (s *Service) Expired(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	record := AttemptRecord{
		Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Outcome: forebay.OutcomeFailed,
		ErrorClass: forebay.ClassPermanent, ErrorCode: "deadline_exceeded", ErrorMessage: []byte("the deadline passed during the call"),
		Unmeasured: res.Deployment != "",
	}
	return d.settled(record, forebay.StatusExpired, s.store.Expire(ctx, &d.LockedJob, record))
}

// NoteUsed is for a call that is over and whose lock was lost. It adds what the call has used to
// its attempt, which ended without its worker.
func (s *Service) NoteUsed(ctx context.Context, d *Delivery, res forebay.TaskResult) error {
	if d.Admission != nil {
		if err := s.store.Admission.RecordOutcome(ctx, *d.Admission); err != nil {
			return err
		}
		d.Admission = nil // so that a retry of what follows does not record it again
	}
	used := AttemptRecord{Deployment: res.Deployment, Usage: res.Usage, Cost: res.Cost, Unmeasured: res.Deployment != ""}
	if res.Deployment == "" && d.SessionID == "" && !d.Held {
		return d.settled(used, "", nil)
	}
	return d.settled(used, "", s.store.Amend(ctx, &d.LockedJob, used))
}
