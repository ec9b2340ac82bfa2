package admission

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// ?3 is the job. What it needs is known once it waits for a budget.
const sqlSpent = "SELECT " + budgetColumns + `, coalesce(w.tokens, 0), coalesce(w.cost, 0)
FROM jobs j JOIN budgets b ON b.tenant = j.tenant AND b.key_id IN ('', coalesce(j.key_id, ''))
  LEFT JOIN budget_waits w ON w.seq = j.seq` + budgetSpending + "WHERE j.id = ?3"

// Spent returns for how long the budgets of a job will have no room for it, whatever the calls
// turn out to use that are under way now. What is held for these does not count. 0: they may
// have room at any time.
func (s *Store) Spent(ctx context.Context, job string) (left time.Duration, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		left = 0
		now := c.Now()
		return c.Prep(sqlSpent).Int(periodStart(0, now)).Int(periodStart(1, now)).Text(job).Each(func(r driver.Row) error {
			need := Amount{r.Int(17), r.Int(18)}
			if until := scanBudget(r, now).Lacks(now, need, (*Spending).certain); until > 0 {
				left = max(left, time.Duration(until-now)*time.Millisecond)
			}
			return nil
		})
	})
	return left, err
}
