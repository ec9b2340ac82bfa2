package store

import (
	"context"
	"time"
)

const sqlOldest = `
SELECT b.seq, b.enqueued_at, CASE WHEN m.rank IN (1, 2) OR m.lane <> b.lane THEN 0 WHEN m.token IS NULL THEN 1 WHEN m.rank < 16 AND m.visible <= ?2 THEN 1
  WHEN m.rank >= 16 AND (SELECT s.locked_until FROM sessions s WHERE s.no = m.rank - 16) <= ?2 THEN 1 ELSE 0 END
FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.lane = ?1 AND b.seq > ?3 ORDER BY b.seq LIMIT ?4 + 0`

// oldestAtOnce is how many messages are looked at together.
const oldestAtOnce = 1000

// DeleteBefore removes up to limit active messages of the subqueue that were enqueued before that time,
// the oldest first, and returns how many. Locked, deferred and scheduled ones stay.
func (s *BusStore) DeleteBefore(ctx context.Context, subqueue Subqueue, before time.Time, limit int) (deleted int, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageChange}, func(t *busTx) (int, error) {
		var seqs []int64
		for last, looked := int64(0), oldestAtOnce; looked == oldestAtOnce; {
			looked = 0
			err := t.prep(sqlOldest).int(int64(subqueue)).int(t.now).int(last).int(oldestAtOnce).each(func(r row) error {
				// Numbers are given in the order of enqueuing.
				if r.int(1) >= before.UnixMilli() || len(seqs) == limit {
					looked = 0
					return errStop
				}
				if last, looked = r.int(0), looked+1; r.int(2) != 0 {
					seqs = append(seqs, last)
				}
				return nil
			})
			if err := unlessStopped(err); err != nil {
				return 0, err
			}
		}
		for _, seq := range seqs {
			if err := t.deleteMessage(seq); err != nil {
				return 0, err
			}
		}
		if len(seqs) == 0 {
			return 0, nil
		}
		q, _, err := t.messageQueue(subqueue.Queue())
		if err != nil {
			return 0, err
		}
		return len(seqs), auditIn(t.tx, entityAudit(ctx, "purge", q, map[string]any{"deleted": len(seqs), "enqueued_before": before.UTC(), "dead_letters": subqueue.Kind() == SubqueueDeadLetter}))
	})
}

// CancelScheduled removes a message that was scheduled under that number and is not active yet. It
// reports whether there was one.
func (s *BusStore) CancelScheduled(ctx context.Context, q MessageQueue, seq int64) (cancelled bool, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: q.Tenant, rows: 1}, func(t *busTx) (bool, error) {
		rows, err := t.prep("DELETE FROM messages WHERE seq = ? AND lane + 0 = ? AND rank = ?").int(seq).int(int64(q.Subqueue(false))).int(scheduledRank).count()
		if err != nil || rows == 0 {
			return false, err
		}
		if err := t.prep("DELETE FROM bodies WHERE seq = ?").int(seq).exec(); err != nil {
			return false, err
		}
		return true, t.used(q)
	})
}
