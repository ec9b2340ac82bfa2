package store

import (
	"sync/atomic"
	"testing"
	"time"
)

// What budgets no longer need goes in small transactions, and nothing else goes.
func TestTidyBudgetsInSmallSteps(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const old, young = 2*tidiedAtOnce + 1, 3
		_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
			for i := range int64(old + young) {
				at := t.now + time.Hour.Milliseconds()
				if i >= young {
					at = i
				}
				for _, sql := range []string{
					"INSERT INTO budget_waits (seq, budget, rank, key_id, until, tokens, cost) VALUES (?1, 1, 1, '', ?2, 0, 0)",
					"INSERT INTO budget_holds (seq, token, budget, at, tokens, cost, lost) VALUES (?1, 1, 1, ?2, 0, 0, 1)",
					"INSERT INTO spending (budget, period, starts_at, tokens, cost, held_tokens, held_cost, told) VALUES (?1, 0, ?2, 0, 0, 0, 0, 0)",
				} {
					if err := t.prep(sql).int(i).int(at).exec(); err != nil {
						return struct{}{}, err
					}
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		var operations atomic.Int64
		s.DB.OnCommit(func(c Commit) { operations.Add(int64(c.Operations)) })
		mustDo(t, s.Admission.TidyBudgets(t.Context()))
		if n := operations.Load(); n != 3*3 {
			t.Errorf("it took %d transactions", n)
		}
		for _, table := range []string{"budget_waits", "budget_holds", "spending"} {
			left := int64(0)
			mustDo(t, s.DB.read(t.Context(), func(c conn) error {
				_, err := c.prep("SELECT count(*) FROM " + table).one(func(r row) { left = r.int(0) })
				return err
			}))
			if left != young {
				t.Errorf("%d rows of %s are left", left, table)
			}
		}
	})
}
