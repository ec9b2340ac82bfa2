package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
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

// Receiver waits for what it asks for, or for a session.
type Receiver struct {
	ReceiveRequest
	queue.Waiter
	participant *Participant
	Subqueue    queue.Subqueue // where it waits
	Messages    []Message
	bytes       int64 // of these

	accept   bool // a session is wanted, not messages
	accepted *Session
}

// empty reports whether the receiver has nothing to answer yet.
func (c *Receiver) empty() bool { return len(c.Messages) == 0 && c.accepted == nil && c.Err == nil }

func (c *Receiver) Visit() {
	var after func(*Receiver) bool
	if !c.Webhook { // who delivers to an endpoint that rests holds up nobody else
		after = func(other *Receiver) bool { return other.Webhook }
	}
	if c.participant.Add(c.Subqueue, c, after); !c.Wait {
		c.participant.noWait = append(c.participant.noWait, c)
	}
}

// unserve puts a receiver back that found nothing, or whose transaction failed.
func (c *Receiver) unserve() {
	c.Messages, c.bytes, c.accepted, c.Err = nil, 0, nil, nil
	c.State.Store(queue.ClaimWaiting)
}

// receiver is the request as the writer keeps it.
func (req ReceiveRequest) receiver(p *Participant) *Receiver {
	subqueue := req.Queue.Subqueue(req.DeadLetter)
	if req.Session != nil {
		subqueue = req.Session.subqueue()
	}
	return &Receiver{ReceiveRequest: req, participant: p, Subqueue: subqueue, Waiter: queue.NewWaiter()}
}

// Receive takes the messages that became ready first, of a session those with the lowest numbers. Each
// delivery counts, except in the dead-letter subqueue; a message that has had all its deliveries goes
// there instead, and one whose time is over is not delivered.
func (s *Store) Receive(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	if err := s.Used(ctx, req.Queue); err != nil {
		return nil, err
	}
	c := req.receiver(Key.In(s.Writer))
	if err := queue.Await(ctx, s.Writer, c, &c.Waiter); err != nil {
		return nil, err
	}
	return c.Messages, nil
}

// serveReceivers gives what is ready to those who wait, oldest first.
func (w *Participant) serveReceivers(t *db.Tx) error {
	for subqueue, waiting := range w.Waiters {
		// A look for nobody would let the next one wait for the one after.
		if !w.HasWaiters(subqueue) || !w.Due(subqueue, t.Now) {
			continue
		}
		b := Key.Of(t)
		rest := waiting
		for len(rest) > 0 {
			c := rest[0]
			if !c.Begin() {
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
			t.Served++
		}
		if err := w.updateDue(b, subqueue, len(rest) > 0); err != nil {
			return err
		}
		t.After = append(t.After, func() { w.RemoveFirst(subqueue, len(waiting)-len(rest)) })
	}
	return nil
}

// updateDue notes when the subqueue is worth another look: now while it was not found empty, else when
// its earliest message becomes visible.
func (w *Participant) updateDue(t *Tx, subqueue queue.Subqueue, foundEmpty bool) error {
	if !subqueue.IsOfQueue() || foundEmpty && subqueue.Kind() == subqueueSessions {
		return w.updateSessionDue(t, subqueue, foundEmpty)
	}
	if !foundEmpty {
		w.DueAt[subqueue] = t.Now
		return nil
	}
	if until := w.pausedUntil(subqueue); until > 0 {
		w.DueAt[subqueue] = until
		return nil
	}
	var earliest int64
	for rank := range int64(scheduledRank + 1) {
		_, err := t.Prep("SELECT visible FROM messages WHERE lane = ? AND rank = ? ORDER BY visible LIMIT 1").Int(int64(subqueue)).Int(rank).One(func(r driver.Row) {
			if at := r.Int(0); earliest == 0 || at < earliest {
				earliest = at
			}
		})
		if err != nil {
			return err
		}
	}
	delete(w.DueAt, subqueue)
	if earliest > 0 {
		w.DueAt[subqueue] = earliest
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
func (t *Tx) prepReady(from Source, c *Receiver, limit int) driver.Statement {
	sql, session := sqlReadyMessages, c.Session
	if session != nil {
		sql = sqlReadyInSession
	}
	st := t.Prep(sql).Int(int64(from.subqueue)).Int(from.rank).Int(from.before).Int(int64(limit))
	if session != nil {
		st = st.Int(c.Queue.No).Int(session.Token).Int(t.Now)
	}
	return st
}

// serveMessages takes what one receiver of plain messages waits for.
func (w *Participant) serveMessages(t *Tx, c *Receiver) error {
	if c.accept {
		return t.acceptNext(c)
	}
	from := Source{subqueue: c.Subqueue, before: t.Now, Until: t.Now + c.Queue.Lock.Milliseconds()}
	if c.Webhook {
		return w.Webhooks.TakeFor(t, c, from)
	}
	if l := c.Session; l != nil {
		from.subqueue, from.rank, from.before, from.session = c.Queue.Subqueue(false), firstSessionRank+l.No, sessionFree, true
		if err := t.TakeReady(from, c); err != nil || len(c.Messages) > 0 {
			return err
		}
		// There is nothing, or the lock has ended.
		until, err := t.sessionHeld(c.Queue, *l)
		if errors.Is(err, forebay.ErrSessionLockLost) {
			c.Err = err // to be told, not to be tried again
			return nil
		}
		if err != nil {
			return err
		}
		t.sessions.lockEnds(l.No, until)
		return nil
	}
	return t.TakeReady(from, c)
}

// Source is where messages are received from.
type Source struct {
	subqueue queue.Subqueue
	rank     int64
	before   int64 // what is visible by then is ready
	Until    int64 // when a lock on them ends
	session  bool
}

// TakeReady takes ready messages for one receiver.
func (t *Tx) TakeReady(from Source, c *Receiver) error {
	for {
		limit, taken, tooLarge := c.Max-len(c.Messages), len(c.Messages), false
		bytes := c.bytes
		var found []Message
		err := t.prepReady(from, c, limit).Each(func(r driver.Row) error {
			if from.session {
				from.Until = r.Int(columnUntil)
			}
			if bytes > 0 && bytes+r.Int(columnSize) > c.MaxBytes {
				tooLarge = true
				return driver.ErrStop
			}
			bytes += r.Int(columnSize)
			found = append(found, readMessage(r, t.Now))
			return nil
		})
		if err := driver.UnlessStopped(err); err != nil {
			return err
		}
		c.Messages = slices.Grow(c.Messages, len(found))
		for i := range found {
			if err := t.takeMessage(&found[i], from, c); err != nil {
				return err
			}
		}
		// What went elsewhere instead frees its place for others.
		elsewhere := taken+len(found) > len(c.Messages)
		if !elsewhere || !tooLarge && len(found) < limit {
			return nil
		}
		if !from.session && t.copied.Full() { // the next look goes on
			return nil
		}
	}
}

// takeMessage hands a message that nobody holds to the receiver, unless its time or its deliveries
// have run out.
func (t *Tx) takeMessage(m *Message, from Source, c *Receiver) error {
	inDeadLetter := from.subqueue.Kind() == queue.SubqueueDeadLetter
	if !inDeadLetter && (m.expired(t.Now) || m.Deliveries >= c.Queue.MaxDeliveries) {
		if m.expired(t.Now) {
			return t.ExpireMessage(m.Seq, from.subqueue)
		}
		return t.DeadLetter(m.Seq, from.subqueue, exceeded(c.Queue.MaxDeliveries))
	}
	if !inDeadLetter {
		m.Deliveries++
	}
	if !inDeadLetter && !c.Delete && m.Deliveries >= c.Queue.MaxDeliveries {
		if err := t.lastDelivery(m.Seq, from.Until); err != nil {
			return err
		}
	}
	if c.Delete {
		if err := t.DeleteMessage(m.Seq); err != nil {
			return err
		}
	} else if err := t.lockMessage(m, from); err != nil {
		return err
	}
	c.Messages = append(c.Messages, *m)
	c.bytes += m.Size()
	return nil
}

// lastDelivery has a message looked at when its lock ends: nobody may ever receive from its queue again.
func (t *Tx) lastDelivery(seq, until int64) error {
	t.DueBy(until)
	return t.Prep("UPDATE bodies SET due_at = ?1 WHERE seq = ?2 AND (due_at IS NULL OR due_at > ?1)").Int(until).Int(seq).Exec()
}

func (t *Tx) lockMessage(m *Message, from Source) error {
	m.Token = queue.NewToken()
	until := driver.FromMillis(from.Until)
	m.LockedUntil = &until
	visible := from.Until
	if from.session {
		visible = sessionHeld
	}
	return t.Prep("UPDATE messages SET visible = ?, token = ?, locked_at = ?, deliveries = ? WHERE seq = ?").
		Int(visible).Int(m.Token).Int(t.Now).Int(int64(m.Deliveries)).Int(m.Seq).Exec()
}

func exceeded(deliveries int) DeadLettering {
	return DeadLettering{Reason: forebay.ReasonMaxDeliveries,
		Description: fmt.Sprintf("delivered %d times, which is all its queue allows, and never completed", deliveries)}
}

const sqlDeferredMessage = messageColumns + "WHERE m.seq = ? AND m.lane + 0 = ?"

// ReceiveDeferred takes those of the messages that are deferred in the subqueue and not locked, in the
// order given. Only the receiver of their session gets those of a session.
func (s *Store) ReceiveDeferred(ctx context.Context, req ReceiveRequest, seqs []int64) ([]Message, error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: req.Queue.Tenant, Rows: len(seqs)}, func(t *Tx) ([]Message, error) {
		c, subqueue := req.receiver(t.W), req.Queue.Subqueue(req.DeadLetter)
		from := Source{subqueue: subqueue, Until: t.Now + c.Queue.Lock.Milliseconds()}
		if req.Session != nil {
			until, err := t.sessionHeld(req.Queue, *req.Session)
			if err != nil {
				return nil, err
			}
			from = Source{subqueue: subqueue, rank: firstSessionRank + req.Session.No, Until: until, session: true}
		}
		if err := t.used(req.Queue); err != nil {
			return nil, err
		}
		var bytes int64
		for _, seq := range seqs {
			var m Message
			_, err := t.Prep(sqlDeferredMessage).Int(seq).Int(int64(subqueue.Deferred())).One(func(r driver.Row) {
				if bytes += r.Int(columnSize); bytes <= req.MaxBytes || bytes == r.Int(columnSize) {
					m = readMessage(r, t.Now)
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
		return c.Messages, nil
	})
}
