package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Renew extends the locks to now + lock and reports for each whether it still held.
func (s *Store) Renew(ctx context.Context, locks []queue.Lock, lock time.Duration) (held []bool, err error) {
	o := db.Op{Stage: db.StageSettle, Local: true, Interleaves: true}
	for _, l := range locks {
		o.Touches = append(o.Touches, queue.MessageRow(l.Seq))
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) ([]bool, error) {
		until := t.Now + lock.Milliseconds()
		if t.w.Shared() {
			return t.renewShared(locks, until)
		}
		return t.renew(locks, until)
	})
}

func (t *Tx) renew(locks []queue.Lock, until int64) (held []bool, err error) {
	held = make([]bool, len(locks))
	for i, l := range locks {
		rows, err := t.Prep("UPDATE messages SET visible_at = ? WHERE seq = ? AND lock_token = ?").Int(until).Int(l.Seq).Int(l.Token).Count()
		if err != nil {
			return nil, err
		}
		held[i] = rows > 0
	}
	return held, nil
}
