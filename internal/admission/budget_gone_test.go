package admission

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Jobs that waited for a budget may have been cancelled. A search passes their rows but once, and
// finds who waits behind them.
func TestWhatWaitsNoLongerIsPassedOnce(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const tenant, cancelled, live = 7, 10 * maxResumed, 3
		limit := int64(1_000_000)
		change := func(f func(*db.Tx) error) {
			t.Helper()
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) { return struct{}{}, f(t) })
			mustDo(t, err)
		}
		count := func(sql string) (n int64) {
			t.Helper()
			mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
				_, err := c.Prep(sql).One(func(r driver.Row) { n = r.Int(0) })
				return err
			}))
			return n
		}
		change(func(t *db.Tx) error {
			return Key.Of(t).SetBudget(tenant, "", forebay.Budget{DailyTokens: &limit}, "test", nil)
		})
		change(func(t *db.Tx) error {
			until := t.Now + time.Hour.Milliseconds()
			var budget int64
			if _, err := t.Prep("SELECT no FROM budgets WHERE tenant = ?").Int(tenant).One(func(r driver.Row) { budget = r.Int(0) }); err != nil {
				return err
			}
			for i := range int64(cancelled + live) {
				if err := t.Prep(SQLWait).Int(i + 1).Int(budget).Int(tenant * 1024).Text("").Int(until).Int(10).Int(0).Exec(); err != nil {
					return err
				}
				if i < cancelled {
					continue
				}
				err := t.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant, waiting) VALUES (?, 4, ?, ?, 0, ?, 'budget')").
					Int(i + 1).Int(tenant * 1024).Int(until).Int(tenant).Exec()
				if err != nil {
					return err
				}
			}
			return nil
		})
		change(func(t *db.Tx) error {
			a := Key.Of(t)
			if err := a.SetBudget(tenant, "", forebay.Budget{DailyTokens: &limit}, "test", nil); err != nil {
				return err
			}
			return a.ResumeWaiting()
		})
		if n := count("SELECT count(*) FROM messages WHERE waiting = 'budget'"); n != 0 {
			t.Errorf("%d of %d jobs still wait", n, live)
		}
		if n := count("SELECT count(*) FROM budget_waits"); n != 0 {
			t.Errorf("%d rows are left of jobs that wait no longer", n)
		}
	})
}
