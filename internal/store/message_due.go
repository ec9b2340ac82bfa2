package store

import (
	"errors"

	"github.com/forebayhq/forebay"
)

// dueBatch is how many messages of a kind one transaction activates or expires.
const (
	dueBatch       = 256
	sharedDueBatch = 64 // while tenants share the writer
)

// A message with a due time is one that is scheduled, may expire or has its last delivery. One that is locked is looked at
// again when its lock ends: until then it does not expire.
const (
	sqlNextDueMessage = "SELECT due_at FROM bodies WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"
	sqlNextDueQueue   = "SELECT due_at FROM queues WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"
	sqlNextIdleQueue  = "SELECT delete_at FROM queues WHERE delete_at IS NOT NULL ORDER BY delete_at LIMIT 1"

	sqlDueMessages = `
SELECT b.seq, m.lane, m.rank, CASE WHEN m.token IS NULL THEN 0 WHEN m.rank < 16 THEN m.visible
  ELSE coalesce((SELECT s.locked_until FROM sessions s WHERE s.no = m.rank - 16), 0) END,
  m.deliveries, b.expires_at, coalesce((SELECT q.dead_letter_expired FROM queues q WHERE q.no = m.lane / 4), 0)
FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.due_at <= ? ORDER BY b.due_at, b.seq LIMIT ? + 0`
)

// nextDueMessages returns when something is to be done about messages or their queues; 0: nothing.
func nextDueMessages(c conn) (next int64, err error) {
	return c.earliest(sqlNextDueMessage, sqlNextForget, sqlNextDueQueue, sqlNextIdleQueue)
}

// dueMessage is a message whose time has come.
type dueMessage struct {
	seq, rank, lockedUntil int64
	subqueue               Subqueue
	deliveries             int
	expiresAt              int64 // 0: never
	deadLetters            bool  // its queue does so with what has expired
}

// tendMessages does what is due in queues of messages: it activates, expires, forwards and forgets,
// each in batches.
func (t *busTx) tendMessages() error {
	var due []dueMessage
	most := int64(dueBatch)
	if t.w.company.now() {
		most = sharedDueBatch
	}
	err := t.prep(sqlDueMessages).int(t.now).int(most).each(func(r row) error {
		due = append(due, dueMessage{seq: r.int(0), subqueue: Subqueue(r.int(1)), rank: r.int(2), lockedUntil: r.int(3), deliveries: int(r.int(4)), expiresAt: r.int(5), deadLetters: r.int(6) != 0})
		return nil
	})
	if err != nil {
		return err
	}
	t.copied, t.dueDone = spread{}, false // a share of its own: what callers publish must not hold up what is due
	for _, m := range due {
		if !t.takesMore() {
			break // what is left is still due, and so next
		}
		if err := t.tend(m); err != nil {
			return err
		}
	}
	if err := t.forgetMessageIDs(); err != nil {
		return err
	}
	t.copied, t.dueDone = spread{}, false
	return t.tendQueues()
}

// takesMore reports whether the transaction may do one more thing that is due, which copies of a message may
// follow from. It may always do one, whatever else it has done: else what is due would wait for as long as
// callers publish much.
func (t *busTx) takesMore() bool {
	if t.dueDone && t.copied.full() {
		return false
	}
	t.dueDone = true
	return true
}

func (t *busTx) tend(m dueMessage) error {
	deferred, lockEnded := m.subqueue.deferred() == m.subqueue, m.lockedUntil > 0 && m.lockedUntil <= t.now
	switch {
	case m.rank == scheduledRank:
		return t.activate(m)
	case m.rank == partRank:
		return t.tendPart(m)
	case m.lockedUntil > t.now:
		return t.prep("UPDATE bodies SET due_at = ? WHERE seq = ?").int(m.lockedUntil).int(m.seq).exec()
	case deferred && !lockEnded: // expires, or has had its deliveries, when somebody asks for it
		return t.prep("UPDATE bodies SET due_at = NULL WHERE seq = ?").int(m.seq).exec()
	case !deferred && m.expiresAt > 0 && m.expiresAt <= t.now && !m.deadLetters:
		return t.deleteMessage(m.seq)
	case !deferred && m.expiresAt > 0 && m.expiresAt <= t.now:
		return t.expireMessage(m.seq, m.subqueue)
	}
	q, found, err := t.messageQueue(m.subqueue.Queue())
	main := SubqueueOf(m.subqueue.Queue(), SubqueueMain)
	switch {
	case err != nil:
		return err
	case found && m.deliveries >= q.MaxDeliveries && (m.subqueue == main || m.subqueue == main.deferred()):
		return t.deadLetter(m.seq, main, exceeded(q.MaxDeliveries))
	case deferred:
		return t.prep("UPDATE bodies SET due_at = NULL WHERE seq = ?").int(m.seq).exec()
	}
	// What was its last delivery does not count, or its queue allows more now.
	return t.prep("UPDATE bodies SET due_at = ? WHERE seq = ?").intOrNull(m.expiresAt).int(m.seq).exec()
}

// A scheduled message of which its topic would make too much, for subscriptions have come since it was sent, stays
// where it can be cancelled. It is looked at again when it has waited for as long once more: within these, in
// milliseconds, for judging it may be what takes too long.
const (
	postponedLeast = 60_000
	postponedMost  = 3_600_000
)

// activate makes a scheduled message active, under a new number.
func (t *busTx) activate(m dueMessage) error {
	q, found, err := t.messageQueue(m.subqueue.Queue())
	if err != nil {
		return err
	}
	if !found { // it is being deleted
		return t.deleteMessage(m.seq)
	}
	if err := t.used(q); err != nil { // until now it had something scheduled
		return err
	}
	a, err := arrivalOf(t.conn, m.seq, t.now)
	if err != nil {
		return err
	}
	if q.IsTopic {
		a.spread = &spread{}
		switch a.picks, err = t.pickDue(q, a.MessageContent, a.spread); {
		case errors.Is(err, errFanOut), errors.Is(err, errNotReady):
			t.judgeLater(err, slowMessage{q.Tenant, q.No, m.seq})
			waited := int64(0)
			if a.ScheduledAt != nil {
				waited = t.now - millis(a.ScheduledAt)
			}
			at := t.now + min(max(postponedLeast, waited), postponedMost)
			if errors.Is(err, errNotReady) { // which does not last
				at = t.now + partPause
			}
			if err := t.prep("UPDATE messages SET visible = ? WHERE seq = ?").int(at).int(m.seq).exec(); err != nil { // so that its topic is not idle
				return err
			}
			return t.prep("UPDATE bodies SET due_at = ? WHERE seq = ?").int(at).int(m.seq).exec()
		case err != nil:
			return err
		}
	}
	return t.makeActive(q, m.seq, a)
}

// pickDue is pick for a message that can be judged later. Of a topic whose rules took too long for another message it is, as long as
// there is room: to find out again and again would keep everybody waiting.
func (t *busTx) pickDue(topic MessageQueue, message *MessageContent, made *spread) ([]picked, error) {
	c, err := t.readyTopic(topic)
	if err != nil {
		return nil, err
	}
	if c.costly.Load() && t.w.slow.room(topic.Tenant) {
		return nil, errSteps
	}
	picks, err := t.pick(topic, message, made)
	var refused *forebay.Error
	if errors.As(err, &refused) && refused == errSteps {
		c.costly.Store(true)
	}
	return picks, err
}

// judgeLater has a message judged outside the transaction if judging it within takes too long.
func (t *busTx) judgeLater(why error, m slowMessage) {
	var refused *forebay.Error
	if errors.As(why, &refused); refused != errSteps && !errors.Is(why, errNotReady) {
		return
	}
	t.after = append(t.after, func() { t.w.slow.put(m) })
}

// makeActive makes a message of the queue that was scheduled under that number active.
func (t *busTx) makeActive(q MessageQueue, scheduled int64, a arrival) error {
	if err := t.deleteMessage(scheduled); err != nil {
		return err
	}
	if err := t.keepShare(&a); err != nil {
		return err
	}
	t.copied.add(1, a.Size())
	seq, err := t.queue.newSeq()
	if err != nil {
		return err
	}
	return t.enter(q, seq, a)
}

// expireMessage drops or dead-letters a message whose time is over.
func (t *busTx) expireMessage(seq int64, subqueue Subqueue) error {
	q, _, err := t.messageQueue(subqueue.Queue())
	if err != nil {
		return err
	}
	if !q.DeadLetterExpired {
		return t.deleteMessage(seq)
	}
	return t.deadLetter(seq, q.Subqueue(false), DeadLettering{Reason: forebay.ReasonExpired, Description: "its time to live ended before it was completed"})
}
