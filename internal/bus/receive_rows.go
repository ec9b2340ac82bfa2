package bus

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// ReceiveRequest asks for messages of a queue, of one of its sessions, or of its dead-letter
// subqueue.
type ReceiveRequest struct {
	Queue      MessageQueue
	DeadLetter bool
	Session    *SessionLock // of a queue that requires sessions; its dead-letter subqueue does not
	Max        int          // messages, at least 1
	MaxBytes   int64        // of all messages together; the first is delivered whatever its size
	Wait       bool         // wait for a first message as long as ctx allows
	Delete     bool         // delete messages as they are received; otherwise lock them
	Webhook    bool         // one message for the subscription's webhook, once its endpoint has capacity
}

// Receiver is a request for messages, or for a session, that waits in the writer.
type Receiver struct {
	ReceiveRequest
	queue.Waiter
	participant *Participant
	Subqueue    queue.Subqueue // the subqueue where it waits
	Messages    []Message
	bytes       int64 // size of Messages
	cut         bool  // the transaction has done enough on the way to its answer

	accept   bool // a session is wanted, not messages
	accepted *Session
}

// empty reports whether the receiver has no answer yet.
func (c *Receiver) empty() bool { return len(c.Messages) == 0 && c.accepted == nil && c.Err == nil }

func (c *Receiver) Visit() {
	var after func(*Receiver) bool
	if !c.Webhook { // a webhook whose endpoint is paused must not delay other receivers
		after = func(other *Receiver) bool { return other.Webhook }
	}
	if c.participant.Add(c.Subqueue, c, after); !c.Wait {
		c.participant.noWait = append(c.participant.noWait, c)
	}
}

// unserve makes a receiver wait again: it found nothing, or its transaction failed.
func (c *Receiver) unserve() {
	c.Messages, c.bytes, c.cut, c.accepted, c.Err = nil, 0, false, nil, nil
	c.State.Store(queue.ClaimWaiting)
}

// receiver returns the request in the form that waits in the writer.
func (req ReceiveRequest) receiver(p *Participant) *Receiver {
	subqueue := req.Queue.Subqueue(req.DeadLetter)
	if req.Session != nil {
		subqueue = req.Session.subqueue()
	}
	return &Receiver{ReceiveRequest: req, participant: p, Subqueue: subqueue, Waiter: queue.NewWaiter()}
}

// deliveryTx locks messages for receivers, and ends these locks.
type deliveryTx struct {
	*Tx
	ready   map[queue.Subqueue]*readyMessages // read for several receivers; nil: none
	served  []*Receiver
	bytes   int64 // of messages for them
	removed int   // messages that expired, or had all their deliveries, on the way
}

// maxRemoved is after how many of these receivers go on in the next transaction. All messages of a
// queue may have expired while no process ran.
const maxRemoved = dueBatch

// full reports whether the transaction has read as much for receivers as memory should take.
func (t *deliveryTx) full() bool { return t.bytes >= maxReadyBytes }

// Receive takes the messages that became ready first, in a session those with the lowest numbers.
// Each delivery counts, except in the dead-letter subqueue. A message that has had all its
// deliveries is dead-lettered instead, and one whose time to live has ended is not delivered.
func (s *Store) Receive(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	if err := Used(ctx, s.Writer, req.Queue); err != nil {
		return nil, err
	}
	c := req.receiver(Key.In(s.Writer))
	if err := queue.Await(ctx, s.Writer, c, &c.Waiter); err != nil {
		return nil, err
	}
	return c.Messages, nil
}

// serveReceivers gives ready messages and sessions to waiting receivers, oldest receiver first.
func (w *Participant) serveReceivers(t *db.Tx) error {
	var due []queue.Subqueue
	clear(w.behind)
	for subqueue := range w.Waiters {
		// Without a receiver there is no scan. A scan would find the subqueue empty, and the next
		// receiver would then wait until it is scanned again.
		if w.HasWaiters(subqueue) && w.Due(subqueue, t.Now) {
			due = append(due, subqueue)
		}
	}
	return t.Interleave(len(due), func(i int) error { return w.serveSubqueue(Key.Of(t), due[i]) })
}

// serveSubqueue gives what is ready in one subqueue to those who wait there.
func (w *Participant) serveSubqueue(t *Tx, subqueue queue.Subqueue) error {
	waiting, rest, cut := w.Waiters[subqueue], w.Waiters[subqueue], false
	for len(rest) > 0 && !t.Deliveries.full() {
		c := rest[0]
		if !c.Begin() {
			rest = rest[1:] // its caller has gone
			continue
		}
		t.Deliveries.served = append(t.Deliveries.served, c) // before anything can fail or panic
		if err := w.serveMessages(t, c); err != nil {
			return err
		}
		if c.empty() {
			cut = c.cut
			t.Deliveries.served = slices.DeleteFunc(t.Deliveries.served, func(other *Receiver) bool { return other == c })
			c.unserve()
			break
		}
		rest = rest[1:]
		t.Served++
	}
	if len(rest) < len(waiting) {
		if err := t.accessed(waiting[0].Queue.No); err != nil {
			return err
		}
	}
	w.behind[subqueue] = len(rest) > 0 && (cut || t.Deliveries.full())
	refusal, err := w.updateDue(t, subqueue, len(rest) > 0 && !w.behind[subqueue])
	if err != nil {
		return err
	}
	if w.behind[subqueue] {
		w.DueAt[subqueue] = t.Now
	} else if refusal != nil {
		if rest = w.refuseReceivers(t, rest, refusal); len(rest) == 0 {
			w.DueAt[subqueue] = 0 // the next one is to be refused as well
		}
	}
	t.After = append(t.After, func() {
		w.RemoveFirst(subqueue, len(waiting)-len(rest))
		if errors.Is(refusal, entity.ErrNoQueue) {
			w.Drop(subqueue, refusal)
		}
	})
	return nil
}

const sqlReadyMessages = messageColumns + `
WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.no = ?1 / 4 AND (q.status >= 2 OR q.kind = 'deleting'))
ORDER BY m.visible_at, m.seq LIMIT ?4 + 0`

// sqlReadyInSession finds the ready messages of a session while the session is locked.
const sqlReadyInSession = messageColumns + `
WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3
  AND EXISTS (SELECT 1 FROM sessions s WHERE s.no = ?2 - 16 AND s.queue + 0 = ?5 AND s.lock_token = ?6 AND s.locked_until > ?7)
  AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.no = ?5 AND (q.status >= 2 OR q.kind = 'deleting'))
ORDER BY m.visible_at, m.seq LIMIT ?4 + 0`

// prepReady prepares the statement that finds messages for a receiver.
func (t *deliveryTx) prepReady(from Source, c *Receiver, limit int) driver.Statement {
	sql, session := sqlReadyMessages, c.Session
	if session != nil {
		sql = sqlReadyInSession
	}
	st := t.Prep(sql).Int(int64(from.subqueue)).Int(from.flow).Int(from.before).Int(int64(limit))
	if session != nil {
		st = st.Int(c.Queue.No).Int(session.Token).Int(t.Now)
	}
	return st
}

// serveMessages takes the messages, or the session, that one receiver waits for.
func (w *Participant) serveMessages(t *Tx, c *Receiver) error {
	if c.accept {
		return t.sessions.acceptNext(c)
	}
	from := Source{subqueue: c.Subqueue, before: t.Now, Until: t.Now + c.Queue.Lock.Milliseconds()}
	if c.Webhook {
		return w.Webhooks.TakeFor(t, c, from)
	}
	if l := c.Session; l != nil {
		from.subqueue, from.flow, from.before, from.session = c.Queue.Subqueue(false), firstSessionFlow+l.No, sessionFree, true
		if err := t.Deliveries.TakeReady(from, c); err != nil || len(c.Messages) > 0 {
			return err
		}
		// The session has no messages, or its lock has ended.
		until, err := t.sessions.heldToReceive(c.Queue, *l)
		if errors.Is(err, forebay.ErrSessionLockLost) || errors.Is(err, entity.ErrReceiveDisabled) || errors.Is(err, entity.ErrNoQueue) {
			c.Err = err // the receiver's answer: it need not wait any longer
			return nil
		}
		if err != nil {
			return err
		}
		t.sessions.lockEnds(l.No, until)
		return nil
	}
	return t.Deliveries.TakeReady(from, c)
}

// Source is where messages are received from.
type Source struct {
	subqueue queue.Subqueue
	flow     int64
	before   int64 // messages visible by then are ready
	Until    int64 // when locks taken now end
	session  bool
}

// TakeReady takes ready messages for one receiver.
func (t *deliveryTx) TakeReady(from Source, c *Receiver) error {
	for {
		limit, taken := c.Max-len(c.Messages), len(c.Messages)
		var found []Message
		var more bool
		var err error
		if t.W.Shared() && !from.session {
			found, more, err = t.readyForMany(from, c, limit)
		} else {
			found, more, err = t.readyForOne(&from, c, limit)
		}
		if err != nil {
			return err
		}
		c.Messages = slices.Grow(c.Messages, len(found))
		for i := range found {
			if !from.session {
				t.W.floors.Taken(from.subqueue, found[i].visible)
			}
			if err := t.take(&found[i], from, c); err != nil {
				return err
			}
		}
		// Messages that expired or were dead-lettered leave room for others.
		elsewhere := taken+len(found) > len(c.Messages)
		if !elsewhere || !more && len(found) < limit {
			return nil
		}
		if c.cut = t.removed >= maxRemoved || !from.session && t.copied.Full(); c.cut { // the next scan continues
			return nil
		}
	}
}

// readyForOne reads up to limit messages that are ready for a receiver. more reports that there
// may be others even if it has found fewer. They would exceed what may be read at once.
func (t *deliveryTx) readyForOne(from *Source, c *Receiver, limit int) (found []Message, more bool, err error) {
	bytes := c.bytes
	err = t.prepReady(*from, c, limit).Each(func(r driver.Row) error {
		if from.session {
			from.Until = r.Int(columnUntil)
		}
		if bytes > 0 && bytes+r.Int(columnSize) > c.MaxBytes {
			more = true
			return driver.ErrStop
		}
		bytes += r.Int(columnSize)
		found = append(found, readMessage(r, t.Now))
		return nil
	})
	return found, more, driver.UnlessStopped(err)
}

// readyMessages are what was read of a subqueue for all receivers that wait there.
type readyMessages struct {
	list []Message
	all  bool // nothing else is ready
}

// sqlReadyForMany reads no more bytes than asked for, but one message at least.
const sqlReadyForMany = messageSelect + `, m.place FROM
  (SELECT m.*, sum(m.size) OVER ready AS total, row_number() OVER ready AS place FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at >= ?6 AND m.visible_at <= ?3 AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.no = ?1 / 4 AND (q.status >= 2 OR q.kind = 'deleting'))
    WINDOW ready AS (ORDER BY m.visible_at, m.seq ROWS UNBOUNDED PRECEDING)
    ORDER BY m.visible_at, m.seq LIMIT ?4 + 0) m
  JOIN bodies b ON b.seq = m.seq WHERE m.total <= ?5 OR m.place = 1`

// Bounds of what is read at once for receivers that wait in one subqueue.
const (
	maxReadyMessages = 1024
	maxReadyBytes    = 16 << 20
)

// readyForMany is readyForOne where a statement costs a round trip. It reads once for all
// receivers that wait in the subqueue.
func (t *deliveryTx) readyForMany(from Source, c *Receiver, limit int) (found []Message, more bool, err error) {
	ready := t.ready[from.subqueue]
	if ready == nil {
		ready = &readyMessages{}
		if t.ready == nil {
			t.ready = map[queue.Subqueue]*readyMessages{}
		}
		t.ready[from.subqueue] = ready
	}
	for bytes := c.bytes; len(found) < limit; {
		if len(ready.list) == 0 {
			if ready.all || len(found) > 0 { // those are not locked yet, and would be found again
				break
			}
			if err := t.readReady(from, c, ready); err != nil {
				return nil, false, err
			}
			continue
		}
		m := ready.list[0]
		if bytes > 0 && bytes+m.Size() > c.MaxBytes {
			more = true
			break
		}
		bytes += m.Size()
		found, ready.list = append(found, m), ready.list[1:]
	}
	return found, more || len(ready.list) == 0 && !ready.all, nil
}

func (t *deliveryTx) readReady(from Source, c *Receiver, ready *readyMessages) error {
	wanted, bytes := c.Max, c.MaxBytes
	for _, other := range t.W.Waiters[c.Subqueue] {
		if other != c && other.Waits() {
			wanted, bytes = wanted+other.Max, bytes+other.MaxBytes
		}
	}
	wanted, bytes = max(c.Max, min(wanted, maxReadyMessages)), max(c.MaxBytes, min(bytes, maxReadyBytes))
	places := map[int64]int64{} // the join need not keep the order
	err := t.Prep(sqlReadyForMany).Int(int64(from.subqueue)).Int(from.flow).Int(from.before).Int(int64(wanted)).Int(bytes).Int(t.W.floors.Ready(from.subqueue, t.Now)).Each(func(r driver.Row) error {
		ready.list = append(ready.list, readMessage(r, t.Now))
		places[r.Int(columnSeq)] = r.Int(columnPlace)
		return nil
	})
	slices.SortFunc(ready.list, func(a, b Message) int { return cmp.Compare(places[a.Seq], places[b.Seq]) })
	ready.all = len(ready.list) == 0
	return err
}

// take gives a ready message to the receiver, unless its time to live or its deliveries have run
// out.
func (t *deliveryTx) take(m *Message, from Source, c *Receiver) error {
	inDeadLetter := from.subqueue.Kind() == queue.SubqueueDeadLetter
	if !inDeadLetter && (m.expired(t.Now) || m.Deliveries >= c.Queue.MaxDeliveries) {
		t.removed++
		if err := t.Prefetch([]driver.Prefetch{entity.Prefetch(from.subqueue.Queue())}); err != nil { // once for all of the queue
			return err
		}
		if m.expired(t.Now) {
			return t.ExpireMessage(m.Seq, from.subqueue)
		}
		return t.DeadLetter(m.Seq, from.subqueue, message.Exceeded(c.Queue.MaxDeliveries))
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
	} else if err := t.lock(m, from); err != nil {
		return err
	}
	c.Messages = append(c.Messages, *m)
	c.bytes += m.Size()
	t.bytes += m.Size()
	return nil
}

// lastDelivery makes a message due when its lock ends, in case nobody receives from its queue
// again.
func (t *deliveryTx) lastDelivery(seq, until int64) error {
	t.DueBy(until)
	return t.Prep(sqlLastDelivery).Int(until).Int(seq).Int(until).Exec()
}

var sqlLastDelivery = driver.BatchForm("UPDATE bodies SET due_at = ? WHERE seq = ? AND (due_at IS NULL OR due_at > ?)",
	"UPDATE bodies b SET due_at = p1 FROM %s WHERE b.seq = ANY (ARRAY[p2]) AND (b.due_at IS NULL OR b.due_at > p3)")

func (t *deliveryTx) lock(m *Message, from Source) error {
	m.Token = queue.NewToken()
	until := driver.FromMillis(from.Until)
	m.LockedUntil = &until
	visible := from.Until
	if from.session {
		visible = sessionHeld
	} else {
		t.W.floors.Note(from.subqueue, visible, t.Now)
	}
	return t.Prep(sqlLockMessage).Int(visible).Int(m.Token).Int(t.Now).Int(int64(m.Deliveries)).Int(m.Seq).Exec()
}

var sqlLockMessage = driver.BatchForm("UPDATE messages SET visible_at = ?, lock_token = ?, locked_at = ?, deliveries = ? WHERE seq = ?",
	"UPDATE messages m SET visible_at = p1, lock_token = p2, locked_at = p3, deliveries = p4 FROM %s WHERE m.seq = ANY (ARRAY[p5])")

// Messages that are held do not count to the bytes of an answer.
const deferredAndFree = "m.subqueue + 0 = ?2 AND m.flow + 0 = ?3 AND (m.lock_token IS NULL OR m.visible_at <= ?4)"
const sqlDeferredMessage = messageColumns + "WHERE m.seq = ?1 AND " + deferredAndFree

// ReceiveDeferred takes deferred messages of the subqueue that are not locked, in the order
// given. The messages of a session are only for the receiver of the session.
func (s *Store) ReceiveDeferred(ctx context.Context, req ReceiveRequest, seqs []int64) ([]Message, error) {
	o := db.Op{Stage: db.StageChange, Party: req.Queue.Tenant, Rows: len(seqs), Local: true, Interleaves: true}
	o.Asks = func() []driver.Prefetch { return []driver.Prefetch{entity.Prefetch(req.Queue.No)} }
	for _, seq := range seqs {
		o.Touches = append(o.Touches, queue.MessageRow(seq))
	}
	if req.Session != nil {
		o.Touches = append(o.Touches, req.Session.row())
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) ([]Message, error) {
		if err := entity.CheckReceives(t.Conn, req.Queue.No); err != nil {
			return nil, err
		}
		c, subqueue := req.receiver(t.W), req.Queue.Subqueue(req.DeadLetter)
		from := Source{subqueue: subqueue, before: t.Now, Until: t.Now + c.Queue.Lock.Milliseconds()}
		if req.Session != nil {
			until, err := t.sessions.heldToReceive(req.Queue, *req.Session)
			if err != nil {
				return nil, err
			}
			from = Source{subqueue: subqueue, flow: firstSessionFlow + req.Session.No, before: sessionFree, Until: until, session: true}
		}
		if err := t.used(req.Queue); err != nil {
			return nil, err
		}
		if t.W.Shared() {
			err := t.Deliveries.takeDeferred(from, c, seqs)
			return c.Messages, err
		}
		var bytes int64
		for _, seq := range seqs {
			var m Message
			_, err := t.Prep(sqlDeferredMessage).Int(seq).Int(int64(subqueue.Deferred())).Int(from.flow).Int(from.before).One(func(r driver.Row) {
				if bytes += r.Int(columnSize); bytes <= req.MaxBytes || bytes == r.Int(columnSize) {
					m = readMessage(r, t.Now)
				}
			})
			if err == nil && m.Seq != 0 {
				err = t.Deliveries.take(&m, from, c)
			}
			if err != nil {
				return nil, err
			}
		}
		return c.Messages, nil
	})
}

// sqlDeferredMessages reads messages in the order of their numbers' array, no more bytes than
// asked for, but one message at least.
const sqlDeferredMessages = messageSelect + `, m.place FROM
  (SELECT m.*, sum(m.size) OVER chosen AS total, x.place FROM unnest(CAST(?1 AS bigint[])) WITH ORDINALITY AS x(no, place)
    JOIN messages m ON m.seq = x.no AND ` + deferredAndFree + ` WINDOW chosen AS (ORDER BY x.place ROWS UNBOUNDED PRECEDING)) m
  JOIN bodies b ON b.seq = m.seq WHERE m.total <= ?5 OR m.total = m.size`

// takeDeferred is ReceiveDeferred where a statement costs a round trip.
func (t *deliveryTx) takeDeferred(from Source, c *Receiver, seqs []int64) error {
	chosen := make(map[int64]Message, len(seqs))
	err := t.Prep(sqlDeferredMessages).Text(driver.ArrayOf(seqs)).Int(int64(from.subqueue.Deferred())).Int(from.flow).Int(from.before).Int(c.MaxBytes).Each(func(r driver.Row) error {
		chosen[r.Int(columnSeq)] = readMessage(r, t.Now)
		return nil
	})
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		if m, found := chosen[seq]; found {
			if err := t.take(&m, from, c); err != nil {
				return err
			}
		}
		delete(chosen, seq) // a number may be asked for twice
	}
	return nil
}
