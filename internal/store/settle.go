package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
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
	Uncharged    bool          // by Retry: the failure is laid to the deployment
	Unmeasured   bool          // the call was cut off: what it used is known only if Usage or Cost say so

	assumed int64 // tokens that count as used, for nobody knows
}

// Failure is why a job was set aside or expired.
type Failure struct {
	Class   forebay.ErrorClass
	Code    string
	Message []byte
}

// Output is a job's result: the bytes, or the blob that holds them.
type Output struct {
	Inline []byte
	Blob   string
	Size   int64
}

// Succeed records the attempt and the result and ends the job. Like all settlements it returns
// forebay.ErrLockLost, and changes nothing, when the lock no longer holds the message.
func (s *JobStore) Succeed(ctx context.Context, d *Delivery, a AttemptRecord, out Output) error {
	o := settling(d)
	o.size, o.asks, o.touches = len(out.Inline), d.askRelease(), rowName{}
	return s.settled(ctx, d, a, o, func(t *jobsTx) error {
		if err := t.release(d); err != nil {
			return err
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		return t.end(ending{
			seq: d.Seq, status: forebay.StatusSucceeded, generation: d.Generation, attempt: d.Attempt + 1, version: d.Version + 1,
			started: d.StartedAt.UnixMilli(), out: out, number: d.Number, alone: d.SessionID == "", uncalled: !mayBeCalled(d.CorrelationID),
		}, forebay.EventSucceeded)
	})
}

const sqlRetry = `
UPDATE messages SET lane = ?, visible = ?, token = NULL, locked_at = NULL, attempt = attempt + ?, version = version + 2,
  waiting = 'schedule', last_error = ?, deliveries = 0 WHERE seq = ? AND token = ?`

// Retry records the failed attempt, charges it unless a.Uncharged, and moves the message to its queue's retry subqueue for the delay
// a.RetryDelay. The delivery count starts anew: it counts deliveries without an outcome.
func (s *JobStore) Retry(ctx context.Context, d *Delivery, a AttemptRecord) error {
	return s.settle(ctx, d, a, func(t *jobsTx) error {
		subqueue := SubqueueOf(d.Subqueue.Queue(), SubqueueRetry)
		visible, charged := t.now+a.RetryDelay.Milliseconds(), int64(1)
		if a.Uncharged {
			charged = 0
		}
		if err := t.prep(sqlRetry).int(int64(subqueue)).int(visible).int(charged).blob(lastError(a)).int(d.Seq).int(d.Token).fenced(); err != nil {
			return err
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		if err := t.dueOf(d.Seq, subqueue, visible); err != nil {
			return err
		}
		if err := t.event(event{seq: d.Seq, number: d.Version + 1, kind: forebay.EventAttemptFailed, status: forebay.StatusRunning,
			generation: d.Generation, attempt: d.Number, class: a.ErrorClass, code: a.ErrorCode}); err != nil {
			return err
		}
		return t.event(event{seq: d.Seq, number: d.Version + 2, kind: forebay.EventRetryScheduled, status: forebay.StatusRetrying,
			generation: d.Generation, attempt: d.Number, delay: max(1, a.RetryDelay.Milliseconds())})
	})
}

const sqlThrottle = `
UPDATE messages SET visible = ?, token = NULL, locked_at = NULL, deliveries = deliveries - 1, version = version + 1,
  waiting = ?, last_error = ? WHERE seq = ? AND token = ?`

// Throttle records a call that the provider turned away and puts the message back into its subqueue for
// the delay a.RetryDelay. It charges neither an attempt nor a delivery.
func (s *JobStore) Throttle(ctx context.Context, d *Delivery, a AttemptRecord, waiting forebay.WaitReason) error {
	return s.settle(ctx, d, a, func(t *jobsTx) error { return t.throttle(d, a, waiting) })
}

func (t *jobsTx) throttle(d *Delivery, a AttemptRecord, waiting forebay.WaitReason) error {
	visible := t.now + a.RetryDelay.Milliseconds()
	if err := t.prep(sqlThrottle).int(visible).textOrNull(string(waiting)).blob(lastError(a)).int(d.Seq).int(d.Token).fenced(); err != nil {
		return err
	}
	if err := t.attempt(d.attempted(), a); err != nil {
		return err
	}
	if err := t.dueOf(d.Seq, d.Subqueue, visible); err != nil {
		return err
	}
	return t.event(event{seq: d.Seq, number: d.Version + 1, kind: forebay.EventThrottled, status: waitingStatus(d.Subqueue),
		generation: d.Generation, attempt: d.Number, class: a.ErrorClass, code: a.ErrorCode, delay: max(1, a.RetryDelay.Milliseconds())})
}

const sqlRelease = `
UPDATE messages SET visible = ?, token = NULL, locked_at = NULL, deliveries = deliveries - 1, number = number - 1,
  waiting = ? WHERE seq = ? AND token = ?`

// Release puts the message back into its subqueue as if it had not been delivered: nothing was called,
// or the call was interrupted by a stop. waiting may be "".
func (s *JobStore) Release(ctx context.Context, d *Delivery, delay time.Duration, waiting forebay.WaitReason) error {
	return s.settle(ctx, d, AttemptRecord{}, func(t *jobsTx) error {
		visible := t.now + delay.Milliseconds()
		if err := t.prep(sqlRelease).int(visible).textOrNull(string(waiting)).int(d.Seq).int(d.Token).fenced(); err != nil {
			return err
		}
		return t.dueOf(d.Seq, d.Subqueue, visible)
	})
}

// Interrupt is Release for a call that a stop cut off: its attempt is recorded, but not charged.
func (s *JobStore) Interrupt(ctx context.Context, d *Delivery, a AttemptRecord) error {
	return s.settle(ctx, d, a, func(t *jobsTx) error {
		err := t.prep("UPDATE messages SET visible = ?, token = NULL, locked_at = NULL, deliveries = deliveries - 1, waiting = NULL WHERE seq = ? AND token = ?").
			int(t.now).int(d.Seq).int(d.Token).fenced()
		if err != nil {
			return err
		}
		if err := t.dueOf(d.Seq, d.Subqueue, t.now); err != nil {
			return err
		}
		return t.attempt(d.attempted(), a)
	})
}

// SetAside records the failed attempt, ends the job as failed and moves its message to the
// dead-letter or quarantine subqueue, where it waits for a redrive or a purge.
func (s *JobStore) SetAside(ctx context.Context, d *Delivery, a AttemptRecord, to SubqueueKind, reason string) error {
	return s.settle(ctx, d, a, func(t *jobsTx) error { return t.fail(d, a, to, reason) })
}

// SetAsideUnlessDenied is SetAside for a call that was turned away, perhaps for the job's own fault: unless its deployment
// takes calls, and took them when this one began, it records the attempt as back and is Throttle.
func (s *JobStore) SetAsideUnlessDenied(ctx context.Context, d *Delivery, a, back AttemptRecord, to SubqueueKind, reason string) (setAside bool, err error) {
	err = s.settle(ctx, d, a, func(t *jobsTx) error {
		deployment, err := t.admission.deployment(d.Admission.Deployment)
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

func (t *jobsTx) fail(d *Delivery, a AttemptRecord, to SubqueueKind, reason string) error {
	held, err := t.holds(d)
	if err != nil || !held {
		return lost(err)
	}
	if err := t.attempt(d.attempted(), a); err != nil {
		return err
	}
	return t.setAside(setAside{
		seq: d.Seq, to: SubqueueOf(d.Subqueue.Queue(), to), generation: d.Generation, attempt: d.Attempt + 1, number: d.Number, version: d.Version,
		started: d.StartedAt.UnixMilli(), failure: Failure{Class: a.ErrorClass, Code: a.ErrorCode, Message: a.ErrorMessage}, reason: reason,
	})
}

// Expire records the attempt that the job's deadline cut off and ends the job as expired.
func (s *JobStore) Expire(ctx context.Context, d *Delivery, a AttemptRecord) error {
	return s.settle(ctx, d, a, func(t *jobsTx) error {
		held, err := t.holds(d)
		if err != nil || !held {
			return lost(err)
		}
		if err := t.attempt(d.attempted(), a); err != nil {
			return err
		}
		return t.expire(d.Seq, d.Generation, d.Attempt, d.Version)
	})
}

// settle is what f does with a delivery, and what follows from the attempt.
func (s *JobStore) settle(ctx context.Context, d *Delivery, a AttemptRecord, f func(*jobsTx) error) error {
	return s.settled(ctx, d, a, settling(d), f)
}

// settling is what is known of the settlement of a delivery.
func settling(d *Delivery) op {
	o := op{stage: stageSettle, local: true, touches: messageRow(d.Seq)}
	if d.Admission != nil {
		o.hints = deploymentHint(d.Admission.Deployment)
	}
	return o
}

func (s *JobStore) settled(ctx context.Context, d *Delivery, a AttemptRecord, o op, f func(*jobsTx) error) error {
	_, err := transactIn(ctx, jobsKey, s.writer, o, func(t *jobsTx) (struct{}, error) {
		if d.Admission != nil { // whoever has the job now
			if err := t.admission.told(d.Admission); err != nil {
				return struct{}{}, err
			}
		}
		err := f(t)
		if err == nil && d.Held {
			err = t.settleHolds(d, a)
		}
		if err == nil {
			err = t.leaveSlots(d)
		}
		if err == nil {
			t.changed(d.Seq)
		}
		return struct{}{}, err
	})
	if err == nil || errors.Is(err, forebay.ErrLockLost) { // it is told once
		d.Admission = nil
	}
	return err
}

// messageRow names the row of a message.
func messageRow(seq int64) rowName { return rowName{of: "messages", no: seq} }

var sqlDeleteMessage = merges("DELETE FROM messages WHERE seq = ?", "DELETE FROM messages m USING %s WHERE m.seq = ANY (ARRAY[p1])")

// sqlReleaseMessage deletes the message if the lock still holds it.
var sqlReleaseMessage = forArrays(sqlDeleteMessage+" AND token = ?",
	"DELETE FROM messages m USING %s WHERE m.seq = ANY (ARRAY[x.p1]) AND m.token = x.p2 RETURNING x.p1, x.p2")

func (d *Delivery) askRelease() query {
	q := ask(sqlReleaseMessage, messageRow(d.Seq)).int(d.Seq).int(d.Token)
	q.write = true
	return q
}

// release deletes the message if the lock still holds it.
func (t *jobsTx) release(d *Delivery) error {
	return t.prep(sqlReleaseMessage).int(d.Seq).int(d.Token).fenced()
}

func (t *jobsTx) holds(d *Delivery) (held bool, err error) {
	return t.prep("SELECT 1 FROM messages WHERE seq = ? AND token = ?").int(d.Seq).int(d.Token).one(func(row) {})
}

func lost(err error) error {
	if err != nil {
		return err
	}
	return forebay.ErrLockLost
}

// dueOf is due for a message that is free again; its deadline may have passed while it was locked.
func (t *jobsTx) dueOf(seq int64, subqueue Subqueue, visible int64) error {
	_, err := t.prep("SELECT rank, deadline FROM messages WHERE seq = ?").int(seq).one(func(r row) {
		t.due(subqueue, r.int(0), visible)
		t.deadlineAt(r.int(1))
	})
	return err
}

func waitingStatus(l Subqueue) forebay.Status {
	if l.Kind() == SubqueueRetry {
		return forebay.StatusRetrying
	}
	return forebay.StatusQueued
}

const maxLastErrorBytes = 512

// lastError is what the message carries of a failed attempt for whoever receives it next.
func lastError(a AttemptRecord) []byte {
	text := append([]byte(a.ErrorCode+": "), a.ErrorMessage...)
	return text[:min(len(text), maxLastErrorBytes)]
}

const sqlAttempt = `
INSERT INTO attempts (seq, generation, number, deployment, started_at, finished_at, outcome,
  error_class, error_code, error_message, input_tokens, output_tokens, cost, retry_delay, assumed_tokens)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (t *jobsTx) attempt(c attempted, a AttemptRecord) error {
	t.tally.countAttempt(a.Outcome)
	finishedAt := max(c.startedAt, t.now)
	t.countHour(c, finishedAt, a, 1)
	return t.prep(sqlAttempt).int(c.seq).int(int64(c.generation)).int(int64(c.number)).text(bounded(a.Deployment)).
		int(c.startedAt).int(finishedAt).text(string(a.Outcome)).
		textOrNull(string(a.ErrorClass)).textOrNull(bounded(a.ErrorCode)).blob(a.ErrorMessage).
		int(plausible(a.Usage.InputTokens, maxTokens)).int(plausible(a.Usage.OutputTokens, maxTokens)).
		int(plausible(int64(a.Cost), maxCost)).intOrNull(a.RetryDelay.Milliseconds()).intOrNull(a.assumed).exec()
}

// bounded cuts a short name, such as an error code, to the length of names.
func bounded(name string) string { return name[:min(len(name), maxCodeBytes)] }

const maxCodeBytes = 128

// event is a row of events.
type event struct {
	seq        int64
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

const sqlEvent = `
INSERT INTO events (seq, number, type, at, status, generation, attempt, error_class, error_code, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// firstStart is the number of the event that a job's first attempt has started. As a rule it has no row: it
// follows from the message or the outcome.
const firstStart = 2

func (t *jobsTx) event(e event) error {
	t.changed(e.seq)
	if err := t.tell(e); err != nil {
		return err
	}
	return t.prep(sqlEvent).int(e.seq).int(e.number).text(string(e.kind)).int(t.now).text(string(e.status)).
		int(int64(e.generation)).int(int64(e.attempt)).textOrNull(string(e.class)).textOrNull(bounded(e.code)).intOrNull(e.delay).exec()
}

// ending is how a generation of a job ends.
type ending struct {
	seq        int64
	status     forebay.Status
	generation int
	attempt    int
	number     int   // of the attempt that ended it
	version    int64 // of the event that says so
	started    int64 // 0: never
	out        Output
	failure    Failure
	alone      bool // it is known to belong to no session
	uncalled   bool // it is known to be no activity of an orchestration
	held       bool // it was not its turn in its session
}

const sqlOutcome = `
INSERT INTO outcomes (seq, status, generation, attempt, version, started_at, completed_at,
  result, result_blob, result_size, error_class, error_code, error_message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// end records the outcome and its event. The primary key of outcomes is the last guard of "one
// result a job": a second outcome for a generation cannot be inserted.
func (t *jobsTx) end(e ending, kind forebay.EventType) error {
	err := t.prep(sqlOutcome).int(e.seq).text(string(e.status)).int(int64(e.generation)).int(int64(e.attempt)).int(e.version).
		intOrNull(e.started).int(t.now).blob(e.out.Inline).textOrNull(e.out.Blob).int(e.out.Size).
		textOrNull(string(e.failure.Class)).textOrNull(bounded(e.failure.Code)).blob(e.failure.Message).exec()
	t.changed(e.seq)
	t.tally.count(e.status)
	if err == nil && !e.alone {
		err = t.leaveSession(e.seq, e.held)
	}
	if err != nil {
		return err
	}
	for _, f := range t.w.store.ended {
		if err := f(t.tx, Ended{Seq: e.seq, Status: e.status, Generation: e.generation, Failure: e.failure, Uncalled: e.uncalled}); err != nil {
			return err
		}
	}
	ended := event{seq: e.seq, number: e.version, kind: kind, status: e.status, generation: e.generation,
		attempt: e.number, class: e.failure.Class, code: e.failure.Code, result: e.out.Inline}
	if e.status == forebay.StatusSucceeded { // its row follows from the outcome
		return t.tell(ended)
	}
	return t.event(ended)
}

// expire ends a job whose deadline has passed.
func (t *jobsTx) expire(seq int64, generation, attempt int, version int64) error {
	var started, visible int64
	if _, err := t.prep("DELETE FROM messages WHERE seq = ? RETURNING started_at, visible").int(seq).
		one(func(r row) { started, visible = r.int(0), r.int(1) }); err != nil {
		return err
	}
	return t.end(ending{
		seq: seq, status: forebay.StatusExpired, generation: generation, attempt: attempt, version: version + 1, started: started, held: visible == heldUntil,
		failure: Failure{Class: forebay.ClassPermanent, Code: "deadline_exceeded", Message: []byte("the deadline passed before the job ended")},
	}, forebay.EventExpired)
}

// setAside is a job that failed for good.
type setAside struct {
	seq        int64
	to         Subqueue
	generation int
	attempt    int
	number     int
	version    int64
	started    int64
	failure    Failure
	reason     string
}

const sqlSetAside = `
UPDATE messages SET lane = ?, visible = ?, token = NULL, locked_at = NULL, version = ?, deadline = NULL, waiting = NULL,
  attempt = ?, reason = ? WHERE seq = ?`

func (t *jobsTx) setAside(s setAside) error {
	kind := forebay.EventDeadLettered
	if s.to.Kind() == SubqueueQuarantine {
		kind = forebay.EventQuarantined
	}
	err := t.prep(sqlSetAside).int(int64(s.to)).int(t.now).int(s.version + 2).int(int64(s.attempt)).text(bounded(s.reason)).int(s.seq).exec()
	if err != nil {
		return err
	}
	err = t.end(ending{
		seq: s.seq, status: forebay.StatusFailed, generation: s.generation, attempt: s.attempt, number: s.number,
		version: s.version + 1, started: s.started, failure: s.failure,
	}, forebay.EventFailed)
	if err != nil {
		return err
	}
	return t.event(event{seq: s.seq, number: s.version + 2, kind: kind, status: forebay.StatusFailed, generation: s.generation,
		attempt: s.number, class: s.failure.Class, code: s.failure.Code})
}

// callerCorrelation begins the correlation ids of such jobs. When a job succeeds, that it has none says that nobody called it.
const callerCorrelation = "orchestration/"

func mayBeCalled(correlation string) bool { return strings.HasPrefix(correlation, callerCorrelation) }
