package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

// Where processes share a database, as on PostgreSQL, one statement renews or ends many locks.

// activityLock is the right to settle an attempt of an activity.
type activityLock struct{ instance, eventID, token int64 }

func (a *ActivityItem) lock() activityLock {
	return activityLock{a.Instance, int64(a.EventID), a.Token}
}

func bindActivityLocks(st driver.Statement, locks []activityLock) driver.Statement {
	instances, events, tokens := make([]int64, len(locks)), make([]int64, len(locks)), make([]int64, len(locks))
	for i, l := range locks {
		instances[i], events[i], tokens[i] = l.instance, l.eventID, l.token
	}
	return st.Text(driver.ArrayOf(instances)).Text(driver.ArrayOf(events)).Text(driver.ArrayOf(tokens))
}

// prefetchEnd is what endActivity asks.
func (a *ActivityItem) prefetchEnd() driver.Prefetch {
	return driver.NewPrefetch(statements.EndActivity, driver.RowName{Of: "orchestration_activities", No: a.Token}).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Changing()
}

// renewShared is renew with one round trip for each kind of work item.
func (t workItemTx) renewShared(orchestrations []*OrchestrationItem, activities []*ActivityItem, until int64, held func(token int64)) error {
	each := func(r driver.Row) error {
		held(r.Int(0))
		return nil
	}
	if len(orchestrations) > 0 {
		instances, tokens := make([]int64, len(orchestrations)), make([]int64, len(orchestrations))
		for i, item := range orchestrations {
			instances[i], tokens[i] = item.Instance, item.Token
		}
		if err := t.Prep(statements.RenewItems).Int(until).Text(driver.ArrayOf(instances)).Text(driver.ArrayOf(tokens)).Each(each); err != nil {
			return err
		}
	}
	if len(activities) == 0 {
		return nil
	}
	locks := make([]activityLock, len(activities))
	for i, a := range activities {
		locks[i] = a.lock()
	}
	return bindActivityLocks(t.Prep(statements.RenewActivities).Int(until), locks).Each(each)
}

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
			t.changed(item.Instance)
			t.workItems().ready(workQueue, at)
		}
		return struct{}{}, err
	})
	return err
}
