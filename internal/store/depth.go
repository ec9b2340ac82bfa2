package store

import (
	"context"
	"time"
)

// Depth is what stands in the lanes of one queue for jobs, of all tenants. Each number is exact while no
// lane holds more of a kind at one priority than were counted; else there are at least so many.
type Depth struct {
	Queue      string
	Ready      int64 // may be delivered now, from either lane
	Scheduled  int64 // wait for a time: a scheduled start, a retry delay, a pause, their session's turn
	Locked     int64 // with a worker
	Retrying   int64 // in the retry lane, whatever they wait for there
	DeadLetter int64
	Quarantine int64
	OldestAge  time.Duration // of the message that has been ready longest; 0: none is
}

// longestLock bounds how far ahead the end of a lock can be: an index that does not know what is locked
// need not be read further.
const longestLock = 5 * time.Minute

// One look at all queues. Each part walks the index of one lane and priority and stops at the limit ?3,
// so that a million jobs that wait cost no more than as many as are counted. Rows themselves are looked
// up only where their time is within a lock's.
const sqlDepths = `
WITH kinds(kind) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3),
  ranks(rank) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
SELECT q.name, k.kind,
  (SELECT count(*) FROM (SELECT m.visible FROM messages m
    WHERE m.lane = q.no * 4 + k.kind AND m.rank = r.rank AND m.visible <= ?1 ORDER BY m.visible LIMIT ?3 + 0) x),
  (SELECT m.visible FROM messages m
    WHERE m.lane = q.no * 4 + k.kind AND m.rank = r.rank AND m.visible <= ?1 ORDER BY m.visible LIMIT 1),
  (SELECT count(*) FROM (SELECT m.visible FROM messages m
    WHERE m.lane = q.no * 4 + k.kind AND m.rank = r.rank AND m.visible > ?1 ORDER BY m.visible LIMIT ?3 + 0) x),
  (SELECT count(x.token) FROM (SELECT m.token FROM messages m
    WHERE m.lane = q.no * 4 + k.kind AND m.rank = r.rank AND m.visible > ?1 AND m.visible <= ?2 ORDER BY m.visible LIMIT ?3 + 0) x)
FROM queues q, kinds k, ranks r WHERE q.kind = 'jobs' ORDER BY q.no`

// Depths counts what stands in every queue for jobs, up to limit in each lane and priority.
func (s *Store) Depths(ctx context.Context, limit int64) (depths []Depth, err error) {
	err = s.read(ctx, func(c conn) error {
		depths = nil
		now := c.now()
		return c.prep(sqlDepths).int(now).int(now + longestLock.Milliseconds()).int(limit).each(func(r row) error {
			if name := r.text(0); len(depths) == 0 || depths[len(depths)-1].Queue != name {
				depths = append(depths, Depth{Queue: name})
			}
			d := &depths[len(depths)-1]
			ready, oldest, later, locked := r.int(2), r.int(3), r.int(4), r.int(5)
			switch kind := LaneKind(r.int(1)); kind {
			case LaneDeadLetter:
				d.DeadLetter += ready + later
			case LaneQuarantine:
				d.Quarantine += ready + later
			default:
				d.Ready += ready
				d.Locked += locked
				d.Scheduled += later - locked
				if oldest > 0 {
					d.OldestAge = max(d.OldestAge, time.Duration(now-oldest)*time.Millisecond)
				}
				if kind == LaneRetry {
					d.Retrying += ready + later
				}
			}
			return nil
		})
	})
	return depths, err
}
