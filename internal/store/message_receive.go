package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/forebayhq/forebay"
)

// ReceiveRequest asks for messages of one queue, of one of its sessions, or of its dead-letter subqueue.
type ReceiveRequest struct {
	Queue      MessageQueue
	DeadLetter bool
	Session    *SessionLock // of a queue that requires sessions; its dead-letter subqueue does not
	Max        int          // messages, at least 1
	MaxBytes   int64        // together; the first message is delivered whatever its size
	Wait       bool         // for a first message, as long as ctx allows; else the answer may be empty
	Delete     bool         // each message is gone once it is received; else it is locked
	Webhook    bool         // one message for the webhook whose subscription it is, once its endpoint may be sent one
}

// receive is the part of a claim that takes plain messages, or a session, instead of jobs.
type receive struct {
	queue        MessageQueue
	wait, delete bool
	webhook      bool
	session      *SessionLock
	messages     []Message
	bytes        int64 // of these

	accept   bool // a session is wanted, not messages
	accepted *Session
}

func (r *receive) empty() bool { return len(r.messages) == 0 && r.accepted == nil }

func (r *receive) reset() { r.messages, r.bytes, r.accepted = nil, 0, nil }

// claim is the request as the writer keeps it.
func (req ReceiveRequest) claim() *claim {
	subqueue := req.Queue.Subqueue(req.DeadLetter)
	if req.Session != nil {
		subqueue = req.Session.subqueue()
	}
	return &claim{
		ClaimRequest: ClaimRequest{Subqueue: subqueue, Max: req.Max, MaxBytes: req.MaxBytes, Lock: req.Queue.Lock, MaxDeliveries: req.Queue.MaxDeliveries},
		receive:      &receive{queue: req.Queue, wait: req.Wait, delete: req.Delete, webhook: req.Webhook, session: req.Session},
		waiter:       newWaiter(),
	}
}

// Receive takes the messages that became ready first, of a session those with the lowest numbers. Each
// delivery counts, except in the dead-letter subqueue; a message that has had all its deliveries goes
// there instead, and one whose time is over is not delivered.
func (s *Store) Receive(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	if err := s.Used(ctx, req.Queue); err != nil {
		return nil, err
	}
	c := req.claim()
	if err := s.await(ctx, c); err != nil {
		return nil, err
	}
	return c.receive.messages, nil
}

// dismiss answers the receivers that do not wait and found nothing. err is why the last transaction
// failed, if it did: when that was an operation's fault, they are served by the next one.
func (w *writer) dismiss(err error) {
	if err != nil && w.isolates(err) {
		return
	}
	for _, c := range w.impatient {
		if !c.begin() {
			continue // served, or gone
		}
		c.err = w.conn.domainError(err)
		c.deliver()
		subqueue := int64(c.Subqueue)
		w.parked[subqueue] = slices.DeleteFunc(w.parked[subqueue], func(other *claim) bool { return other == c })
		if len(w.parked[subqueue]) == 0 {
			w.leave(subqueue)
		}
	}
	clear(w.impatient)
	w.impatient = w.impatient[:0]
}

// dropGone returns the claims whose callers have not given up. Receivers that wait in vain come and
// go for as long as their queue is empty.
func dropGone(claims []*claim) []*claim {
	return slices.DeleteFunc(claims, (*claim).gone)
}

const sqlReadyMessages = messageColumns + `
WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3 ORDER BY m.visible, m.seq LIMIT ?4 + 0`

// sqlReadyInSession finds them while the session is locked.
const sqlReadyInSession = messageColumns + `
WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.no = ?2 - 16 AND s.queue = ?5 AND s.token = ?6 AND s.locked_until > ?7)
ORDER BY m.visible, m.seq LIMIT ?4 + 0`

// prepReady begins the statement that finds what is ready for a receiver.
func (t *tx) prepReady(from source, c *claim, limit int) statement {
	sql, session := sqlReadyMessages, c.receive.session
	if session != nil {
		sql = sqlReadyInSession
	}
	st := t.prep(sql).int(int64(from.subqueue)).int(from.rank).int(from.before).int(int64(limit))
	if session != nil {
		st = st.int(c.receive.queue.No).int(session.Token).int(t.now)
	}
	return st
}

// serveMessages takes what one receiver of plain messages waits for.
func (w *writer) serveMessages(t *tx, c *claim) error {
	if c.receive.accept {
		return t.acceptNext(c)
	}
	from := source{subqueue: c.Subqueue, before: t.now, until: t.now + c.Lock.Milliseconds()}
	if c.delivers() {
		return t.serveWebhook(c, from)
	}
	if l := c.receive.session; l != nil {
		from.subqueue, from.rank, from.before, from.session = c.receive.queue.Subqueue(false), firstSessionRank+l.No, sessionFree, true
		if err := t.takeReady(from, c); err != nil || len(c.receive.messages) > 0 {
			return err
		}
		// There is nothing, or the lock has ended.
		until, err := t.sessionHeld(c.receive.queue, *l)
		if errors.Is(err, forebay.ErrSessionLockLost) {
			c.err = err // to be told, not to be tried again
			return nil
		}
		if err != nil {
			return err
		}
		t.sessions.lockEnds(l.No, until)
		return nil
	}
	return t.takeReady(from, c)
}

// source is where messages are received from.
type source struct {
	subqueue Subqueue
	rank     int64
	before   int64 // what is visible by then is ready
	until    int64 // when a lock on them ends
	session  bool
}

// takeReady takes ready messages for one receiver.
func (t *tx) takeReady(from source, c *claim) error {
	for {
		limit, taken, tooLarge := c.Max-len(c.receive.messages), len(c.receive.messages), false
		bytes := c.receive.bytes
		var found []Message
		err := t.prepReady(from, c, limit).each(func(r row) error {
			if from.session {
				from.until = r.int(columnUntil)
			}
			if bytes > 0 && bytes+r.int(columnSize) > c.MaxBytes {
				tooLarge = true
				return errStop
			}
			bytes += r.int(columnSize)
			found = append(found, readMessage(r, t.now))
			return nil
		})
		if err := unlessStopped(err); err != nil {
			return err
		}
		c.receive.messages = slices.Grow(c.receive.messages, len(found))
		for i := range found {
			if err := t.takeMessage(&found[i], from, c); err != nil {
				return err
			}
		}
		// What went elsewhere instead frees its place for others.
		elsewhere := taken+len(found) > len(c.receive.messages)
		if !elsewhere || !tooLarge && len(found) < limit {
			return nil
		}
		if !from.session && t.copied.full() { // the next look goes on
			return nil
		}
	}
}

func unlessStopped(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// takeMessage hands a message that nobody holds to the receiver, unless its time or its deliveries
// have run out.
func (t *tx) takeMessage(m *Message, from source, c *claim) error {
	inDeadLetter := from.subqueue.Kind() == SubqueueDeadLetter
	if !inDeadLetter && (m.expired(t.now) || m.Deliveries >= c.MaxDeliveries) {
		if m.expired(t.now) {
			return t.expireMessage(m.Seq, from.subqueue)
		}
		return t.deadLetter(m.Seq, from.subqueue, exceeded(c.MaxDeliveries))
	}
	if !inDeadLetter {
		m.Deliveries++
	}
	if !inDeadLetter && !c.receive.delete && m.Deliveries >= c.MaxDeliveries {
		if err := t.lastDelivery(m.Seq, from.until); err != nil {
			return err
		}
	}
	if c.receive.delete {
		if err := t.deleteMessage(m.Seq); err != nil {
			return err
		}
	} else if err := t.lockMessage(m, from); err != nil {
		return err
	}
	c.receive.messages = append(c.receive.messages, *m)
	c.receive.bytes += m.Size()
	return nil
}

// lastDelivery has a message looked at when its lock ends: nobody may ever receive from its queue again.
func (t *tx) lastDelivery(seq, until int64) error {
	t.deadlineAt(until)
	return t.prep("UPDATE bodies SET due_at = ?1 WHERE seq = ?2 AND (due_at IS NULL OR due_at > ?1)").int(until).int(seq).exec()
}

func (t *tx) lockMessage(m *Message, from source) error {
	m.Token = newToken()
	until := fromMillis(from.until)
	m.LockedUntil = &until
	visible := from.until
	if from.session {
		visible = sessionHeld
	}
	return t.prep("UPDATE messages SET visible = ?, token = ?, locked_at = ?, deliveries = ? WHERE seq = ?").
		int(visible).int(m.Token).int(t.now).int(int64(m.Deliveries)).int(m.Seq).exec()
}

// newToken returns the right to settle one delivery, or to use a session.
func newToken() int64 { return 1 + rand.Int64N(math.MaxInt64) }

func exceeded(deliveries int) DeadLettering {
	return DeadLettering{Reason: forebay.ReasonMaxDeliveries,
		Description: fmt.Sprintf("delivered %d times, which is all its queue allows, and never completed", deliveries)}
}

const sqlDeferredMessage = messageColumns + "WHERE m.seq = ? AND m.lane + 0 = ?"

// ReceiveDeferred takes those of the messages that are deferred in the subqueue and not locked, in the
// order given. Only the receiver of their session gets those of a session.
func (s *Store) ReceiveDeferred(ctx context.Context, req ReceiveRequest, seqs []int64) ([]Message, error) {
	return transactIn(ctx, s, stageChange, req.Queue.Tenant, len(seqs), 0, func(t *tx) ([]Message, error) {
		c, subqueue := req.claim(), req.Queue.Subqueue(req.DeadLetter)
		from := source{subqueue: subqueue, until: t.now + c.Lock.Milliseconds()}
		if req.Session != nil {
			until, err := t.sessionHeld(req.Queue, *req.Session)
			if err != nil {
				return nil, err
			}
			from = source{subqueue: subqueue, rank: firstSessionRank + req.Session.No, until: until, session: true}
		}
		if err := t.used(req.Queue); err != nil {
			return nil, err
		}
		var bytes int64
		for _, seq := range seqs {
			var m Message
			_, err := t.prep(sqlDeferredMessage).int(seq).int(int64(subqueue.deferred())).one(func(r row) {
				if bytes += r.int(columnSize); bytes <= req.MaxBytes || bytes == r.int(columnSize) {
					m = readMessage(r, t.now)
				}
			})
			if err != nil {
				return nil, err
			}
			if m.Seq == 0 || m.rank != from.rank || m.LockedUntil != nil {
				continue
			}
			if err := t.takeMessage(&m, from, c); err != nil {
				return nil, err
			}
		}
		return c.receive.messages, nil
	})
}
