package admission

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// What budgets no longer need goes in small transactions, and nothing else goes.
func TestTidyBudgetsInSmallSteps(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const old, young = 2*tidiedAtOnce + 1, 3
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			for i := range int64(old + young) {
				at := t.Now + time.Hour.Milliseconds()
				if i >= young {
					at = i
				}
				for _, sql := range []string{
					"INSERT INTO budget_waits (seq, budget, flow, key_id, until, tokens, cost) VALUES (?1, 1, 1, '', ?2, 0, 0)",
					"INSERT INTO budget_holds (seq, lock_token, budget, at, tokens, cost, lost) VALUES (?1, 1, 1, ?2, 0, 0, 1)",
					"INSERT INTO spending (budget, period, starts_at, tokens, cost, held_tokens, held_cost, told) VALUES (?1, 0, ?2, 0, 0, 0, 0, 0)",
				} {
					if err := t.Prep(sql).Int(i).Int(at).Exec(); err != nil {
						return struct{}{}, err
					}
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		var operations atomic.Int64
		s.DB.OnCommit(func(c db.Commit) { operations.Add(int64(c.Operations)) })
		mustDo(t, s.Admission.TidyBudgets(t.Context()))
		if n := operations.Load(); n != 3*3 {
			t.Errorf("it took %d transactions", n)
		}
		for _, table := range []string{"budget_waits", "budget_holds", "spending"} {
			left := int64(0)
			mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
				_, err := c.Prep("SELECT count(*) FROM " + table).One(func(r driver.Row) { left = r.Int(0) })
				return err
			}))
			if left != young {
				t.Errorf("%d rows of %s are left", left, table)
			}
		}
	})
}
