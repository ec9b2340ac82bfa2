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

// DeleteBefore deletes up to limit active messages of the subqueue that were enqueued before that
// time, the oldest first, and returns how many. Locked, deferred and scheduled messages stay. They
// may be many, so they are passed over outside of the transaction.
func (s *Store) DeleteBefore(ctx context.Context, subqueue queue.Subqueue, before time.Time, limit int) (deleted int, err error) {
	for after := int64(0); ; {
		found, err := s.Oldest(ctx, subqueue, before, after, limit)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		deleted, err := s.deleteFree(ctx, subqueue, before, found)
		if err != nil || deleted > 0 || len(found) < limit {
			return deleted, err
		}
		after = found[len(found)-1] // all of these were taken meanwhile
	}
}

// deleteFree deletes those of the messages that are still free.
func (s *Store) deleteFree(ctx context.Context, subqueue queue.Subqueue, before time.Time, found []int64) (deleted int, err error) {
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true}
	if s.Writer.Shared() { // elsewhere it can wait for the next transaction
		o.Hints = audit.Appends{}
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{entity.Prefetch(subqueue.Queue())} }
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (int, error) {
		seqs, err := entity.Free(t.Conn, subqueue, found, t.Now)
		if err != nil {
			return 0, err
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
