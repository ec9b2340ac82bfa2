package backlog

import (
	"context"
	"math"
	"strings"
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

// TenantDepth counts one tenant's messages in a queue for jobs: at most limit of each kind in each
// subqueue, shared by the tenant's flows.
func (r *Reader) TenantDepth(ctx context.Context, queueID, tenant, limit int64) (depth Depth, err error) {
	return r.depth(ctx, queueID, flows.ID(tenant, 0, forebay.MaxPriority), flows.ID(tenant+1, 0, forebay.MaxPriority), limit)
}

// QueueDepth is TenantDepth for all tenants together.
func (r *Reader) QueueDepth(ctx context.Context, queueID, limit int64) (depth Depth, err error) {
	return r.depth(ctx, queueID, 0, math.MaxInt64, limit)
}

// depth counts the messages of flows from one on and below another.
func (r *Reader) depth(ctx context.Context, queueID, from, below, limit int64) (depth Depth, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		depth = Depth{}
		now := c.Now()
		for _, kind := range jobSubqueues {
			if err := depth.share(c, queue.SubqueueOf(queueID, kind), from, below, now, limit); err != nil {
				return err
			}
		}
		return nil
	})
	return depth, err
}

// share counts the messages of flows, at most limit of each kind. It first counts a few of each
// flow. What is left of the limit is then shared by flows that have more.
func (d *Depth) share(c driver.Conn, subqueue queue.Subqueue, from, below, now, limit int64) error {
	each := max(1, limit/maxDepthFlows)
	counted, err := countFlows(c, subqueue, from, below, now, each)
	if err != nil {
		return err
	}
	left, more := limit, int64(0)
	for _, f := range counted {
		if f.ready >= each || f.later >= each {
			more++
		} else {
			left -= max(f.ready, f.later)
		}
	}
	if more > 0 {
		each = max(each, left/more)
		if counted, err = countFlows(c, subqueue, from, below, now, each); err != nil {
			return err
		}
	}
	for _, f := range counted {
		d.add(subqueue.Kind(), f, now, each)
	}
	d.Capped = d.Capped || len(counted) == maxDepthFlows
	return nil
}

var jobSubqueues = []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry, queue.SubqueueDeadLetter, queue.SubqueueQuarantine}

// sqlFlowDepths is sqlDepth for each flow of subqueue ?1 from ?6 on and below ?2, up to ?7 flows.
var sqlFlowDepths = `
WITH RECURSIVE l(line) AS (SELECT min(flow) FROM messages WHERE subqueue = ?1 AND flow >= ?6 AND flow < ?2
  UNION ALL SELECT (SELECT min(m.flow) FROM messages m WHERE m.subqueue = ?1 AND m.flow > l.line AND m.flow < ?2) FROM l WHERE l.line IS NOT NULL)
` + strings.ReplaceAll(sqlDepth, "m.flow = ?2", "m.flow = bounded.line") + `
FROM (SELECT line FROM l WHERE line IS NOT NULL LIMIT ?7 + 0) bounded`

// flowDepth counts the messages of one flow.
type flowDepth struct{ ready, oldest, later, locked int64 }

// countFlows counts up to limit messages of each kind in each flow.
func countFlows(c driver.Conn, subqueue queue.Subqueue, from, below, now, limit int64) (counted []flowDepth, err error) {
	err = c.Prep(sqlFlowDepths).Int(int64(subqueue)).Int(below).Int(now).Int(now + longestLock.Milliseconds()).Int(limit).Int(from).Int(maxDepthFlows).
		Each(func(row driver.Row) error {
			counted = append(counted, flowDepthOf(row))
			return nil
		})
	return counted, err
}

func flowDepthOf(row driver.Row) flowDepth {
	return flowDepth{row.Int(0), row.Int(1), row.Int(2), row.Int(3)}
}

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
			d.add(subqueue.Kind(), flowDepthOf(row), now, limit)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds what was counted of a flow, up to limit of each kind.
func (d *Depth) add(kind queue.SubqueueKind, f flowDepth, now, limit int64) {
	d.Capped = d.Capped || f.ready >= limit || f.later >= limit
	switch kind {
	case queue.SubqueueDeadLetter:
		d.DeadLetter += f.ready + f.later
	case queue.SubqueueQuarantine:
		d.Quarantine += f.ready + f.later
	default:
		d.Ready += f.ready
		d.Locked += f.locked
		d.Scheduled += f.later - f.locked
		if f.oldest > 0 {
			d.OldestAge = max(d.OldestAge, time.Duration(now-f.oldest)*time.Millisecond)
		}
		if kind == queue.SubqueueRetry {
			d.Retrying += f.ready + f.later
		}
	}
}
