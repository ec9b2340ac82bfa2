package store

import (
	"context"
	"errors"
	"fmt"
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

// receiver waits for what it asks for, or for a session.
type receiver struct {
	ReceiveRequest
	waiter
	part     *busPart
	subqueue Subqueue // where it waits
	messages []Message
	bytes    int64 // of these

	accept   bool // a session is wanted, not messages
	accepted *Session
}

// empty reports whether the receiver has nothing to answer yet.
func (c *receiver) empty() bool { return len(c.messages) == 0 && c.accepted == nil && c.err == nil }

func (c *receiver) visit() {
	var after func(*receiver) bool
	if !c.Webhook { // who delivers to an endpoint that rests holds up nobody else
		after = func(other *receiver) bool { return other.Webhook }
	}
	if c.part.park(c.subqueue, c, after); !c.Wait {
		c.part.impatient = append(c.part.impatient, c)
	}
}

// unserve puts a receiver back that found nothing, or whose transaction failed.
func (c *receiver) unserve() {
	c.messages, c.bytes, c.accepted, c.err = nil, 0, nil, nil
	c.state.Store(claimWaiting)
}

// receiver is the request as the writer keeps it.
func (req ReceiveRequest) receiver(p *busPart) *receiver {
	subqueue := req.Queue.Subqueue(req.DeadLetter)
	if req.Session != nil {
		subqueue = req.Session.subqueue()
	}
	return &receiver{ReceiveRequest: req, part: p, subqueue: subqueue, waiter: newWaiter()}
}

// Receive takes the messages that became ready first, of a session those with the lowest numbers. Each
// delivery counts, except in the dead-letter subqueue; a message that has had all its deliveries goes
// there instead, and one whose time is over is not delivered.
func (s *BusStore) Receive(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	if err := s.Used(ctx, req.Queue); err != nil {
		return nil, err
	}
	c := req.receiver(busKey.in(s.writer))
	if err := await(ctx, s.writer, c, &c.waiter); err != nil {
		return nil, err
	}
	return c.messages, nil
}

// serveReceivers gives what is ready to those who wait, oldest first.
func (w *busPart) serveReceivers(t *tx) error {
	for subqueue, waiting := range w.parked {
		// A look for nobody would let the next one wait for the one after.
		if !w.anybody(subqueue) || !w.due(subqueue, t.now) {
			continue
		}
		b := busKey.of(t)
		rest := waiting
		for len(rest) > 0 {
			c := rest[0]
			if !c.begin() {
				rest = rest[1:] // its caller has gone
				continue
			}
			if err := w.serveMessages(b, c); err != nil {
				c.unserve()
				return err
			}
			if c.empty() {
				c.unserve()
				break
			}
			rest = rest[1:]
			b.served = append(b.served, c)
			t.answered++
		}
		if err := w.updateDue(b, subqueue, len(rest) > 0); err != nil {
			return err
		}
		t.after = append(t.after, func() { w.unpark(subqueue, len(waiting)-len(rest)) })
	}
	return nil
}

// updateDue notes when the subqueue is worth another look: now while it was not found empty, else when
// its earliest message becomes visible.
func (w *busPart) updateDue(t *busTx, subqueue Subqueue, foundEmpty bool) error {
	if !subqueue.lasts() || foundEmpty && subqueue.Kind() == subqueueSessions {
		return w.updateSessionDue(t, subqueue, foundEmpty)
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
		_, err := t.prep("SELECT visible FROM messages WHERE lane = ? AND rank = ? ORDER BY visible LIMIT 1").int(int64(subqueue)).int(rank).one(func(r row) {
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

const sqlReadyMessages = messageColumns + `
WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3 ORDER BY m.visible, m.seq LIMIT ?4 + 0`

// sqlReadyInSession finds them while the session is locked.
const sqlReadyInSession = messageColumns + `
WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.no = ?2 - 16 AND s.queue = ?5 AND s.token = ?6 AND s.locked_until > ?7)
ORDER BY m.visible, m.seq LIMIT ?4 + 0`

// prepReady begins the statement that finds what is ready for a receiver.
func (t *busTx) prepReady(from source, c *receiver, limit int) statement {
	sql, session := sqlReadyMessages, c.Session
	if session != nil {
		sql = sqlReadyInSession
	}
	st := t.prep(sql).int(int64(from.subqueue)).int(from.rank).int(from.before).int(int64(limit))
	if session != nil {
		st = st.int(c.Queue.No).int(session.Token).int(t.now)
	}
	return st
}

// serveMessages takes what one receiver of plain messages waits for.
func (w *busPart) serveMessages(t *busTx, c *receiver) error {
	if c.accept {
		return t.acceptNext(c)
	}
	from := source{subqueue: c.subqueue, before: t.now, until: t.now + c.Queue.Lock.Milliseconds()}
	if c.Webhook {
		return w.webhooks.takeFor(t, c, from)
	}
	if l := c.Session; l != nil {
		from.subqueue, from.rank, from.before, from.session = c.Queue.Subqueue(false), firstSessionRank+l.No, sessionFree, true
		if err := t.takeReady(from, c); err != nil || len(c.messages) > 0 {
			return err
		}
		// There is nothing, or the lock has ended.
		until, err := t.sessionHeld(c.Queue, *l)
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
func (t *busTx) takeReady(from source, c *receiver) error {
	for {
		limit, taken, tooLarge := c.Max-len(c.messages), len(c.messages), false
		bytes := c.bytes
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
		c.messages = slices.Grow(c.messages, len(found))
		for i := range found {
			if err := t.takeMessage(&found[i], from, c); err != nil {
				return err
			}
		}
		// What went elsewhere instead frees its place for others.
		elsewhere := taken+len(found) > len(c.messages)
		if !elsewhere || !tooLarge && len(found) < limit {
			return nil
		}
		if !from.session && t.copied.full() { // the next look goes on
			return nil
		}
	}
}

// takeMessage hands a message that nobody holds to the receiver, unless its time or its deliveries
// have run out.
func (t *busTx) takeMessage(m *Message, from source, c *receiver) error {
	inDeadLetter := from.subqueue.Kind() == SubqueueDeadLetter
	if !inDeadLetter && (m.expired(t.now) || m.Deliveries >= c.Queue.MaxDeliveries) {
		if m.expired(t.now) {
			return t.expireMessage(m.Seq, from.subqueue)
		}
		return t.deadLetter(m.Seq, from.subqueue, exceeded(c.Queue.MaxDeliveries))
	}
	if !inDeadLetter {
		m.Deliveries++
	}
	if !inDeadLetter && !c.Delete && m.Deliveries >= c.Queue.MaxDeliveries {
		if err := t.lastDelivery(m.Seq, from.until); err != nil {
			return err
		}
	}
	if c.Delete {
		if err := t.deleteMessage(m.Seq); err != nil {
			return err
		}
	} else if err := t.lockMessage(m, from); err != nil {
		return err
	}
	c.messages = append(c.messages, *m)
	c.bytes += m.Size()
	return nil
}

// lastDelivery has a message looked at when its lock ends: nobody may ever receive from its queue again.
func (t *busTx) lastDelivery(seq, until int64) error {
	t.dueBy(until)
	return t.prep("UPDATE bodies SET due_at = ?1 WHERE seq = ?2 AND (due_at IS NULL OR due_at > ?1)").int(until).int(seq).exec()
}

func (t *busTx) lockMessage(m *Message, from source) error {
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

func exceeded(deliveries int) DeadLettering {
	return DeadLettering{Reason: forebay.ReasonMaxDeliveries,
		Description: fmt.Sprintf("delivered %d times, which is all its queue allows, and never completed", deliveries)}
}

const sqlDeferredMessage = messageColumns + "WHERE m.seq = ? AND m.lane + 0 = ?"

// ReceiveDeferred takes those of the messages that are deferred in the subqueue and not locked, in the
// order given. Only the receiver of their session gets those of a session.
func (s *BusStore) ReceiveDeferred(ctx context.Context, req ReceiveRequest, seqs []int64) ([]Message, error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: req.Queue.Tenant, rows: len(seqs)}, func(t *busTx) ([]Message, error) {
		c, subqueue := req.receiver(t.w), req.Queue.Subqueue(req.DeadLetter)
		from := source{subqueue: subqueue, until: t.now + c.Queue.Lock.Milliseconds()}
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
		return c.messages, nil
	})
}
