package retention

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/jobs"
)

// query selects jobs by when they ended.
type query struct {
	Tenant int64 // 0: every tenant's
	// Ended has, for a terminal status, the time before which a job must have ended with it. Jobs
	// of other statuses are kept. So are dead-lettered and quarantined jobs.
	Ended map[forebay.Status]time.Time
	// SetAside is the time before which a job must have been dead-lettered or quarantined; zero:
	// all of those are kept.
	SetAside time.Time
}

// newest is the time from which on no job can be selected, because a job is made before it ends.
func (q *query) newest() int64 {
	newest := q.SetAside
	for _, at := range q.Ended {
		if at.After(newest) {
			newest = at
		}
	}
	return driver.MillisOrZero(newest)
}

// bind binds ?3, the tenant, and the parameters of sqlSelected.
func (q *query) bind(st driver.Statement) driver.Statement {
	st = st.Int(q.Tenant)
	for _, status := range []forebay.Status{forebay.StatusSucceeded, forebay.StatusFailed, forebay.StatusCancelled, forebay.StatusExpired} {
		st = st.Int(driver.MillisOrZero(q.Ended[status]))
	}
	return st.Int(driver.MillisOrZero(q.SetAside))
}

// sqlSelected is the condition on a job's outcome o and, if it has them, its message m and its
// line b of a batch. A redrive deletes the outcome, so a job that has one is over. A batch that is
// not over needs its lines.
const sqlSelected = `
(m.seq IS NULL AND o.completed_at < CASE o.status WHEN 'succeeded' THEN ?4 WHEN 'failed' THEN ?5 WHEN 'cancelled' THEN ?6 ELSE ?7 END
  OR m.subqueue % 4 >= 2 AND m.visible_at < ?8) AND b.batch IS NULL`

// Jobs are numbered in the order of their creation, so the oldest are found without an index by
// time.
const sqlPurgeable = `
SELECT j.seq, j.created_at, CASE WHEN (?3 = 0 OR j.tenant = ?3) AND ` + sqlSelected + ` THEN 1 ELSE 0 END
FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq LEFT JOIN messages m ON m.seq = j.seq LEFT JOIN batch_lines b ON b.seq = j.seq
WHERE j.seq > ?1 ORDER BY j.seq LIMIT ?2 + 0`

// stretch is a range of jobs by their numbers, some of which can be purged.
type stretch struct {
	First, Last int64
	Count       int  // how many were found in it
	More        bool // there may be others after Last
}

// Bounds of one step: of what it reads, and of what one transaction deletes.
const (
	purgeScan    = 5000
	purgedAtOnce = 200
	// After so many young jobs in a row, all later ones are young. A few may be out of order,
	// stored by a clock that was wrong.
	youngInARow = 500
)

// next finds the next jobs of the query above a number. It only reads.
func (s *Service) next(ctx context.Context, q query, above int64) (step stretch, err error) {
	newest := q.newest()
	err = s.store.Read(ctx, func(c driver.Conn) error {
		seen, young, now := 0, 0, s.store.Now().UnixMilli()
		step = stretch{First: above + 1, Last: above}
		st := q.bind(c.Prep(sqlPurgeable).Int(above).Int(purgeScan))
		err := driver.UnlessStopped(st.Each(func(r driver.Row) error {
			seen++
			switch at := r.Int(1); {
			case at > now: // by a clock that was ahead; it tells nothing of later jobs
			case at >= newest:
				if young++; young >= youngInARow {
					return driver.ErrStop
				}
			default:
				young = 0
			}
			if step.Last = r.Int(0); r.Int(2) == 0 {
				return nil
			}
			if step.Count++; step.Count == 1 {
				step.First = step.Last
			}
			if step.Count == purgedAtOnce {
				step.More = true
				return driver.ErrStop
			}
			return nil
		}))
		step.More = step.More || seen == purgeScan
		return err
	})
	return step, err
}

// Each statement bounds every table by the stretch, so that none is scanned as a whole.
const (
	sqlPurgeJobs = `
DELETE FROM jobs WHERE seq >= ?1 AND seq <= ?2 AND (?3 = 0 OR tenant = ?3) AND EXISTS (
  SELECT 1 FROM outcomes o LEFT JOIN messages m ON m.seq = o.seq AND m.seq >= ?1 AND m.seq <= ?2
  LEFT JOIN batch_lines b ON b.seq = o.seq AND b.seq >= ?1 AND b.seq <= ?2
  WHERE o.seq = jobs.seq AND o.seq >= ?1 AND o.seq <= ?2 AND ` + sqlSelected + `) RETURNING input_blob`

	sqlPurgeOutcomes = `
DELETE FROM outcomes WHERE seq >= ?1 AND seq <= ?2
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = outcomes.seq AND j.seq >= ?1 AND j.seq <= ?2) RETURNING result_blob`

	sqlPurgeAttempts = `
DELETE FROM attempts WHERE seq >= ?1 AND seq <= ?2
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = attempts.seq AND j.seq >= ?1 AND j.seq <= ?2)`

	sqlPurgeEvents = `
DELETE FROM events WHERE seq >= ?1 AND seq <= ?2
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = events.seq AND j.seq >= ?1 AND j.seq <= ?2)`

	// Plain messages in dead-letter subqueues have a body.
	sqlPurgeSetAside = `
DELETE FROM messages WHERE seq >= ?1 AND seq <= ?2 AND subqueue % 4 >= 2
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = messages.seq AND j.seq >= ?1 AND j.seq <= ?2)
  AND NOT EXISTS (SELECT 1 FROM bodies b WHERE b.seq = messages.seq AND b.seq >= ?1 AND b.seq <= ?2)`
)

// removed is what a purge removed.
type removed struct {
	Jobs  int
	Blobs []string // keys that nothing refers to any more
}

// remove deletes those jobs of the stretch that the query selects, with their outcomes, attempts
// and events. Their idempotency keys stay until they are forgotten, so that no repeat makes the
// job again. If entry is not nil, it is written in the same transaction, unless nothing was
// deleted.
func (s *Service) remove(ctx context.Context, q query, step stretch, entry *audit.Act) (removed, error) {
	return db.TransactIn(ctx, jobs.Key, s.store.Writer, db.Op{Stage: db.StageChange}, func(t *jobs.Tx) (p removed, err error) {
		if err := t.TellEvents(); err != nil { // of jobs that are deleted
			return p, err
		}
		rows := func(sql string) driver.Statement { return t.Prep(sql).Int(step.First).Int(step.Last) }
		err = q.bind(rows(sqlPurgeJobs)).Each(func(r driver.Row) error {
			p.Jobs++
			p.addBlob(r.Text(0))
			return nil
		})
		if err != nil || p.Jobs == 0 {
			return p, err
		}
		err = rows(sqlPurgeOutcomes).Each(func(r driver.Row) error {
			p.addBlob(r.Text(0))
			return nil
		})
		if err != nil {
			return p, err
		}
		rest := []string{sqlPurgeAttempts, sqlPurgeEvents}
		if !q.SetAside.IsZero() {
			rest = append(rest, sqlPurgeSetAside)
		}
		for _, sql := range rest {
			if err := rows(sql).Exec(); err != nil {
				return p, err
			}
		}
		if !s.store.Shared() { // a restart continues from the highest number that it finds
			if err := t.Prep(schema.SQLCount).Text("seq").Int(step.Last + 1).Exec(); err != nil {
				return p, err
			}
		}
		if entry == nil {
			return p, nil
		}
		return p, audit.Append(t.Tx, *entry)
	})
}

func (p *removed) addBlob(key string) {
	if key != "" {
		p.Blobs = append(p.Blobs, key)
	}
}

// forgetKeys removes up to limit idempotency keys made before that time and returns their number.
func (s *Service) forgetKeys(ctx context.Context, before time.Time, limit int) (int, error) {
	return db.Transact(ctx, s.store.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (int, error) {
		return t.Prep(`DELETE FROM idempotency WHERE no IN
			(SELECT no FROM (SELECT no, created_at FROM idempotency ORDER BY no LIMIT ? + 0) AS oldest WHERE created_at < ?)`).
			Int(int64(limit)).Int(before.UnixMilli()).Count()
	})
}
