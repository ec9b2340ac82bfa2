package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// MessageQueue is a queue of plain messages as stored.
type MessageQueue struct {
	No            int64 // given once, never again, even after the queue is deleted
	Tenant        int64
	Name          string // "<tenant>/<name>": no name of a queue of jobs holds a slash
	Lock          time.Duration
	MaxDeliveries int
	CreatedAt     time.Time
}

// Lane returns the lane of the queue itself or of its dead-letter subqueue.
func (q MessageQueue) Lane(deadLetter bool) Lane {
	if deadLetter {
		return LaneOf(q.No, LaneDeadLetter)
	}
	return LaneOf(q.No, LaneMain)
}

// deferred returns the lane of the deferred messages of a lane, and of that lane itself.
func (l Lane) deferred() Lane { return l | 1 }

const messageQueueColumns = "SELECT no, tenant, name, lock, max_deliveries, created_at FROM queues WHERE kind = 'messages' "

func readMessageQueue(r row) MessageQueue {
	return MessageQueue{No: r.int(0), Tenant: r.int(1), Name: r.text(2), Lock: time.Duration(r.int(3)) * time.Millisecond,
		MaxDeliveries: int(r.int(4)), CreatedAt: fromMillis(r.int(5))}
}

// PutMessageQueue makes the queue of that name and tenant, or gives it new settings. A tenant may
// have at most limit of them.
func (s *Store) PutMessageQueue(ctx context.Context, q MessageQueue, limit int) (stored MessageQueue, created bool, err error) {
	type put struct {
		MessageQueue
		created bool
	}
	p, err := transact(ctx, s, stageChange, func(t *tx) (p put, err error) {
		err = t.prep("UPDATE queues SET lock = ?, max_deliveries = ? WHERE name = ? AND kind = 'messages'").
			int(q.Lock.Milliseconds()).int(int64(q.MaxDeliveries)).text(q.Name).exec()
		if err != nil {
			return p, err
		}
		if p.created = t.Changes() == 0; p.created {
			if err := t.insertMessageQueue(q, limit); err != nil {
				return p, err
			}
		}
		_, err = t.prep(messageQueueColumns + "AND name = ?").text(q.Name).one(func(r row) { p.MessageQueue = readMessageQueue(r) })
		return p, err
	})
	return p.MessageQueue, p.created, err
}

func (t *tx) insertMessageQueue(q MessageQueue, limit int) error {
	var count, no int64
	if _, err := t.prep("SELECT count(*) FROM queues WHERE tenant = ? AND kind = 'messages'").int(q.Tenant).one(func(r row) { count = r.int(0) }); err != nil {
		return err
	}
	if count >= int64(limit) {
		return forebay.Errorf(forebay.CodeConflict, "a tenant may have at most %d queues of messages", limit)
	}
	_, err := t.prep("SELECT max(no) FROM (SELECT coalesce(max(no), 0) + 1 AS no FROM queues UNION ALL SELECT value FROM counters WHERE name = 'queue') AS used").
		one(func(r row) { no = r.int(0) })
	if err != nil {
		return err
	}
	return t.prep("INSERT INTO queues (no, name, created_at, kind, tenant, lock, max_deliveries) VALUES (?, ?, ?, 'messages', ?, ?, ?)").
		int(no).text(q.Name).int(t.now).int(q.Tenant).int(q.Lock.Milliseconds()).int(int64(q.MaxDeliveries)).exec()
}

const sqlCount = `
INSERT INTO counters (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = CASE WHEN counters.value > excluded.value THEN counters.value ELSE excluded.value END`

// seqBlock is how many sequence numbers are counted ahead.
const seqBlock = 1 << 12

// newSeq gives a message its sequence number. A completed message leaves no trace by which a restart
// could tell that its number was given, so the counter on disk is kept ahead of them, block by block.
func (t *tx) newSeq() (int64, error) {
	seq := t.w.nextSeq
	if seq >= t.w.reservedSeq {
		if err := t.prep(sqlCount).text("seq").int(seq + seqBlock).exec(); err != nil {
			return 0, err
		}
		t.w.reservedSeq = seq + seqBlock
	}
	t.w.nextSeq++
	return seq, nil
}

// MessageQueue returns the queue of that name, if there is one.
func (s *Store) MessageQueue(ctx context.Context, name string) (q MessageQueue, found bool, err error) {
	err = s.read(ctx, func(c conn) error {
		found, err = c.prep(messageQueueColumns + "AND name = ?").text(name).one(func(r row) { q = readMessageQueue(r) })
		return err
	})
	return q, found, err
}

// MessageQueues returns a tenant's queues by name.
func (s *Store) MessageQueues(ctx context.Context, tenant int64) (queues []MessageQueue, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(messageQueueColumns + "AND tenant = ? ORDER BY name").int(tenant).each(func(r row) error {
			queues = append(queues, readMessageQueue(r))
			return nil
		})
		return err
	})
	return queues, err
}

// DropMessageQueue makes the queue unknown and turns its receivers away; its messages go with
// [Store.PurgeDropped]. It reports whether the queue was there.
func (s *Store) DropMessageQueue(ctx context.Context, q MessageQueue) (dropped bool, err error) {
	return transact(ctx, s, stageChange, func(t *tx) (bool, error) {
		err := t.prep("UPDATE queues SET kind = 'deleting', name = '/deleting/' || CAST(no AS TEXT) WHERE no = ? AND kind = 'messages'").int(q.No).exec()
		if err != nil || t.Changes() == 0 {
			return false, err
		}
		t.after = append(t.after, func() { t.w.forgetQueue(q.No) })
		return true, t.prep(sqlCount).text("queue").int(q.No + 1).exec()
	})
}

// forgetQueue refuses the claims that wait for a queue and drops what is remembered of its lanes.
func (w *writer) forgetQueue(no int64) {
	for lane := no * laneKinds; lane < (no+1)*laneKinds; lane++ {
		for _, c := range w.parked[lane] {
			c.refuse(errNoQueue)
		}
		delete(w.parked, lane)
		delete(w.dueAt, lane)
		delete(w.ranks, lane)
	}
	delete(w.paused, no)
}

var errNoQueue = &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no such queue of messages"}

const purgeBatch = 500

// PurgeDropped removes the messages of dropped queues in small transactions, then the queues. What a
// crash leaves is removed at the next start.
func (s *Store) PurgeDropped(ctx context.Context) error {
	for {
		more, err := transact(ctx, s, stageChange, (*tx).purgeDropped)
		if err != nil || !more {
			return err
		}
	}
}

func (t *tx) purgeDropped() (more bool, err error) {
	var no int64
	found, err := t.prep("SELECT no FROM queues WHERE kind = 'deleting' LIMIT 1").one(func(r row) { no = r.int(0) })
	if err != nil || !found {
		return false, err
	}
	var seqs []int64
	err = t.prep("SELECT seq FROM bodies WHERE lane BETWEEN ?1 AND ?1 + 3 LIMIT ?2 + 0").int(no * laneKinds).int(purgeBatch).each(func(r row) error {
		seqs = append(seqs, r.int(0))
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, seq := range seqs {
		if err := t.deleteMessage(seq); err != nil {
			return false, err
		}
	}
	if len(seqs) == 0 {
		return true, t.prep("DELETE FROM queues WHERE no = ? AND kind = 'deleting'").int(no).exec()
	}
	return true, nil
}

// MessageCounts is what stands in a queue of messages.
type MessageCounts struct {
	Active, Scheduled, Locked, Deferred, DeadLetter int64
	OldestActive                                    int64 // since when; 0: none is active
}

const sqlMessageCounts = `
SELECT m.lane % 4, count(*),
  count(*) FILTER (WHERE m.visible <= ?2),
  count(*) FILTER (WHERE m.token IS NULL AND m.visible > ?2),
  count(*) FILTER (WHERE m.token IS NOT NULL AND m.visible > ?2),
  min(CASE WHEN m.visible <= ?2 THEN m.visible END)
FROM messages m WHERE m.lane BETWEEN ?1 AND ?1 + 3 GROUP BY m.lane % 4`

// MessageCounts counts a queue's messages.
func (s *Store) MessageCounts(ctx context.Context, q MessageQueue) (counts MessageCounts, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(sqlMessageCounts).int(q.No * laneKinds).int(now()).each(func(r row) error {
			switch lane := LaneOf(0, LaneKind(r.int(0))); lane {
			case LaneOf(0, LaneMain):
				counts.Active, counts.Scheduled, counts.Locked, counts.OldestActive = r.int(2), r.int(3), counts.Locked+r.int(4), r.int(5)
			case LaneOf(0, LaneMain).deferred():
				counts.Deferred = r.int(1) - r.int(4)
				counts.Locked += r.int(4)
			default:
				counts.DeadLetter += r.int(1)
			}
			return nil
		})
		return err
	})
	return counts, err
}
