package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// A settlement of a plain message takes the lane it was received from (a queue's main or dead-letter
// lane) and the lock of that delivery. It returns forebay.ErrLockLost and changes nothing once the
// lock has ended, even if nobody else has received the message since.

// Complete removes a message that has been dealt with.
func (s *Store) Complete(ctx context.Context, lane Lane, l Lock) error {
	return s.settleMessage(ctx, func(t *tx) error {
		err := t.prep("DELETE FROM messages WHERE seq = ? AND token = ? AND visible > ? AND lane IN (?, ?)").
			int(l.Seq).int(l.Token).int(t.now).int(int64(lane)).int(int64(lane.deferred())).exec()
		if err != nil {
			return err
		}
		if t.Changes() == 0 {
			return forebay.ErrLockLost
		}
		return t.prep("DELETE FROM bodies WHERE seq = ?").int(l.Seq).exec()
	})
}

const sqlUnlock = `
UPDATE messages SET visible = (SELECT enqueued_at FROM bodies b WHERE b.seq = messages.seq), token = NULL, locked_at = NULL,
  lane = ?, deliveries = deliveries - ? WHERE seq = ?`

// Abandon gives a message back at once, in its old place; the delivery counts. A message that has had
// all its deliveries goes to the dead-letter subqueue.
func (s *Store) Abandon(ctx context.Context, q MessageQueue, lane Lane, l Lock, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *tx) error {
		m, err := t.held(lane, l, changed)
		if err != nil {
			return err
		}
		if lane.Kind() == LaneMain && m.deliveries >= q.MaxDeliveries {
			return t.deadLetter(l.Seq, lane, exceeded(m.deliveries))
		}
		return t.unlock(l.Seq, m.lane, 0)
	})
}

// Undeliver gives messages back as if they had not been delivered: their receiver never learned of
// them. A lock that has ended is left as it is.
func (s *Store) Undeliver(ctx context.Context, lane Lane, locks []Lock) error {
	return s.settleMessage(ctx, func(t *tx) error {
		for _, l := range locks {
			m, err := t.held(lane, l, nil)
			if forebay.CodeOf(err) == forebay.CodeLockLost {
				continue
			}
			if err != nil {
				return err
			}
			counted := 0
			if lane.Kind() == LaneMain {
				counted = 1
			}
			if err := t.unlock(l.Seq, m.lane, counted); err != nil {
				return err
			}
		}
		return nil
	})
}

// Defer keeps a message in its queue, where it can be received by its sequence number only.
func (s *Store) Defer(ctx context.Context, lane Lane, l Lock, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *tx) error {
		m, err := t.held(lane, l, changed)
		if err != nil {
			return err
		}
		return t.unlock(l.Seq, m.lane.deferred(), 0)
	})
}

// DeadLettering says why a message is set aside.
type DeadLettering struct {
	Reason, Description string
}

// DeadLetter moves a message to its queue's dead-letter subqueue. It keeps its sequence number and
// its delivery count.
func (s *Store) DeadLetter(ctx context.Context, lane Lane, l Lock, why DeadLettering, changed forebay.Properties) error {
	return s.settleMessage(ctx, func(t *tx) error {
		if _, err := t.held(lane, l, changed); err != nil {
			return err
		}
		return t.deadLetter(l.Seq, lane, why)
	})
}

// RenewMessage extends a lock to now + lock and returns when it will end.
func (s *Store) RenewMessage(ctx context.Context, lane Lane, l Lock, lock time.Duration) (until time.Time, err error) {
	return transact(ctx, s, stageSettle, func(t *tx) (time.Time, error) {
		until := t.now + lock.Milliseconds()
		err := t.prep("UPDATE messages SET visible = ? WHERE seq = ? AND token = ? AND visible > ? AND lane IN (?, ?)").
			int(until).int(l.Seq).int(l.Token).int(t.now).int(int64(lane)).int(int64(lane.deferred())).exec()
		if err == nil && t.Changes() == 0 {
			err = forebay.ErrLockLost
		}
		return fromMillis(until), err
	})
}

func (s *Store) settleMessage(ctx context.Context, f func(*tx) error) error {
	_, err := transact(ctx, s, stageSettle, func(t *tx) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

// heldMessage is what a settlement needs to know of a message.
type heldMessage struct {
	lane       Lane // where it stands: the lane it was received from, or that one's deferred messages
	deliveries int
}

const sqlHeld = `
SELECT m.lane, m.deliveries, CASE WHEN ? <> 0 THEN b.properties END
FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.seq = ? AND m.token = ? AND m.visible > ? AND m.lane IN (?, ?)`

// held returns the message that the lock holds, and changes its properties.
func (t *tx) held(lane Lane, l Lock, changed forebay.Properties) (m heldMessage, err error) {
	var properties []byte
	read := int64(min(len(changed), 1))
	found, err := t.prep(sqlHeld).int(read).int(l.Seq).int(l.Token).int(t.now).int(int64(lane)).int(int64(lane.deferred())).one(func(r row) {
		m.lane, m.deliveries, properties = Lane(r.int(0)), int(r.int(1)), r.blob(2)
	})
	if err != nil {
		return m, err
	}
	if !found {
		return m, forebay.ErrLockLost
	}
	if len(changed) == 0 {
		return m, nil
	}
	merged, err := mergeProperties(properties, changed)
	if err != nil {
		return m, err
	}
	if err := t.prep("UPDATE bodies SET properties = ? WHERE seq = ?").blob(merged).int(l.Seq).exec(); err != nil {
		return m, err
	}
	return m, t.prep("UPDATE messages SET size = size + ? WHERE seq = ?").int(int64(len(merged) - len(properties))).int(l.Seq).exec()
}

// unlock ends a lock. It takes so many deliveries off the count.
func (t *tx) unlock(seq int64, to Lane, deliveries int) error {
	if err := t.prep(sqlUnlock).int(int64(to)).int(int64(deliveries)).int(seq).exec(); err != nil {
		return err
	}
	t.due(to, 0, t.now)
	return nil
}

// deadLetter moves a message from a queue's lane to its dead-letter lane.
func (t *tx) deadLetter(seq int64, from Lane, why DeadLettering) error {
	to := LaneOf(from.Queue(), LaneDeadLetter)
	if err := t.prep("UPDATE messages SET lane = ?, visible = ?, token = NULL, locked_at = NULL WHERE seq = ?").
		int(int64(to)).int(t.now).int(seq).exec(); err != nil {
		return err
	}
	t.due(to, 0, t.now)
	return t.prep("UPDATE bodies SET lane = ?, dead_letter_reason = ?, dead_letter_description = ? WHERE seq = ?").
		int(int64(to)).textOrNull(why.Reason).textOrNull(why.Description).int(seq).exec()
}
