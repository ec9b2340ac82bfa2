package store

import (
	"context"
	"time"
)

// Renew extends the locks to now + lock and reports for each whether it still held.
func (s *JobStore) Renew(ctx context.Context, locks []Lock, lock time.Duration) (held []bool, err error) {
	return transactIn(ctx, jobsKey, s.writer, op{stage: stageSettle}, func(t *jobsTx) ([]bool, error) {
		until := t.now + lock.Milliseconds()
		if t.w.shared() {
			return t.renewShared(locks, until)
		}
		return t.renew(locks, until)
	})
}

func (t *jobsTx) renew(locks []Lock, until int64) (held []bool, err error) {
	held = make([]bool, len(locks))
	for i, l := range locks {
		rows, err := t.prep("UPDATE messages SET visible = ? WHERE seq = ? AND token = ?").int(until).int(l.Seq).int(l.Token).count()
		if err != nil {
			return nil, err
		}
		held[i] = rows > 0
	}
	return held, nil
}
