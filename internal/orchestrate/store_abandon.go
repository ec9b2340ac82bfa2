package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
)

// AbandonOrchestration returns a work item without a result to its queue, ready after the delay.
// It may count as a lost delivery.
func (s *Store) AbandonOrchestration(ctx context.Context, item *OrchestrationItem, delay time.Duration, lost bool) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageSettle, Numbers: 1, Local: true, Interleaves: true}, func(t *tx) (struct{}, error) {
		at, more := t.Now+delay.Milliseconds(), int64(0)
		if lost {
			more = lostDeliveryUnit
		}
		workQueue, err := fencedQueue(t.Prep("UPDATE orchestration_items SET visible_at = ?, lock_token = NULL, deliveries = deliveries + ? WHERE instance = ? AND lock_token = ? RETURNING work_queue").
			Int(at).Int(more).Int(item.Instance).Int(item.Token))
		if err == nil {
			t.workItems().ready(workQueue, at)
		}
		return struct{}{}, err
	})
	return err
}
