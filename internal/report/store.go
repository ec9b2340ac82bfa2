// Package report counts attempts by the hour and answers the retry report from these sums. So a
// report costs the same however many attempts there were.
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

func (s *Store) Attach(*db.DB)     {}
func (s *Store) Join(w *db.Writer) { Key.Join(w, &participant{Writer: w}) }

// Key finds the part of a transaction that counts its attempts.
var Key = db.NewKey(func(t *db.Tx, p *participant) *Tx { return &Tx{Tx: t, w: p} })

type participant struct {
	*db.Writer
	db.Passive
	codes map[tenantHour]map[string]bool // error codes that were counted; nil: none is read yet
}

// Tx counts the attempts of a transaction. It writes each sum once, before the commit.
type Tx struct {
	*db.Tx
	w     *participant
	hours map[hourKey]hourSum
}

func (p *participant) Closes(t *db.Tx) error {
	if r := Key.Begun(t); r != nil {
		return r.store()
	}
	return nil
}

// forgetHours is how many hours of a tenant one transaction removes.
const forgetHours = 1000

const sqlForgetHours = `DELETE FROM attempt_hours WHERE tenant = ?1 AND hour < ?2
  AND hour <= (SELECT max(h.hour) FROM (SELECT hour FROM attempt_hours WHERE tenant = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0) h)`

// Forget removes the sums of hours that were over before that time.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	var tenants []int64
	err := s.Read(ctx, func(c driver.Conn) error {
		tenants = nil
		return c.Prep("SELECT no FROM tenants ORDER BY no").Each(func(r driver.Row) error { tenants = append(tenants, r.Int(0)); return nil })
	})
	for _, tenant := range tenants {
		for more := true; err == nil && more; {
			more, err = s.forget(ctx, tenant, before.UnixMilli()/hourMillis)
		}
	}
	return err
}

func (s *Store) forget(ctx context.Context, tenant, before int64) (more bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		more, err = c.Prep("SELECT 1 FROM attempt_hours WHERE tenant = ? AND hour < ? LIMIT 1").Int(tenant).Int(before).One(func(driver.Row) {})
		return err
	})
	if err != nil || !more {
		return false, err
	}
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) {
		return true, t.Prep(sqlForgetHours).Int(tenant).Int(before).Int(forgetHours).Exec()
	})
}
