package jobs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// AttemptRecord is how a call ended, as its row keeps it.
type AttemptRecord struct {
	Deployment   string
	Outcome      forebay.Outcome
	ErrorClass   forebay.ErrorClass // "": no error
	ErrorCode    string
	ErrorMessage []byte
	Usage        forebay.TokenUsage
	Cost         forebay.Money
	RetryDelay   time.Duration // before the next attempt, when one follows
	Uncharged    bool          // by Retry: the failure is blamed on the deployment
	Unmeasured   bool          // the call was cut off: its use is known only if Usage or Cost say so

	assumed int64 // tokens that count as used, because the use is unknown
}

// Failure is why a job was dead-lettered or expired.
type Failure = record.Failure

// Output is a job's result: the bytes, or the blob that holds them.
type Output struct {
	Inline []byte
	Blob   string
	Size   int64
	Reply  []byte // the bytes that are in the blob, if the job answers a message and they fit into one
}

// Succeed records the attempt and the result and ends the job. Like all settlements it returns
// forebay.ErrLockLost, and changes nothing, if the lock no longer holds the message.
func (s *Store) Succeed(ctx context.Context, d *LockedJob, a AttemptRecord, out Output) error {
	return s.finish(ctx, d, a, ending{status: forebay.StatusSucceeded, out: out}, forebay.EventSucceeded)
}

// Fail records the failed attempt and ends the job as failed. Nobody can redrive it.
func (s *Store) Fail(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	why := Failure{Class: a.ErrorClass, Code: a.ErrorCode, Message: a.ErrorMessage}
	return s.finish(ctx, d, a, ending{status: forebay.StatusFailed, failure: why}, forebay.EventFailed)
}

// finish records the attempt, deletes the message and ends the job.
func (s *Store) finish(ctx context.Context, d *LockedJob, a AttemptRecord, e ending, kind forebay.EventType) error {
	o := d.ends(settling(d, (*LockedJob).prefetchRelease))
	o.Size = len(e.out.Inline) + d.answerSize(e.out)
	e.seq, e.task, e.generation, e.attempt, e.version, e.number = d.Seq, d.Task, d.Generation, d.Attempt+1, d.Version+1, d.Number
	e.started, e.session, e.correlation = d.StartedAt.UnixMilli(), d.session(), d.CorrelationID
	e.asker = d.asker()
	return s.settled(ctx, d, &a, o, func(t *Tx) error {
		if err := t.release(d); err != nil {
			return err
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		return t.end(e, kind)
	})
}

// Retry records the failed attempt and moves the message to its queue's retry subqueue for the
// delay a.RetryDelay. It charges the attempt unless a.Uncharged. The delivery count starts anew,
// because it counts deliveries without an outcome.
func (s *Store) Retry(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	return s.settle(ctx, d, a, func(t *Tx) error {
		m, err := t.locked(d)
		if err != nil {
			return err
		}
		subqueue := queue.SubqueueOf(d.Subqueue.Queue(), queue.SubqueueRetry)
		visible, charged := t.Now+a.RetryDelay.Milliseconds(), int64(1)
		if a.Uncharged {
			charged = 0
		}
		if err := t.Prep(record.SQLRetry).Int(int64(subqueue)).Int(visible).Int(charged).Blob(record.LastError(a.ErrorCode, a.ErrorMessage)).Int(d.Seq).Int(d.Token).Exec(); err != nil {
			return err
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		t.dueAgain(m, subqueue, visible)
		if err := t.event(event{seq: d.Seq, tenant: d.Tenant, queue: d.Subqueue.Queue(), number: d.Version + 1, kind: forebay.EventAttemptFailed, status: forebay.StatusRunning,
			generation: d.Generation, attempt: d.Number, class: a.ErrorClass, code: a.ErrorCode}); err != nil {
			return err
		}
		return t.event(event{seq: d.Seq, tenant: d.Tenant, queue: d.Subqueue.Queue(), number: d.Version + 2, kind: forebay.EventRetryScheduled, status: forebay.StatusRetrying,
			generation: d.Generation, attempt: d.Number, delay: max(1, a.RetryDelay.Milliseconds())})
	})
}

// Throttle records a call that the provider turned away and puts the message back into its
// subqueue for the delay a.RetryDelay. It charges neither an attempt nor a delivery.
func (s *Store) Throttle(ctx context.Context, d *LockedJob, a AttemptRecord, waiting forebay.WaitReason) error {
	return s.settle(ctx, d, a, func(t *Tx) error { return t.throttle(d, a, waiting) })
}

func (t *Tx) throttle(d *LockedJob, a AttemptRecord, waiting forebay.WaitReason) error {
	m, err := t.locked(d)
	if err != nil {
		return err
	}
	visible := t.Now + a.RetryDelay.Milliseconds()
	if err := t.Prep(record.SQLThrottle).Int(visible).TextOrNull(string(waiting)).Blob(record.LastError(a.ErrorCode, a.ErrorMessage)).Int(d.Seq).Int(d.Token).Exec(); err != nil {
		return err
	}
	if err := t.attempt(d.attempted(), a); err != nil {
		return err
	}
	t.dueAgain(m, d.Subqueue, visible)
	return t.event(event{seq: d.Seq, tenant: d.Tenant, queue: d.Subqueue.Queue(), number: d.Version + 1, kind: forebay.EventThrottled, status: record.WaitingStatus(d.Subqueue),
		generation: d.Generation, attempt: d.Number, class: a.ErrorClass, code: a.ErrorCode, delay: max(1, a.RetryDelay.Milliseconds())})
}

// Release puts the message back into its subqueue as if it had not been delivered: nothing was
// called, or a stop interrupted the call. waiting may be "".
func (s *Store) Release(ctx context.Context, d *LockedJob, delay time.Duration, waiting forebay.WaitReason) error {
	return s.settle(ctx, d, AttemptRecord{}, func(t *Tx) error {
		m, err := t.locked(d)
		if err != nil {
			return err
		}
		visible := t.Now + delay.Milliseconds()
		t.dueAgain(m, d.Subqueue, visible)
		return t.Prep(record.SQLRelease).Int(visible).TextOrNull(string(waiting)).Int(d.Seq).Int(d.Token).Exec()
	})
}

// Interrupt is Release for a call that a stop cut off: its attempt is recorded, but not charged.
func (s *Store) Interrupt(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	return s.interrupt(ctx, d, a, 1)
}

// Lose is Interrupt for a call that was given up because its lock could not be renewed in time.
// The delivery counts.
func (s *Store) Lose(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	return s.interrupt(ctx, d, a, 0)
}

func (s *Store) interrupt(ctx context.Context, d *LockedJob, a AttemptRecord, uncounted int64) error {
	return s.settle(ctx, d, a, func(t *Tx) error {
		m, err := t.locked(d)
		if err != nil {
			return err
		}
		if err := t.Prep(record.SQLInterrupt).Int(t.Now).Int(uncounted).Int(d.Seq).Int(d.Token).Exec(); err != nil {
			return err
		}
		t.dueAgain(m, d.Subqueue, t.Now)
		return t.attempt(d.attempted(), a)
	})
}

// DeadLetter records the failed attempt, ends the job as failed and moves its message to the
// dead-letter or quarantine subqueue. There it waits for a redrive or a purge.
func (s *Store) DeadLetter(ctx context.Context, d *LockedJob, a AttemptRecord, to queue.SubqueueKind, reason string) error {
	return s.settleForGood(ctx, d, a, func(t *Tx) error { return t.fail(d, a, to, reason) })
}

// DeadLetterUnlessDenied is for a call that was turned away, perhaps because of the job itself.
// It is DeadLetter if the deployment takes calls now and took them when this call began.
// Otherwise it is Throttle with the attempt back.
func (s *Store) DeadLetterUnlessDenied(ctx context.Context, d *LockedJob, a, back AttemptRecord, to queue.SubqueueKind, reason string) (setAside bool, err error) {
	err = s.settleForGood(ctx, d, a, func(t *Tx) error {
		deployment, err := t.admission.Deployment(d.Admission.Deployment)
		if err != nil {
			return err
		}
		if setAside = deployment.Blames(d.Admission.Reservation); !setAside {
			return t.throttle(d, back, "")
		}
		return t.fail(d, a, to, reason)
	})
	return setAside, err
}

func (t *Tx) fail(d *LockedJob, a AttemptRecord, to queue.SubqueueKind, reason string) error {
	if _, err := t.locked(d); err != nil {
		return err
	}
	if err := t.attempt(d.attempted(), a); err != nil {
		return err
	}
	return t.deadLetter(deadLetter{
		session: d.session(), correlation: d.CorrelationID, asker: d.asker(),
		seq: d.Seq, task: d.Task, to: queue.SubqueueOf(d.Subqueue.Queue(), to), generation: d.Generation, attempt: d.Attempt + 1, number: d.Number, version: d.Version,
		started: d.StartedAt.UnixMilli(), failure: Failure{Class: a.ErrorClass, Code: a.ErrorCode, Message: a.ErrorMessage}, reason: reason,
	})
}

// Expire records the attempt that the job's deadline cut off and ends the job as expired.
func (s *Store) Expire(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	return s.settleForGood(ctx, d, a, func(t *Tx) error {
		m, err := t.locked(d)
		if err != nil {
			return err
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		return t.expire(ending{seq: d.Seq, task: d.Task, generation: d.Generation, attempt: d.Attempt, version: d.Version + 1, started: m.started,
			session: d.session(), correlation: d.CorrelationID, asker: d.asker()})
	})
}

// settle runs f on a delivery in a transaction, and does what every settlement does.
func (s *Store) settle(ctx context.Context, d *LockedJob, a AttemptRecord, f func(*Tx) error) error {
	return s.settled(ctx, d, &a, settling(d, (*LockedJob).prefetchLocked), f)
}

// settling describes the settlement of a delivery to the writer. It begins with the statement of
// first, and then reads what budgetTx.settle does.
func settling(d *LockedJob, first func(*LockedJob) driver.Prefetch) db.Op {
	o := db.Op{Stage: db.StageSettle, Local: true, Interleaves: true, Volatile: d.Volatile, Asks: func() []driver.Prefetch {
		if d.Held {
			return []driver.Prefetch{first(d), admission.PrefetchHolds(d.Seq, d.Token, queue.MessageRow(d.Seq))}
		}
		return []driver.Prefetch{first(d)}
	}}
	if d.Admission != nil {
		o.Hints = admission.DeploymentHint(d.Admission.Deployment)
	}
	return o
}

func (s *Store) settled(ctx context.Context, d *LockedJob, a *AttemptRecord, o db.Op, f func(*Tx) error) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (struct{}, error) {
		if d.Admission != nil { // whoever has the job now
			if err := t.admission.NoteOutcome(d.Admission); err != nil {
				return struct{}{}, err
			}
		}
		err := f(t)
		if err == nil && d.Held {
			err = t.budgets().settle(d, *a)
		}
		if err == nil {
			err = t.concurrency().release(d)
		}
		if err == nil {
			t.Changed(d.Seq)
		}
		return struct{}{}, err
	})
	if err == nil || errors.Is(err, forebay.ErrLockLost) { // its outcome is recorded only once
		d.Admission = nil
	}
	return err
}

// sqlReleaseMessage deletes the message if the lock still holds it.
var sqlReleaseMessage = driver.PrefetchForm(queue.SQLDeleteMessage+" AND lock_token = ?",
	"DELETE FROM messages m USING %s WHERE m.seq = ANY (ARRAY[x.p1]) AND m.lock_token = x.p2 RETURNING x.p1, x.p2")

// prefetchLocked is what locked asks.
func (d *LockedJob) prefetchLocked() driver.Prefetch {
	return driver.NewPrefetch(sqlLocked, queue.MessageRow(d.Seq)).Int(d.Seq).Int(d.Token)
}

// prefetchRelease is what release asks.
func (d *LockedJob) prefetchRelease() driver.Prefetch {
	return driver.NewPrefetch(sqlReleaseMessage, queue.MessageRow(d.Seq)).Int(d.Seq).Int(d.Token).Changing()
}

// release deletes the message if the lock still holds it.
func (t *Tx) release(d *LockedJob) error {
	return t.Prep(sqlReleaseMessage).Int(d.Seq).Int(d.Token).Fenced()
}

const sqlLocked = "SELECT flow, deadline, started_at FROM messages WHERE seq = ? AND lock_token = ?"

// lockedMessage is what a settlement has to know of the message that it holds.
type lockedMessage struct{ flow, deadline, started int64 }

// locked returns the message of a delivery, or forebay.ErrLockLost if its lock does not hold that
// any more.
func (t *Tx) locked(d *LockedJob) (m lockedMessage, err error) {
	found, err := t.Prep(sqlLocked).Int(d.Seq).Int(d.Token).One(func(r driver.Row) { m = lockedMessage{r.Int(0), r.Int(1), r.Int(2)} })
	if err == nil && !found {
		err = forebay.ErrLockLost
	}
	return m, err
}

// dueAgain is due for a message that is free again. Its deadline may have passed while it was
// locked.
func (t *Tx) dueAgain(m lockedMessage, subqueue queue.Subqueue, visible int64) {
	t.Due(subqueue, m.flow, visible)
	t.deadlineAt(m.deadline)
}

const sqlAttempt = `
INSERT INTO attempts (seq, generation, number, deployment, started_at, finished_at, outcome,
  error_class, error_code, error_message, input_tokens, output_tokens, cost, retry_delay, assumed_tokens)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (t *Tx) attempt(c attempted, a AttemptRecord) error {
	t.tally.CountAttempt(a.Outcome)
	finishedAt := max(c.startedAt, t.Now)
	t.countHour(c, finishedAt, a, 1)
	if a.Unmeasured {
		if t.unmeasured == nil {
			t.unmeasured = map[int64]counted{}
		}
		t.unmeasured[c.seq] = counted{c, finishedAt, a}
	}
	return t.Prep(sqlAttempt).Int(c.seq).Int(int64(c.generation)).Int(int64(c.number)).Text(Bounded(a.Deployment)).
		Int(c.startedAt).Int(finishedAt).Text(string(a.Outcome)).
		TextOrNull(string(a.ErrorClass)).TextOrNull(Bounded(a.ErrorCode)).Blob(a.ErrorMessage).
		Int(admission.Plausible(a.Usage.InputTokens, admission.MaxTokens)).Int(admission.Plausible(a.Usage.OutputTokens, admission.MaxTokens)).
		Int(admission.Plausible(int64(a.Cost), admission.MaxCost)).IntOrNull(a.RetryDelay.Milliseconds()).IntOrNull(a.assumed).Exec()
}

// Bounded cuts a short name, such as an error code, to the length of its column.
func Bounded(name string) string { return name[:min(len(name), maxCodeBytes)] }

const maxCodeBytes = 128

// event is a row of events.
type event struct {
	seq        int64
	tenant     int64
	queue      int64
	number     int64
	kind       forebay.EventType
	status     forebay.Status
	generation int
	attempt    int
	class      forebay.ErrorClass
	code       string
	delay      int64  // milliseconds before the next attempt
	result     []byte // of a job that has succeeded, if it is in the database
}

var sqlEvent = driver.Only(`
INSERT INTO events (seq, number, type, at, status, generation, attempt, error_class, error_code, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, driver.Rows{Table: "events", Of: "job", By: 1})

// firstStart is the number of the "started" event of a job's first attempt. It usually has no
// row, because it follows from the message or the outcome.
const firstStart = 2

func (t *Tx) event(e event) error {
	t.Changed(e.seq)
	if err := t.publish(e); err != nil {
		return err
	}
	return t.Prep(sqlEvent).Int(e.seq).Int(e.number).Text(string(e.kind)).Int(t.Now).Text(string(e.status)).
		Int(int64(e.generation)).Int(int64(e.attempt)).TextOrNull(string(e.class)).TextOrNull(Bounded(e.code)).IntOrNull(e.delay).Exec()
}

// ending is how a generation of a job ends.
type ending struct {
	seq         int64
	task        string
	status      forebay.Status
	generation  int
	attempt     int
	number      int   // of the attempt that ended it
	version     int64 // of the event that says so
	started     int64 // 0: never
	out         Output
	failure     Failure
	session     jobSession // to which it is known to belong; without one, its tenant and queue
	correlation string
	asker       events.Asker
	held        bool // it was not its turn in its session
	setAside    bool // its message is: another event says so
}

const sqlOutcome = `
INSERT INTO outcomes (seq, status, generation, attempt, version, started_at, completed_at,
  result, result_blob, result_size, error_class, error_code, error_message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// end records the outcome and its event. The primary key of outcomes is the last guard of one
// result per job: a second outcome for a generation cannot be inserted.
func (t *Tx) end(e ending, kind forebay.EventType) error {
	err := t.Prep(sqlOutcome).Int(e.seq).Text(string(e.status)).Int(int64(e.generation)).Int(int64(e.attempt)).Int(e.version).
		IntOrNull(e.started).Int(t.Now).Blob(e.out.Inline).TextOrNull(e.out.Blob).Int(e.out.Size).
		TextOrNull(string(e.failure.Class)).TextOrNull(Bounded(e.failure.Code)).Blob(e.failure.Message).Exec()
	t.Changed(e.seq)
	t.tally.Count(e.status)
	if err != nil {
		return err
	}
	if err := t.answer(&e, driver.BoolInt(e.setAside)); err != nil {
		return err
	}
	if e.session.id != "" {
		t.sessions().leaves(leaving{e.seq, e.session, e.held})
	}
	for _, f := range t.w.store.ended {
		if err := f(t.Tx, Ended{Seq: e.seq, Task: e.task, Status: e.status, Generation: e.generation, Failure: e.failure, CorrelationID: e.correlation, Result: e.out.Inline, Uncalled: !strings.HasPrefix(e.correlation, callerCorrelation)}); err != nil {
			return err
		}
	}
	ended := event{seq: e.seq, tenant: e.session.tenant, queue: e.session.queue, number: e.version, kind: kind, status: e.status, generation: e.generation,
		attempt: e.number, class: e.failure.Class, code: e.failure.Code, result: e.out.Inline}
	if e.status == forebay.StatusSucceeded { // the event has no row, because it follows from the outcome
		return t.publish(ended)
	}
	return t.event(ended)
}

// expire ends a job whose deadline has passed.
func (t *Tx) expire(e ending) error {
	if err := t.Prep(queue.SQLDeleteMessage).Int(e.seq).Exec(); err != nil {
		return err
	}
	e.status = forebay.StatusExpired
	e.failure = Failure{Class: forebay.ClassPermanent, Code: "deadline_exceeded", Message: []byte("the deadline passed before the job ended")}
	return t.end(e, forebay.EventExpired)
}

// deadLetter is a job that failed for good.
type deadLetter struct {
	seq         int64
	task        string
	to          queue.Subqueue
	generation  int
	attempt     int
	number      int
	version     int64
	started     int64
	failure     Failure
	reason      string
	session     jobSession
	correlation string // these as in ending
	asker       events.Asker
}

var sqlDeadLetter = driver.BatchForm(`
UPDATE messages SET subqueue = ?, visible_at = ?, lock_token = NULL, locked_at = NULL, version = ?, deadline = NULL, waiting = NULL,
  attempt = ?, reason = ? WHERE seq = ?`, `
UPDATE messages m SET subqueue = p1, visible_at = p2, lock_token = NULL, locked_at = NULL, version = p3, deadline = NULL, waiting = NULL,
  attempt = p4, reason = p5 FROM %s WHERE m.seq = ANY (ARRAY[p6])`)

func (t *Tx) deadLetter(s deadLetter) error {
	kind := forebay.EventDeadLettered
	if s.to.Kind() == queue.SubqueueQuarantine {
		kind = forebay.EventQuarantined
	}
	err := t.Prep(sqlDeadLetter).Int(int64(s.to)).Int(t.Now).Int(s.version + 2).Int(int64(s.attempt)).Text(Bounded(s.reason)).Int(s.seq).Exec()
	if err != nil {
		return err
	}
	err = t.end(ending{
		seq: s.seq, task: s.task, status: forebay.StatusFailed, generation: s.generation, attempt: s.attempt, number: s.number,
		version: s.version + 1, started: s.started, failure: s.failure, session: s.session, correlation: s.correlation,
		asker: s.asker, setAside: true,
	}, forebay.EventFailed)
	if err != nil {
		return err
	}
	return t.event(event{seq: s.seq, tenant: s.session.tenant, queue: s.session.queue, number: s.version + 2, kind: kind, status: forebay.StatusFailed, generation: s.generation,
		attempt: s.number, class: s.failure.Class, code: s.failure.Code})
}
