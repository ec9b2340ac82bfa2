package bus

import (
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

const sqlOldest = `
SELECT b.seq, b.enqueued_at, CASE WHEN m.flow IN (1, 2) OR m.subqueue <> b.subqueue THEN 0 WHEN m.lock_token IS NULL THEN 1 WHEN m.flow < 16 AND m.visible_at <= ?2 THEN 1
  WHEN m.flow >= 16 AND (SELECT s.locked_until FROM sessions s WHERE s.no = m.flow - 16) <= ?2 THEN 1 ELSE 0 END
FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.subqueue = ?1 AND b.seq > ?3 ORDER BY b.seq LIMIT ?4 + 0`

// oldestAtOnce is how many messages one statement reads.
const oldestAtOnce = 1000

// DeleteBefore deletes up to limit active messages of the subqueue that were enqueued before that
// time, the oldest first, and returns how many. Locked, deferred and scheduled messages stay.
func (s *Store) DeleteBefore(ctx context.Context, subqueue queue.Subqueue, before time.Time, limit int) (deleted int, err error) {
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true}
	if s.Writer.Shared() { // elsewhere it can wait for the next transaction
		o.Hints = audit.Appends{}
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{entity.Prefetch(subqueue.Queue())} }
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (int, error) {
		var seqs []int64
		for last, scanned := int64(0), oldestAtOnce; scanned == oldestAtOnce; {
			scanned = 0
			err := t.Prep(sqlOldest).Int(int64(subqueue)).Int(t.Now).Int(last).Int(oldestAtOnce).Each(func(r driver.Row) error {
				// Numbers are given in the order of enqueuing.
				if r.Int(1) >= before.UnixMilli() || len(seqs) == limit {
					scanned = 0
					return driver.ErrStop
				}
				if last, scanned = r.Int(0), scanned+1; r.Int(2) != 0 {
					seqs = append(seqs, last)
				}
				return nil
			})
			if err := driver.UnlessStopped(err); err != nil {
				return 0, err
			}
		}
		seqs = slices.DeleteFunc(seqs, func(seq int64) bool { return !t.forwarding.takes(seq) })
		for _, seq := range seqs {
			if err := t.DeleteMessage(seq); err != nil {
				return 0, err
			}
		}
		if len(seqs) == 0 {
			return 0, nil
		}
		q, _, err := t.MessageQueue(subqueue.Queue())
		if err != nil {
			return 0, err
		}
		return len(seqs), audit.Append(t.Tx, q.Act(ctx, "purge", map[string]any{"deleted": len(seqs), "enqueued_before": before.UTC(), "dead_letters": subqueue.Kind() == queue.SubqueueDeadLetter}))
	})
}

// CancelScheduled deletes the message that is scheduled under that number. It reports whether
// there was one that was not active yet.
func (s *Store) CancelScheduled(ctx context.Context, q MessageQueue, seq int64) (cancelled bool, err error) {
	o := db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: 1, Local: true, Interleaves: true, Touches: []driver.RowName{queue.MessageRow(seq)}}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (bool, error) {
		rows, err := t.Prep("DELETE FROM messages WHERE seq = ? AND subqueue + 0 = ? AND flow + 0 = ?").Int(seq).Int(int64(q.Subqueue(false))).Int(scheduledFlow).Count()
		if err != nil || rows == 0 {
			return false, err
		}
		if err := t.Prep(sqlDeleteBody).Int(seq).Exec(); err != nil {
			return false, err
		}
		return true, t.used(q)
	})
}
