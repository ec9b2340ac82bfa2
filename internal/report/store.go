// Package report counts attempts by the hour and answers the retry report from these sums. So a
// report costs the same however many attempts there were.
//
// # Reports
//
// A transaction adds up the attempts that it records by tenant, hour, task, deployment, number
// and outcome, with their tokens and cost. It adds each sum to its row of attempt_hours. Each sum
// is kept once more for all tenants together, as that of tenant 0. On PostgreSQL a sum may have a
// few rows, its parts, of which reports add up all. What a worker adds to an attempt later moves
// it from one sum to another.
//
// When a day is over, its hours are added up to rows of usage_days: of each tenant for each task
// and deployment, and for all. What is counted of such a day later is added to both. A report
// reads as many rows as there are sums in its days, and in the hours that have no day yet.
package report

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps the sums.
type Store struct{ *queue.Store }

func (s *Store) Attach(*db.DB) {}
func (s *Store) Join(w *db.Writer) {
	Key.Join(w, &participant{Writer: w, hours: newParts(w)})
}

// Key finds the part of a transaction that counts its attempts.
var Key = db.NewKey(func(t *db.Tx, p *participant) *Tx { return &Tx{Tx: t, w: p} })

type participant struct {
	*db.Writer
	db.Passive
	codes map[tenantHour]map[string]bool // error codes that were counted; nil: none is read yet
	hours parts
	made  knownPlace
}

// Tx counts the attempts of a transaction. It writes each sum once, before the commit.
type Tx struct {
	*db.Tx
	w     *participant
	hours map[hourKey]hourSum
	read  map[tenantHour]bool // the hours whose codes this transaction has read
}

func (p *participant) Closes(t *db.Tx) error {
	if r := Key.Begun(t); r != nil {
		return r.store()
	}
	return nil
}

func (p *participant) Committed(*db.Tx)         { p.hours.committed() }
func (p *participant) Invalidate(*db.Tx, int64) { p.hours.rolledBack() }

// forgetHours is how many hours of a tenant one transaction removes.
const forgetHours = 1000

const (
	sqlForgetHours = `DELETE FROM attempt_hours WHERE tenant = ?1 AND hour < ?2
  AND hour <= (SELECT max(h.hour) FROM (SELECT hour FROM attempt_hours WHERE tenant = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0) h)`
	// The sum of a day goes with those of its tasks and deployments.
	sqlForgetDays = `DELETE FROM usage_days WHERE tenant = ?1 AND detail IN (0, 1) AND day < ?2
  AND day <= (SELECT max(d.day) FROM (SELECT day FROM usage_days WHERE tenant = ?1 AND detail = 1 AND day < ?2 ORDER BY day LIMIT ?3 + 0) d)`

	sqlOldHour = "SELECT 1 FROM attempt_hours WHERE tenant = ? AND hour < ? LIMIT 1"
	sqlOldDay  = "SELECT 1 FROM usage_days WHERE tenant = ? AND detail = 1 AND day < ? LIMIT 1"
)

// Forget removes the sums of hours and days that were over before that time. Hours of which the
// sum of the day is still to be made stay.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	tenants := []int64{}
	hour := before.UnixMilli() / hourMillis
	err := s.Read(ctx, func(c driver.Conn) error {
		made, err := readMade(c.Prep)
		if err != nil {
			return err
		}
		hour = min(hour, (made.wholeDay()+1)*dayHours)
		tenants = append(tenants[:0], allTenants)
		return c.Prep("SELECT no FROM tenants ORDER BY no").Each(func(r driver.Row) error { tenants = append(tenants, r.Int(0)); return nil })
	})
	for _, tenant := range tenants {
		if err == nil {
			err = s.forget(ctx, sqlOldHour, sqlForgetHours, tenant, hour)
		}
		if err == nil {
			err = s.forget(ctx, sqlOldDay, sqlForgetDays, tenant, hour/dayHours)
		}
	}
	return err
}

// forget removes the old sums of a tenant, some of them in each transaction.
func (s *Store) forget(ctx context.Context, sqlFind, sqlForget string, tenant, before int64) error {
	for {
		var more bool
		err := s.Read(ctx, func(c driver.Conn) (err error) {
			more, err = c.Prep(sqlFind).Int(tenant).Int(before).One(func(driver.Row) {})
			return err
		})
		if err != nil || !more {
			return err
		}
		_, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
			return struct{}{}, t.Prep(sqlForget).Int(tenant).Int(before).Int(forgetHours).Exec()
		})
		if err != nil {
			return err
		}
	}
}
