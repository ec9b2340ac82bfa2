package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// A settlement of a plain message takes the subqueue it was received from (a queue's main or dead-letter
// subqueue) and the lock of that delivery. It returns forebay.ErrLockLost and changes nothing once the
// lock has ended, even if nobody else has received the message since.

// sqlHeldWhere finds what a lock holds, by its number and not along its subqueue; a session's message only while its session is held too.
const sqlHeldWhere = `seq = ?1 AND token = ?2 AND visible + 0 > ?3 AND lane + 0 IN (?4, ?5)
  AND (rank < 16 OR EXISTS (SELECT 1 FROM sessions s WHERE s.no = rank - 16 AND s.locked_until > ?3))`

// bindHeld binds the parameters of sqlHeldWhere.
func (t *busTx) bindHeld(sql string, subqueue Subqueue, l Lock) statement {
	return t.prep(sql).int(l.Seq).int(l.Token).int(t.now).int(int64(subqueue)).int(int64(subqueue.deferred()))
}

// Complete removes a message that has been dealt with.
func (s *BusStore) Complete(ctx context.Context, subqueue Subqueue, l Lock) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		if err := t.bindHeld("DELETE FROM messages WHERE "+sqlHeldWhere, subqueue, l).fenced(); err != nil {
			return err
		}
		return t.prep("DELETE FROM bodies WHERE seq = ?").int(l.Seq).exec()
	})
}

// Abandon gives a message back at once, in its old place; the delivery counts. A message that has had
// all its deliveries goes to the dead-letter subqueue.
func (s *BusStore) Abandon(ctx context.Context, q MessageQueue, subqueue Subqueue, l Lock, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		m, err := t.held(subqueue, l, changed)
		if err != nil {
			return err
		}
		if subqueue.Kind() == SubqueueMain && m.deliveries >= q.MaxDeliveries && !m.expired(t.now) {
			return t.deadLetter(l.Seq, subqueue, exceeded(m.deliveries))
		}
		return t.giveBack(m, 0)
	})
}

// Undeliver gives messages back as if they had not been delivered: their receiver never learned of
// them. A lock that has ended is left as it is.
func (s *BusStore) Undeliver(ctx context.Context, subqueue Subqueue, locks []Lock) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		for _, l := range locks {
			if err := t.undeliver(subqueue, l); err != nil && forebay.CodeOf(err) != forebay.CodeLockLost {
				return err
			}
		}
		return nil
	})
}

// ReleaseMessage gives a message back at once, in its old place, as if it had not been delivered.
func (s *BusStore) ReleaseMessage(ctx context.Context, subqueue Subqueue, l Lock) error {
	return s.settleMessage(ctx, func(t *busTx) error { return t.undeliver(subqueue, l) })
}

func (t *busTx) undeliver(subqueue Subqueue, l Lock) error {
	m, err := t.held(subqueue, l, nil)
	if err != nil {
		return err
	}
	counted := 0
	if subqueue.Kind() == SubqueueMain {
		counted = 1
	}
	return t.giveBack(m, counted)
}

// Defer keeps a message in its queue, where it can be received by its sequence number only.
func (s *BusStore) Defer(ctx context.Context, subqueue Subqueue, l Lock, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		m, err := t.held(subqueue, l, changed)
		if err != nil {
			return err
		}
		return t.unlock(l.Seq, m.subqueue.deferred(), 0)
	})
}

// DeadLettering says why a message is set aside.
type DeadLettering struct {
	Reason, Description string
}

// DeadLetter moves a message to its queue's dead-letter subqueue. It keeps its sequence number and
// its delivery count.
func (s *BusStore) DeadLetter(ctx context.Context, subqueue Subqueue, l Lock, why DeadLettering, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		if _, err := t.held(subqueue, l, changed); err != nil {
			return err
		}
		return t.deadLetter(l.Seq, subqueue, why)
	})
}

// RenewMessage extends a lock to now + lock and returns when it will end. A session's message has the
// lock of its session.
func (s *BusStore) RenewMessage(ctx context.Context, subqueue Subqueue, l Lock, lock time.Duration) (until time.Time, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageSettle}, func(t *busTx) (time.Time, error) {
		m, err := t.held(subqueue, l, nil)
		if err != nil {
			return until, err
		}
		if m.rank >= firstSessionRank {
			return until, errRenewSession
		}
		until := t.now + lock.Milliseconds()
		return fromMillis(until), t.prep("UPDATE messages SET visible = ? WHERE seq = ?").int(until).int(l.Seq).exec()
	})
}

var errRenewSession = forebay.Errorf(forebay.CodeNotSupported, "the message is held by its session's lock; renew that")

func (s *BusStore) settleMessage(ctx context.Context, f func(*busTx) error) error {
	_, err := transactIn(ctx, busKey, s.writer, op{stage: stageSettle}, func(t *busTx) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

// heldMessage is what a settlement needs to know of a message.
type heldMessage struct {
	seq        int64
	subqueue   Subqueue // where it stands: the subqueue it was received from, or that one's deferred messages
	rank       int64
	deliveries int
	expiresAt  int64 // 0: never
}

func (m heldMessage) expired(at int64) bool {
	return m.expiresAt > 0 && m.expiresAt <= at && m.subqueue.Kind() == SubqueueMain
}

const sqlHeld = `
SELECT lane, deliveries, rank, (SELECT b.expires_at FROM bodies b WHERE b.seq = messages.seq) FROM messages WHERE ` + sqlHeldWhere

// held returns the message that the lock holds, and changes its properties.
func (t *busTx) held(subqueue Subqueue, l Lock, changed forebay.Properties) (m heldMessage, err error) {
	found, err := t.bindHeld(sqlHeld, subqueue, l).one(func(r row) {
		m = heldMessage{seq: l.Seq, subqueue: Subqueue(r.int(0)), deliveries: int(r.int(1)), rank: r.int(2), expiresAt: r.int(3)}
	})
	switch {
	case err != nil:
		return m, err
	case !found:
		return m, forebay.ErrLockLost
	case len(changed) == 0:
		return m, nil
	}
	return m, t.changeProperties(l.Seq, changed)
}

const sqlProperties = `
SELECT coalesce(b.properties, (SELECT s.properties FROM shared_bodies s WHERE s.no = b.shared)) FROM bodies b WHERE b.seq = ?`

func (t *busTx) changeProperties(seq int64, changed forebay.Properties) error {
	var properties []byte
	if _, err := t.prep(sqlProperties).int(seq).one(func(r row) { properties = r.blob(0) }); err != nil {
		return err
	}
	merged, err := mergeProperties(properties, changed)
	if err != nil {
		return err
	}
	if err := t.prep("UPDATE bodies SET properties = ? WHERE seq = ?").blob(merged).int(seq).exec(); err != nil {
		return err
	}
	return t.prep("UPDATE messages SET size = size + ? WHERE seq = ?").int(int64(len(merged) - len(properties))).int(seq).exec()
}

// giveBack ends a lock and takes so many deliveries off the count. A message whose time has ended
// while it was locked expires now.
func (t *busTx) giveBack(m heldMessage, deliveries int) error {
	if err := t.unlock(m.seq, m.subqueue, deliveries); err != nil || !m.expired(t.now) {
		return err
	}
	return t.expireMessage(m.seq, m.subqueue)
}

const sqlUnlock = `
UPDATE messages SET visible = CASE WHEN rank >= 16 THEN 0 ELSE (SELECT enqueued_at FROM bodies b WHERE b.seq = messages.seq) END,
  token = NULL, locked_at = NULL, lane = ?, deliveries = deliveries - ? WHERE seq = ? RETURNING rank`

func (t *busTx) unlock(seq int64, to Subqueue, deliveries int) error {
	var rank int64
	if _, err := t.prep(sqlUnlock).int(int64(to)).int(int64(deliveries)).int(seq).one(func(r row) { rank = r.int(0) }); err != nil {
		return err
	}
	if rank >= firstSessionRank {
		t.wakeSession(to.Queue(), rank-firstSessionRank)
		return nil
	}
	t.queue.wakes(to, t.now)
	return nil
}
