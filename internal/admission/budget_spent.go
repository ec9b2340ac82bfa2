package admission

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// lostSince is what was lost since a time, of tokens or cost.
func lostSince(what, at string) string {
	return "CAST(coalesce((SELECT sum(h." + what + ") FROM budget_holds h WHERE h.budget = b.no AND h.lost = 1 AND h.at >= " + at + "), 0) AS BIGINT)"
}

// ?3 is the job. What it needs is known once it waits for a budget.
var sqlSpent = "SELECT " + budgetColumns + ", coalesce(w.tokens, 0), coalesce(w.cost, 0), " +
	lostSince("tokens", "?1") + ", " + lostSince("cost", "?1") + ", " + lostSince("tokens", "?2") + ", " + lostSince("cost", "?2") + `
FROM jobs j JOIN budgets b ON b.tenant = j.tenant AND b.key_id IN ('', coalesce(j.key_id, ''))
  LEFT JOIN budget_waits w ON w.seq = j.seq` + budgetSpending + "WHERE j.id = ?3"

// Spent returns for how long the budgets of a job will have no room for it, whatever the running
// calls turn out to use. What is held for these calls does not count. Nor does what was lost: a
// worker may still correct that. 0: they may have room at any time.
func (s *Store) Spent(ctx context.Context, job string) (left time.Duration, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		left = 0
		now := c.Now()
		return c.Prep(sqlSpent).Int(periodStart(0, now)).Int(periodStart(1, now)).Text(job).Each(func(r driver.Row) error {
			need, b := Amount{r.Int(17), r.Int(18)}, scanBudget(r, now)
			for kind, s := range b.Current {
				s.settled = s.settled.minus(Amount{r.Int(19 + 2*kind), r.Int(20 + 2*kind)})
			}
			if until := b.Lacks(now, need, (*Spending).certain); until > 0 {
				left = max(left, time.Duration(until-now)*time.Millisecond)
			}
			return nil
		})
	})
	return left, err
}
