package store

import (
	"context"
	"errors"
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

// What stands in one line of a lane. Each part walks the index and stops at the limit ?5, so that a million
// jobs that wait cost no more than as many as are counted. Rows themselves are looked up only where their
// time is within a lock's.
const sqlDepth = `
SELECT (SELECT count(*) FROM (SELECT m.visible FROM messages m
    WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3 ORDER BY m.visible LIMIT ?5 + 0) x),
  (SELECT m.visible FROM messages m
    WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible <= ?3 ORDER BY m.visible LIMIT 1),
  (SELECT count(*) FROM (SELECT m.visible FROM messages m
    WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible > ?3 ORDER BY m.visible LIMIT ?5 + 0) x),
  (SELECT count(x.token) FROM (SELECT m.token FROM messages m
    WHERE m.lane = ?1 AND m.rank = ?2 AND m.visible > ?3 AND m.visible <= ?4 ORDER BY m.visible LIMIT ?5 + 0) x)`

// maxDepthLines bounds the lines of a lane that are counted: tenants times priorities.
const maxDepthLines = 1000

// Depths counts what stands in every queue for jobs, up to limit in each line of a lane.
func (s *Store) Depths(ctx context.Context, limit int64) (depths []Depth, err error) {
	err = s.read(ctx, func(c conn) error {
		depths = nil
		var queues []int64
		err := c.prep("SELECT no, name FROM queues WHERE kind = 'jobs' ORDER BY no").each(func(r row) error {
			queues, depths = append(queues, r.int(0)), append(depths, Depth{Queue: r.text(1)})
			return nil
		})
		if err != nil {
			return err
		}
		now := c.now()
		for i, no := range queues {
			for _, kind := range []LaneKind{LaneMain, LaneRetry, LaneDeadLetter, LaneQuarantine} {
				if err := depths[i].count(c, LaneOf(no, kind), now, limit); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return depths, err
}

// count adds what stands in a lane.
func (d *Depth) count(c conn, lane Lane, now, limit int64) error {
	var lines []int64
	err := c.prep(sqlLines).int(int64(lane)).each(func(r row) error {
		if lines = append(lines, r.int(0)); len(lines) == maxDepthLines {
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return err
	}
	for _, line := range lines {
		_, err := c.prep(sqlDepth).int(int64(lane)).int(line).int(now).int(now + longestLock.Milliseconds()).int(limit).one(func(r row) {
			ready, oldest, later, locked := r.int(0), r.int(1), r.int(2), r.int(3)
			switch kind := lane.Kind(); kind {
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
		})
		if err != nil {
			return err
		}
	}
	return nil
}
