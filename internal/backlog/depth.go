package backlog

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// Depth counts the messages of one queue for jobs, of all tenants or one. Each number is exact
// unless Capped is set; then there are at least so many.
type Depth struct {
	Queue      string
	Ready      int64 // may be delivered now, from the main or the retry subqueue
	Scheduled  int64 // wait for a time: a scheduled start, a retry delay, a pause, their session's turn
	Locked     int64 // with a worker
	Retrying   int64 // in the retry subqueue, whatever they wait for there
	DeadLetter int64
	Quarantine int64
	OldestAge  time.Duration // of the message that has been ready longest; 0: none is
	Capped     bool          // a count stopped at its limit
}

// longestLock bounds how far ahead a lock can end. The index does not tell what is locked, so
// rows are read only within that time.
const longestLock = 5 * time.Minute

// Counts of one flow. Each part reads along the index and stops at the limit ?5, so that a
// backlog of any length costs the same. Rows are read only where their time is within a lock's.
const sqlDepth = `
SELECT (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT ?5 + 0) x),
  (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT 1),
  (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 ORDER BY m.visible_at LIMIT ?5 + 0) x),
  (SELECT count(x.lock_token) FROM (SELECT m.lock_token FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 AND m.visible_at <= ?4 ORDER BY m.visible_at LIMIT ?5 + 0) x)`

// maxDepthFlows bounds the flows of a subqueue that are counted.
const maxDepthFlows = 1000

// Depths counts the messages of every queue for jobs, up to limit in each flow.
func (r *Reader) Depths(ctx context.Context, limit int64) (depths []Depth, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		depths = nil
		var queues []int64
		err := c.Prep("SELECT no, name FROM queues WHERE kind = 'jobs' ORDER BY no").Each(func(row driver.Row) error {
			queues, depths = append(queues, row.Int(0)), append(depths, Depth{Queue: row.Text(1)})
			return nil
		})
		if err != nil {
			return err
		}
		now := c.Now()
		for i, no := range queues {
			for _, kind := range jobSubqueues {
				subqueue := queue.SubqueueOf(no, kind)
				ids, err := depthFlows(c, flows.SQLList, subqueue)
				if err == nil {
					err = depths[i].count(c, subqueue, ids, now, limit)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return depths, err
}

// TenantDepth counts one tenant's messages in a queue for jobs: about limit of each kind in each
// subqueue at most, shared by the tenant's flows.
func (r *Reader) TenantDepth(ctx context.Context, queueID, tenant, limit int64) (depth Depth, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		depth = Depth{}
		now := c.Now()
		for _, kind := range jobSubqueues {
			subqueue := queue.SubqueueOf(queueID, kind)
			ids, err := depthFlows(c, sqlTenantFlows, subqueue, flows.ID(tenant, 0, forebay.MaxPriority), flows.ID(tenant+1, 0, forebay.MaxPriority))
			if err == nil {
				err = depth.count(c, subqueue, ids, now, max(limit/32, limit/int64(max(1, len(ids)))))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return depth, err
}

var jobSubqueues = []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry, queue.SubqueueDeadLetter, queue.SubqueueQuarantine}

// sqlTenantFlows is flows.SQLList for the flows of subqueue ?1 from ?2 on and below ?3.
const sqlTenantFlows = `
WITH RECURSIVE l(line) AS (SELECT min(flow) FROM messages WHERE subqueue = ?1 AND flow >= ?2 AND flow < ?3
  UNION ALL SELECT (SELECT min(m.flow) FROM messages m WHERE m.subqueue = ?1 AND m.flow > l.line AND m.flow < ?3) FROM l WHERE l.line IS NOT NULL)
SELECT line FROM l WHERE line IS NOT NULL`

// depthFlows returns the first flows, which are to be counted.
func depthFlows(c driver.Conn, sql string, subqueue queue.Subqueue, bounds ...int64) (ids []int64, err error) {
	st := c.Prep(sql).Int(int64(subqueue))
	for _, bound := range bounds {
		st = st.Int(bound)
	}
	err = st.Each(func(row driver.Row) error {
		if ids = append(ids, row.Int(0)); len(ids) == maxDepthFlows {
			return driver.ErrStop
		}
		return nil
	})
	return ids, driver.UnlessStopped(err)
}

// count adds the messages of some flows.
func (d *Depth) count(c driver.Conn, subqueue queue.Subqueue, ids []int64, now, limit int64) error {
	for _, flow := range ids {
		_, err := c.Prep(sqlDepth).Int(int64(subqueue)).Int(flow).Int(now).Int(now + longestLock.Milliseconds()).Int(limit).One(func(row driver.Row) {
			ready, oldest, later, locked := row.Int(0), row.Int(1), row.Int(2), row.Int(3)
			d.Capped = d.Capped || ready >= limit || later >= limit
			switch kind := subqueue.Kind(); kind {
			case queue.SubqueueDeadLetter:
				d.DeadLetter += ready + later
			case queue.SubqueueQuarantine:
				d.Quarantine += ready + later
			default:
				d.Ready += ready
				d.Locked += locked
				d.Scheduled += later - locked
				if oldest > 0 {
					d.OldestAge = max(d.OldestAge, time.Duration(now-oldest)*time.Millisecond)
				}
				if kind == queue.SubqueueRetry {
					d.Retrying += ready + later
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
