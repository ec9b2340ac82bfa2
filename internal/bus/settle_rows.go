package bus

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// A settlement takes the subqueue that the message was received from, main or dead-letter, and
// the lock of that delivery. It returns forebay.ErrLockLost and changes nothing once the lock has
// ended, even if nobody has received the message since. While nobody may receive from the queue,
// messages are kept. Only settlements that give them back work (Service Bus documentation,
// "entity-suspend", and the description of EntityStatus).

// Complete deletes a message that has been processed.
func (s *Store) Complete(ctx context.Context, subqueue queue.Subqueue, l queue.Lock) error {
	failed, err := s.CompleteMany(ctx, subqueue, []queue.Lock{l})
	if err != nil {
		return err
	}
	return failed[0]
}

// CompleteMany deletes messages that have been processed, each by itself, and returns an error for
// each that it did not delete.
func (s *Store) CompleteMany(ctx context.Context, subqueue queue.Subqueue, locks []queue.Lock) (failed []error, err error) {
	o := Settling(subqueue, locks...)
	o.Rows = len(locks)
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) ([]error, error) {
		failed := make([]error, len(locks))
		return failed, t.Interleave(len(locks), func(i int) error {
			err := t.Deliveries.complete(subqueue, locks[i])
			if errors.Is(err, forebay.ErrLockLost) || errors.Is(err, entity.ErrReceiveDisabled) {
				failed[i], err = err, nil
			}
			return err
		})
	})
}

func (t *deliveryTx) complete(subqueue queue.Subqueue, l queue.Lock) error {
	if !t.W.Shared() { // one statement does for two
		rows, err := t.Prep(sqlDeleteHeld).Int(l.Seq).Int(l.Token).Int(t.Now).Int(int64(subqueue)).Int(int64(subqueue.Deferred())).Int(subqueue.Queue()).Count()
		if err == nil && rows == 0 {
			if _, err = t.heldToSettle(subqueue, l, nil); err == nil { // it says why
				err = forebay.ErrLockLost
			}
		}
		if err != nil {
			return err
		}
		return t.Prep(sqlDeleteBody).Int(l.Seq).Exec()
	}
	if _, err := t.heldToSettle(subqueue, l, nil); err != nil {
		return err
	}
	return t.DeleteMessage(l.Seq)
}

// sqlDeleteHeld deletes a message under the conditions of Deliveries.heldToSettle.
const sqlDeleteHeld = `
DELETE FROM messages WHERE seq = ?1 AND lock_token = ?2 AND visible_at + 0 > ?3 AND subqueue + 0 IN (?4, ?5)
  AND (flow < 16 OR (SELECT 1 FROM sessions s WHERE s.no = flow - 16 AND s.locked_until > ?3) = 1)
  AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.no = ?6 AND q.status >= 2)`

// Abandon gives a message back at once, in its old position; the delivery counts. A message that
// has had all its deliveries is dead-lettered.
func (s *Store) Abandon(ctx context.Context, q MessageQueue, subqueue queue.Subqueue, l queue.Lock, changed forebay.Properties) error {
	o := Settling(subqueue, l)
	o.Numbers = 1 // if it is dead-lettered and sent on
	return s.settleMessage(ctx, o, func(t *Tx) error {
		m, err := t.Deliveries.Held(subqueue, l, changed)
		if err != nil {
			return err
		}
		return t.Deliveries.abandon(q, subqueue, m)
	})
}

func (t *deliveryTx) abandon(q MessageQueue, subqueue queue.Subqueue, m HeldMessage) error {
	if subqueue.Kind() == queue.SubqueueMain && m.deliveries >= q.MaxDeliveries && !m.Expired(t.Now) {
		return t.DeadLetter(m.Seq, subqueue, message.Exceeded(m.deliveries))
	}
	return t.GiveBack(m, 0)
}

// Undeliver gives messages back because their receiver never saw them. The deliveries do not
// count. Messages whose lock has ended stay as they are.
func (s *Store) Undeliver(ctx context.Context, subqueue queue.Subqueue, locks []queue.Lock) error {
	return s.settleMessage(ctx, Settling(subqueue, locks...), func(t *Tx) error {
		return t.Interleave(len(locks), func(i int) error {
			if err := t.Deliveries.undeliver(subqueue, locks[i]); err != nil && forebay.CodeOf(err) != forebay.CodeLockLost {
				return err
			}
			return nil
		})
	})
}

// ReleaseMessage gives a message back at once, in its old position. The delivery does not count.
func (s *Store) ReleaseMessage(ctx context.Context, subqueue queue.Subqueue, l queue.Lock) error {
	return s.settleMessage(ctx, Settling(subqueue, l), func(t *Tx) error { return t.Deliveries.undeliver(subqueue, l) })
}

func (t *deliveryTx) undeliver(subqueue queue.Subqueue, l queue.Lock) error {
	m, err := t.Held(subqueue, l, nil)
	if err != nil {
		return err
	}
	return t.release(subqueue, m)
}

func (t *deliveryTx) release(subqueue queue.Subqueue, m HeldMessage) error {
	counted := 0
	if subqueue.Kind() == queue.SubqueueMain {
		counted = 1
	}
	return t.GiveBack(m, counted)
}

// Defer keeps a message in its queue, where only its sequence number finds it.
func (s *Store) Defer(ctx context.Context, subqueue queue.Subqueue, l queue.Lock, changed forebay.Properties) error {
	return s.settleMessage(ctx, Settling(subqueue, l), func(t *Tx) error {
		m, err := t.Deliveries.heldToSettle(subqueue, l, changed)
		if err != nil {
			return err
		}
		return t.Deliveries.unlock(m, m.Subqueue.Deferred(), 0)
	})
}

// DeadLettering says why a message is dead-lettered.
type DeadLettering = message.DeadLettering

// DeadLetter moves a message to its queue's dead-letter subqueue. The message keeps its sequence
// number and its delivery count.
func (s *Store) DeadLetter(ctx context.Context, subqueue queue.Subqueue, l queue.Lock, why DeadLettering, changed forebay.Properties) error {
	o := Settling(subqueue, l)
	o.Numbers = 1 // if it is dead-lettered and sent on
	return s.settleMessage(ctx, o, func(t *Tx) error {
		if _, err := t.Deliveries.heldToSettle(subqueue, l, changed); err != nil {
			return err
		}
		return t.DeadLetter(l.Seq, subqueue, why)
	})
}

// RenewMessage extends a lock to now + lock and returns when it will end. It refuses a session's
// message, which has the lock of its session.
func (s *Store) RenewMessage(ctx context.Context, subqueue queue.Subqueue, l queue.Lock, lock time.Duration) (until time.Time, err error) {
	return db.TransactIn(ctx, Key, s.Writer, Settling(subqueue, l), func(t *Tx) (time.Time, error) {
		m, err := t.Deliveries.Held(subqueue, l, nil)
		if err != nil {
			return until, err
		}
		if m.flow >= firstSessionFlow {
			return until, errRenewSession
		}
		until := t.Now + lock.Milliseconds()
		return driver.FromMillis(until), t.Prep("UPDATE messages SET visible_at = ? WHERE seq = ?").Int(until).Int(l.Seq).Exec()
	})
}

var errRenewSession = forebay.Errorf(forebay.CodeNotSupported, "the message is held by its session's lock; renew that")

func (s *Store) settleMessage(ctx context.Context, o db.Op, f func(*Tx) error) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

// Settling is what is known of the settlement of messages: it reads them, and their queue.
func Settling(subqueue queue.Subqueue, locks ...queue.Lock) db.Op {
	return db.Op{Stage: db.StageSettle, Local: true, Interleaves: true, Asks: func() []driver.Prefetch {
		asks := make([]driver.Prefetch, 0, len(locks)+1)
		for _, l := range locks {
			asks = append(asks, driver.NewPrefetch(sqlHeld, queue.MessageRow(l.Seq)).Int(l.Seq).Int(l.Token))
		}
		return append(asks, entity.Prefetch(subqueue.Queue()))
	}}
}

// HeldMessage is what a settlement needs to know of a message.
type HeldMessage struct {
	Seq        int64
	Subqueue   queue.Subqueue // the subqueue it was received from, or that one's deferred messages
	flow       int64
	deliveries int
	until      int64 // when the lock ends
	enqueuedAt int64
	expiresAt  int64 // 0: never
}

func (m HeldMessage) Expired(at int64) bool {
	return m.expiresAt > 0 && m.expiresAt <= at && m.Subqueue.Kind() == queue.SubqueueMain
}

// sqlHeld finds what a lock holds by its number, not along its subqueue.
const sqlHeld = `
SELECT m.subqueue, m.deliveries, m.flow, m.visible_at, b.expires_at, b.enqueued_at, (SELECT s.locked_until FROM sessions s WHERE s.no = m.flow - 16)
FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.seq = ? AND m.lock_token = ?`

// heldToSettle is Held for a settlement that takes the message away from receivers. While nobody
// may receive from the queue it is refused.
func (t *deliveryTx) heldToSettle(subqueue queue.Subqueue, l queue.Lock, changed forebay.Properties) (m HeldMessage, err error) {
	if m, err = t.Held(subqueue, l, nil); err == nil {
		err = t.checkReceives(subqueue.Queue())
	}
	if err != nil || len(changed) == 0 {
		return m, err
	}
	return m, t.change(l.Seq, changed)
}

// Held returns the message that the lock holds, and changes its properties. The lock of a
// session's message ends with the lock of its session.
func (t *deliveryTx) Held(subqueue queue.Subqueue, l queue.Lock, changed forebay.Properties) (m HeldMessage, err error) {
	if m, err = t.find(subqueue, l); err != nil || len(changed) == 0 {
		return m, err
	}
	return m, t.change(l.Seq, changed)
}

// find is Held without a change.
func (t *deliveryTx) find(subqueue queue.Subqueue, l queue.Lock) (m HeldMessage, err error) {
	found, err := t.Prep(sqlHeld).Int(l.Seq).Int(l.Token).One(func(r driver.Row) {
		m = HeldMessage{Seq: l.Seq, Subqueue: queue.Subqueue(r.Int(0)), deliveries: int(r.Int(1)), flow: r.Int(2), until: r.Int(3),
			expiresAt: r.Int(4), enqueuedAt: r.Int(5)}
		if m.flow >= firstSessionFlow {
			m.until = r.Int(6)
		}
	})
	found = found && m.until > t.Now && (m.Subqueue == subqueue || m.Subqueue == subqueue.Deferred())
	if err == nil && !found {
		err = forebay.ErrLockLost
	}
	return m, err
}

const sqlProperties = `
SELECT coalesce(b.properties, (SELECT s.properties FROM shared_bodies s WHERE s.no = b.shared)) FROM bodies b WHERE b.seq = ?`

// mergedProperties are a message's properties with those that its receiver has changed.
type mergedProperties struct {
	json  []byte
	grown int // bytes
}

// merge refuses changes that make the properties too large or too many.
func (t *deliveryTx) merge(seq int64, changed forebay.Properties) (mergedProperties, error) {
	var properties []byte
	if _, err := t.Prep(sqlProperties).Int(seq).One(func(r driver.Row) { properties = r.Blob(0) }); err != nil {
		return mergedProperties{}, err
	}
	merged, err := message.MergeProperties(properties, changed)
	return mergedProperties{merged, len(merged) - len(properties)}, err
}

func (t *deliveryTx) change(seq int64, changed forebay.Properties) error {
	merged, err := t.merge(seq, changed)
	if err != nil {
		return err
	}
	return t.setProperties(seq, merged)
}

func (t *deliveryTx) setProperties(seq int64, merged mergedProperties) error {
	if err := t.Prep("UPDATE bodies SET properties = ? WHERE seq = ?").Blob(merged.json).Int(seq).Exec(); err != nil {
		return err
	}
	return t.Prep("UPDATE messages SET size = size + ? WHERE seq = ?").Int(int64(merged.grown)).Int(seq).Exec()
}

// GiveBack ends a lock and takes so many deliveries off the count. A message whose time to live
// ended while it was locked expires now.
func (t *deliveryTx) GiveBack(m HeldMessage, deliveries int) error {
	if err := t.unlock(m, m.Subqueue, deliveries); err != nil || !m.Expired(t.Now) {
		return err
	}
	return t.ExpireMessage(m.Seq, m.Subqueue)
}

var sqlUnlock = driver.BatchForm(`
UPDATE messages SET visible_at = ?, lock_token = NULL, locked_at = NULL, subqueue = ?, deliveries = deliveries - ? WHERE seq = ?`, `
UPDATE messages m SET visible_at = p1, lock_token = NULL, locked_at = NULL, subqueue = p2, deliveries = deliveries - p3 FROM %s
WHERE m.seq = ANY (ARRAY[p4])`)

// unlock gives a message its old place in a subqueue.
func (t *deliveryTx) unlock(m HeldMessage, to queue.Subqueue, deliveries int) error {
	visible := m.enqueuedAt
	if m.flow >= firstSessionFlow {
		visible = sessionFree
	}
	if err := t.Prep(sqlUnlock).Int(visible).Int(int64(to)).Int(int64(deliveries)).Int(m.Seq).Exec(); err != nil {
		return err
	}
	if m.flow >= firstSessionFlow {
		t.sessions.wake(to.Queue(), m.flow-firstSessionFlow)
		return nil
	}
	t.forwarding.noteHeld(to)
	t.Queue.WakeAt(to, visible) // its old place: see package floors
	if q, found, err := t.MessageQueue(to.Queue()); err != nil || !found || q.ForwardTo == "" || to.Kind() != queue.SubqueueMain {
		return err
	}
	return t.due.markQueue(to.Queue(), t.Now) // it began to forward meanwhile
}
