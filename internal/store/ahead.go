package store

import (
	"context"
	"fmt"
	"math"
)

// Standing is where a job that is ready stands, and what holds jobs back.
type Standing struct {
	Ahead int64 // jobs of its lane that call the same and are claimed before it, at least
	More  bool  // there may be more than that
	Holding
}

// maxAheadLines is how many other lines of a lane are counted.
const maxAheadLines = 64

const sqlAheadInLine = `
SELECT count(*) FROM (SELECT visible FROM messages
  WHERE lane = ? AND rank = ? AND visible <= ? AND (visible < ? OR seq < ?) ORDER BY visible, seq LIMIT ? + 0) x`

// Of the other lines of its class in its lane: those whose level is before the job's, by priority and age; of other
// tenants at its priority all that is ready.
var sqlAheadInLines = sqlLinesOf + fmt.Sprintf(`
SELECT line, (SELECT count(*) FROM (SELECT m.visible FROM messages m WHERE m.lane = ?1 AND m.rank = l.line AND m.visible <= ?3
    AND m.visible <= CASE WHEN %[1]s = %[2]s THEN ?3 WHEN %[1]s < %[2]s THEN ?4 + (%[2]s - %[1]s) * ?5
      ELSE ?4 - (%[1]s - %[2]s) * %[3]d END
    ORDER BY m.visible LIMIT ?6 + 0) x)
FROM l WHERE line IS NOT NULL AND line <> ?2 AND %[4]s = %[5]s
  AND %[6]s NOT IN (SELECT no FROM tenants WHERE paused <> 0)
LIMIT ?7 + 0`, sqlLevelOf("l.line"), sqlLevelOf("?2"), ageing, sqlClassOf("line"), sqlClassOf("?2"), sqlTenantOf("line"))

// Standing estimates how many jobs are claimed before one that is ready, counting up to limit in each
// line of its lane by walking an index. Between tenants it is an estimate: while the job's tenant has its
// turns, each other one has as many, by their shares.
func (s *Store) Standing(ctx context.Context, job *JobRow, share Share, limit int64) (at Standing, err error) {
	weight := func(tenant int64) float64 {
		if w := share(tenant); w > 0 {
			return w
		}
		return 1
	}
	err = s.read(ctx, func(c conn) error {
		at = Standing{}
		if at.Holding, err = c.holding(); err != nil {
			return err
		}
		_, err := c.prep(sqlAheadInLine).int(job.lane).int(job.line).int(job.visible).int(job.visible).int(job.Seq).int(limit).
			one(func(r row) { at.Ahead = r.int(0) })
		if err != nil {
			return err
		}
		step := int64(ageing)
		if (at.Now-job.visible)/ageing >= job.line%ranksOfClass { // it has come to the first level, where the oldest goes first
			step = 0
		}
		alike := map[int64]int64{} // by tenant: at the same priority
		lines := 0
		err = c.prep(sqlAheadInLines).int(job.lane).int(job.line).int(at.Now).int(job.visible).int(step).int(limit).int(maxAheadLines).each(func(r row) error {
			lines++
			if line := r.int(0); line%ranksOfTenant == job.line%ranksOfTenant {
				alike[line/ranksOfTenant] = r.int(1)
			} else {
				at.Ahead += r.int(1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		own := float64(at.Ahead + 1)
		for tenant, n := range alike {
			at.Ahead += min(n, int64(math.Ceil(own*weight(tenant)/weight(job.Tenant))))
		}
		if at.Ahead >= limit || lines == maxAheadLines {
			at.Ahead, at.More = min(at.Ahead, limit), true
		}
		return nil
	})
	return at, err
}
