package store

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// ClaimRequest asks for messages of one subqueue.
type ClaimRequest struct {
	Subqueue Subqueue
	Max      int           // messages, at least 1
	MaxBytes int64         // of input together; the first message is delivered whatever its size
	Lock     time.Duration //
	// A message delivered this often is not delivered again: it goes to the SetAside subqueue.
	MaxDeliveries int
	SetAside      SubqueueKind
	Share         Share // nil: all tenants are equal
	Plan          Plan  // nil: nothing holds calls back
	// Held, if set, is told why jobs could not be called, once for each look. It must be quick.
	Held func(why forebay.WaitReason)
}

// Lock is the right to settle one delivery. A token is new at each delivery.
type Lock struct {
	Seq   int64
	Token int64
}

// Delivery is a job handed to a worker under a lock.
type Delivery struct {
	Lock
	LockedUntil    time.Time
	LockedAt       time.Time
	ID             string
	Tenant         int64
	Subqueue       Subqueue
	Task           string
	Generation     int
	Number         int // of this attempt
	Attempt        int // charged before this one, in this generation
	Deliveries     int // this one included
	Version        int64
	MaxAttempts    int
	MaxCost        *forebay.Money
	MaxTotalTokens *int64
	CreatedAt      time.Time
	ScheduledAt    time.Time // when it became ready
	StartedAt      time.Time // of the generation
	Deadline       *time.Time
	CorrelationID  string
	SessionID      string
	KeyID          string // that pays for it; "": only its tenant does
	Traceparent    string
	Metadata       []byte
	Input          []byte // nil when InputBlob is set
	InputBlob      string
	InputSize      int64
	LastError      []byte
	Admission      *Admission // nil: nothing was reserved for it
	Held           bool       // a budget holds what it may use
	Slotted        bool       // it is one of a limited number of calls at once
}

// Claim waits until at least one message of the subqueue is ready and returns up to Max under new locks.
// Each delivery counts; a lock that had expired becomes an attempt with outcome "lost".
func (s *Store) Claim(ctx context.Context, req ClaimRequest) ([]Delivery, error) {
	c := &claim{ClaimRequest: req, waiter: newWaiter()}
	if err := s.await(ctx, c); err != nil {
		return nil, err
	}
	return c.deliveries, nil
}

// await hands the claim to the writer and waits for its answer.
func (s *Store) await(ctx context.Context, c *claim) error {
	return await(ctx, s.writer, s.writer.claims, c, &c.waiter)
}

func await[C any](ctx context.Context, w *writer, to chan<- C, c C, its *waiter) error {
	select {
	case to <- c:
	case <-w.stopped:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-its.answer:
		return its.err
	case <-w.stopped:
		select {
		case <-its.answer:
			return its.err
		default:
			return errClosed
		}
	case <-ctx.Done():
		return its.abandon(ctx.Err())
	}
}

// waiter is what all claims have, of messages and of work. It belongs to its caller while it waits, to the
// writer while it is served.
type waiter struct {
	state  atomic.Int32
	err    error
	answer chan struct{}
}

func newWaiter() waiter { return waiter{answer: make(chan struct{})} }

const (
	claimWaiting int32 = iota
	claimServing
	claimGone
)

// abandon gives up waiting, unless the writer is serving the claim right now: what it takes must
// not be lost.
func (c *waiter) abandon(why error) error {
	for !c.state.CompareAndSwap(claimWaiting, claimGone) {
		select {
		case <-c.answer:
			return c.err
		case <-time.After(time.Millisecond): // its transaction may fail, which puts it back to waiting
		}
	}
	return why
}

func (c *waiter) waits() bool { return c.state.Load() == claimWaiting }
func (c *waiter) gone() bool  { return c.state.Load() == claimGone }

// begin reports whether the claim still waits, and if so begins to serve it.
func (c *waiter) begin() bool { return c.state.CompareAndSwap(claimWaiting, claimServing) }

func (c *waiter) deliver() { close(c.answer) }

func (c *waiter) refuse(err error) {
	if c.begin() {
		c.err = err
		c.deliver()
	}
}

type claim struct {
	ClaimRequest
	waiter
	deliveries []Delivery
	receive    *receive // set: plain messages are wanted, not jobs
}

// empty reports whether the claim has nothing to answer yet.
func (c *claim) empty() bool {
	return len(c.deliveries) == 0 && (c.receive == nil || c.receive.empty()) && c.err == nil
}

// unserve puts a claim back that found nothing, or whose transaction failed.
func (c *claim) unserve() {
	c.deliveries, c.err = nil, nil
	if c.receive != nil {
		c.receive.reset()
	}
	c.state.Store(claimWaiting)
}

func (w *writer) park(c *claim) {
	subqueue := int64(c.Subqueue)
	waiting := w.parked[subqueue]
	if len(waiting) == cap(waiting) {
		waiting = dropGone(waiting)
	}
	if w.lines[subqueue] == nil { // what is ready was not noted
		w.dueAt[subqueue] = 0
		if subqueue >= 0 {
			w.linesOf(subqueue)
		}
	}
	if plain := slices.IndexFunc(waiting, (*claim).delivers); plain >= 0 && !c.delivers() {
		w.parked[subqueue] = slices.Insert(waiting, plain, c) // who delivers to an endpoint that rests holds up nobody else
		w.dueAt[subqueue] = 0
	} else {
		w.parked[subqueue] = append(waiting, c)
	}
	if c.receive != nil && !c.receive.wait {
		w.impatient = append(w.impatient, c)
	}
}

// leave forgets who waited for a subqueue.
func (w *writer) leave(subqueue int64) {
	delete(w.parked, subqueue)
	if subqueue < 0 { // there are as many as sessions
		delete(w.dueAt, subqueue)
	}
}

// serveClaims gives ready messages to the claims that wait, oldest first.
func (w *writer) serveClaims(t *tx) (served []*claim, err error) {
	for subqueue, waiting := range w.parked {
		if w.paused[subqueue/subqueueKinds] {
			continue
		}
		if !slices.ContainsFunc(waiting, (*claim).waits) { // a look for nobody would let the next one wait for the one after
			w.leave(subqueue)
			continue
		}
		due, ok := w.dueAt[subqueue]
		looks := ok && due <= t.now
		found, err := w.lookAt(t, subqueue, looks)
		switch {
		case err != nil:
			return served, err
		case found == nil && !looks:
			continue
		}
		rest := waiting
		for len(rest) > 0 {
			c := rest[0]
			if !c.begin() {
				rest = rest[1:] // its caller has gone
				continue
			}
			if err := w.serve(t, c, found); err != nil {
				c.unserve()
				return served, err
			}
			if c.empty() {
				c.unserve()
				break
			}
			rest = rest[1:]
			served = append(served, c)
		}
		if looks || found.retryAt > 0 {
			err = w.updateDue(t, subqueue, found, len(rest) > 0)
			if ok && !looks {
				w.lookBy(subqueue, due)
			}
		}
		if err == nil && found != nil {
			err = t.leave(found)
			found.lines.keepFloors(found.taken, found.found, found.later, found.held)
		}
		if err != nil {
			return served, err
		}
		t.after = append(t.after, func() { w.unpark(subqueue, len(waiting)-len(rest)) })
	}
	for subqueue, fresh := range t.fresh { // their queue was paused, or is not waited for any more
		if err := t.storeFresh(subqueue, fresh); err != nil {
			return served, err
		}
	}
	return served, nil
}

// unpark forgets the first n claims of a subqueue, once they were served for good.
func (w *writer) unpark(subqueue int64, n int) {
	waiting, ok := w.parked[subqueue]
	if !ok {
		return // its queue was dropped in the same transaction
	}
	if w.parked[subqueue] = waiting[n:]; len(w.parked[subqueue]) == 0 {
		w.leave(subqueue)
	}
}

// updateDue notes when the subqueue is worth another look: now while it was not found empty, else when
// its earliest message becomes visible.
func (w *writer) updateDue(t *tx, subqueue int64, found *look, foundEmpty bool) error {
	if kind := Subqueue(subqueue).Kind(); subqueue < 0 || foundEmpty && kind == subqueueSessions && w.parked[subqueue][0].receive != nil {
		return w.updateSessionDue(t, subqueue, foundEmpty)
	}
	if found != nil {
		found.noteDue(w, t.now)
		return nil
	}
	if !foundEmpty {
		w.dueAt[subqueue] = t.now
		return nil
	}
	if until := w.rests(subqueue); until > 0 {
		w.dueAt[subqueue] = until
		return nil
	}
	var earliest int64
	for rank := range int64(scheduledRank + 1) {
		_, err := t.prep("SELECT visible FROM messages WHERE lane = ? AND rank = ? ORDER BY visible LIMIT 1").int(subqueue).int(rank).one(func(r row) {
			if at := r.int(0); earliest == 0 || at < earliest {
				earliest = at
			}
		})
		if err != nil {
			return err
		}
	}
	delete(w.dueAt, subqueue)
	if earliest > 0 {
		w.dueAt[subqueue] = earliest
	}
	return nil
}

const readyColumns = `m.seq, m.token, m.locked_at, m.deliveries, m.generation, m.attempt, m.number, m.version, m.deadline,
  m.started_at, m.visible, m.last_error, m.size,
  j.id, j.tenant, j.task, j.max_attempts, j.max_cost, j.created_at, j.correlation_id, j.traceparent,
  j.metadata, j.input, j.input_blob, m.announced, j.session_id, j.key_id, j.max_total_tokens, j.max_output_tokens`

const sqlReady = "SELECT " + readyColumns + `
FROM messages m JOIN jobs j ON j.seq = m.seq
WHERE m.lane = ? AND m.rank = ? AND m.visible <= ? ORDER BY m.visible, m.seq LIMIT ? + 0`

// A candidate is a ready message before anything was decided about it.
type candidate struct {
	Delivery
	lostToken bool  // its lock has expired
	lostAt    int64 // when that delivery was locked
	deadline  int64
	rank      int64 // the number of its line
	fresh     bool  // its message is not stored yet
	behind    bool  // it goes before a job of its tenant's that is of the first level
	announced int   // the latest attempt number whose start an event tells
	budgets   []*budget
	options   []Option // where it could be called, once that was asked
	asked     bool
	maxOutput int64 // that its input asks for, which is not inline; 0: not known
}

// planned asks once where a candidate could be called: that may read its input.
func (m *candidate) planned(plan Plan) []Option {
	if !m.asked && plan != nil {
		m.options, m.asked = Asking(plan(m.Task, m.Input, m.InputSize), m.maxOutput), true
		source := quota.SourceOf(m.Tenant, m.Task)
		for i := range m.options {
			r := &m.options[i].Request
			r.Source = source
			if r.MaxOutputTokens == 0 && m.limited() { // the router names it, so that the job's own limit holds
				r.MaxOutputTokens = cmp.Or(max(m.options[i].Limits.DefaultMaxOutputTokens, 0), quota.AssumedOutputTokens)
			}
		}
	}
	return m.options
}

// serve takes ready messages for one claim: of those found, or those of a queue of messages.
func (w *writer) serve(t *tx, c *claim, found *look) error {
	if c.receive != nil {
		return w.serveMessages(t, c)
	}
	return w.serveFrom(t, found, c)
}

func readCandidate(r row, subqueue Subqueue) candidate {
	c := candidate{
		Delivery: Delivery{
			Lock: Lock{Seq: r.int(0)}, Subqueue: subqueue,
			Deliveries: int(r.int(3)), Generation: int(r.int(4)), Attempt: int(r.int(5)), Number: int(r.int(6)), Version: r.int(7),
			Deadline: fromMillisOrNil(r, 8), ScheduledAt: fromMillis(r.int(10)), LastError: r.blob(11), InputSize: r.int(12),
			ID: r.text(13), Tenant: r.int(14), Task: r.text(15), MaxAttempts: int(r.int(16)),
			CreatedAt: fromMillis(r.int(18)), CorrelationID: r.text(19), Traceparent: r.text(20),
			Metadata: r.blob(21), Input: r.blob(22), InputBlob: r.text(23), SessionID: r.text(25), KeyID: r.text(26),
		},
		lostToken: !r.isNull(1), lostAt: r.int(2), deadline: r.int(8), announced: int(r.int(24)), maxOutput: r.int(28),
	}
	if !r.isNull(9) {
		c.StartedAt = fromMillis(r.int(9))
	}
	if !r.isNull(17) {
		cost := forebay.Money(r.int(17))
		c.MaxCost = &cost
	}
	c.MaxTotalTokens = intOrNil(r, 27)
	return c
}

const sqlLock = `
UPDATE messages SET visible = ?, token = ?, locked_at = ?, deliveries = deliveries + 1, number = ?, version = ?,
  started_at = coalesce(started_at, ?), announced = ?, waiting = NULL WHERE seq = ?`

// take locks a candidate for the claim, unless its time or its deliveries have run out.
func (t *tx) take(m *candidate, c *claim) error {
	if m.lostToken {
		if err := t.recordLost(m); err != nil {
			return err
		}
	}
	if m.deadline > 0 && m.deadline <= t.now {
		return t.expire(m.Seq, m.Generation, m.Attempt, m.Version)
	}
	if c.MaxDeliveries > 0 && m.Deliveries >= c.MaxDeliveries {
		return t.exceedDeliveries(m, c.SetAside)
	}
	m.Token = newToken()
	m.LockedAt = fromMillis(t.now)
	m.LockedUntil = m.LockedAt.Add(c.Lock)
	m.Deliveries++
	m.Number++
	// A delivery that was released without a call gave its number back: its start is told once.
	first := m.Number > m.announced
	if first {
		m.announced = m.Number
		m.Version++
	}
	if m.StartedAt.IsZero() {
		m.StartedAt = m.LockedAt
	}
	if err := t.lock(m); err != nil {
		return err
	}
	if err := t.hold(m); err != nil {
		return err
	}
	if err := t.takeSlots(m); err != nil {
		return err
	}
	c.deliveries = append(c.deliveries, m.Delivery)
	if !first {
		t.changed(m.Seq)
		return nil
	}
	started := event{seq: m.Seq, number: m.Version, kind: forebay.EventStarted, status: forebay.StatusRunning, generation: m.Generation, attempt: m.Number}
	if m.Version == firstStart {
		t.changed(m.Seq)
		return t.tell(started)
	}
	return t.event(started)
}

// lock writes the lock that a candidate now has.
func (t *tx) lock(m *candidate) error {
	until := m.LockedUntil.UnixMilli()
	if m.fresh {
		return t.storeLocked(m, until)
	}
	return t.prep(sqlLock).int(until).int(m.Token).int(t.now).int(int64(m.Number)).int(m.Version).int(t.now).int(int64(m.announced)).int(m.Seq).exec()
}

// recordLost writes the attempt whose worker was never heard of again.
func (t *tx) recordLost(m *candidate) error {
	class, code := forebay.ClassTransient, "lock_lost"
	held, err := t.loseHolds(m.Seq)
	if err != nil {
		return err
	}
	call := m.attempted()
	call.startedAt = m.lostAt
	return t.attempt(call, AttemptRecord{
		Outcome: forebay.OutcomeLost, ErrorClass: class, ErrorCode: code, Cost: forebay.Money(held.Cost), assumed: held.Tokens,
		ErrorMessage: []byte("the worker stopped, or lost its lock, before it could say how the call ended"),
	})
}

func (t *tx) exceedDeliveries(m *candidate, kind SubqueueKind) error {
	var started int64
	if !m.StartedAt.IsZero() {
		started = m.StartedAt.UnixMilli()
	}
	return t.setAside(setAside{
		seq: m.Seq, to: SubqueueOf(m.Subqueue.Queue(), kind), generation: m.Generation, attempt: m.Attempt, number: m.Number, version: m.Version, started: started,
		failure: Failure{Class: forebay.ClassTransient, Code: "MaxDeliveryCountExceeded",
			Message: []byte("delivered as often as the queue allows without an outcome: its worker may be dying of it")},
		reason: "MaxDeliveryCountExceeded",
	})
}

// releaseOrphans makes every locked job ready at once: the process that held the locks is dead. The
// next claim records the lost attempts. Plain messages are left to their receivers, which live on.
func (t *tx) releaseOrphans() error {
	return t.prep("UPDATE messages SET visible = ? WHERE token IS NOT NULL AND visible > ? AND lane / 4 NOT IN (SELECT no FROM queues WHERE kind = 'messages')").
		int(t.now).int(t.now).exec()
}
