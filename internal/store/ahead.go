package store

import (
	"context"

	"github.com/forebayhq/forebay/internal/quota"
)

// Standing is where a job that is ready stands, and what holds jobs back.
type Standing struct {
	Ahead       int64 // jobs of its lane that are claimed before it, at least
	More        bool  // there may be more than that
	Deployments map[string]*quota.State
	Now         int64 // by the database's clock
}

// A job's turn comes after those of a higher priority and those of its own that became ready earlier.
const (
	sqlAheadAlike = `
SELECT count(*) FROM (SELECT visible FROM messages
  WHERE lane = ? AND rank = ? AND visible <= ? AND (visible < ? OR seq < ?) ORDER BY visible, seq LIMIT ? + 0) x`
	sqlAheadHigher = `
WITH ranks(rank) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
  UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
SELECT (SELECT count(*) FROM (SELECT m.visible FROM messages m
  WHERE m.lane = ?1 AND m.rank = r.rank AND m.visible <= ?2 ORDER BY m.visible LIMIT ?3 + 0) x)
FROM ranks r WHERE r.rank < ?4`
)

// Standing counts how many jobs are ahead of one that is ready, up to limit, by walking an index.
func (s *Store) Standing(ctx context.Context, job *JobRow, limit int64) (at Standing, err error) {
	err = s.read(ctx, func(c conn) error {
		at = Standing{Deployments: map[string]*quota.State{}, Now: c.now()}
		_, err := c.prep(sqlAheadAlike).int(job.lane).int(job.rank).int(job.visible).int(job.visible).int(job.Seq).int(limit).
			one(func(r row) { at.Ahead = r.int(0) })
		if err != nil {
			return err
		}
		if job.rank > 0 && at.Ahead < limit {
			err = c.prep(sqlAheadHigher).int(job.lane).int(at.Now).int(limit).int(job.rank).each(func(r row) error {
				at.Ahead += r.int(0)
				return nil
			})
			if err != nil {
				return err
			}
		}
		if at.Ahead >= limit {
			at.Ahead, at.More = limit, true
		}
		return c.readDeployments(at.Deployments)
	})
	return at, err
}
