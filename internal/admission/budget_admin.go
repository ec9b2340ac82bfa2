package admission

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// configurationActor is who has set a budget that the configuration says.
const configurationActor = "configuration"

// ConfigureBudgets takes in what the configuration says of tenants' own budgets. It wins over
// what was set since it was heard last only if it has changed: the latest change counts,
// whoever made it. A tenant that it says nothing of any more has no limits any more.
func (s *Store) ConfigureBudgets(ctx context.Context, wanted map[int64]forebay.Budget) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		before := map[int64]string{}
		err := t.Prep("SELECT tenant, configured FROM budgets WHERE key_id = '' AND configured IS NOT NULL").Each(func(r driver.Row) error {
			before[r.Int(0)] = r.Text(1)
			return nil
		})
		if err != nil {
			return struct{}{}, err
		}
		for tenant, limits := range wanted {
			text, err := json.Marshal(limits)
			if err != nil {
				return struct{}{}, err
			}
			if known, ok := before[tenant]; !ok || known != string(text) {
				if err := t.SetBudget(tenant, "", limits, configurationActor, text); err != nil {
					return struct{}{}, err
				}
			}
			delete(before, tenant)
		}
		for tenant := range before {
			if err := t.SetBudget(tenant, "", forebay.Budget{}, configurationActor, []byte{}); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

const sqlSetBudget = `
INSERT INTO budgets (tenant, key_id, daily_tokens, daily_cost, monthly_tokens, monthly_cost, updated_at, set_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, key_id) DO UPDATE SET daily_tokens = excluded.daily_tokens, daily_cost = excluded.daily_cost,
  monthly_tokens = excluded.monthly_tokens, monthly_cost = excluded.monthly_cost, updated_at = excluded.updated_at, set_by = excluded.set_by
RETURNING no`

// SetBudget replaces limits. configured is what the configuration says of them: nil, if it is
// not the configuration that sets them; empty, if it says nothing any more.
func (t *Tx) SetBudget(tenant int64, key string, limits forebay.Budget, by string, configured []byte) error {
	if err := t.storeSpending(); err != nil { // what the transaction remembers is read anew
		return err
	}
	var no int64
	st := t.Prep(sqlSetBudget).Int(tenant).Text(key)
	for _, v := range []*int64{limits.DailyTokens, (*int64)(limits.DailyUSD), limits.MonthlyTokens, (*int64)(limits.MonthlyUSD)} {
		if v == nil {
			st = st.Null(driver.KindInt)
		} else {
			st = st.Int(*v)
		}
	}
	if _, err := st.Int(t.Now).Text(by).One(func(r driver.Row) { no = r.Int(0) }); err != nil {
		return err
	}
	if configured != nil {
		if err := t.Prep("UPDATE budgets SET configured = ? WHERE no = ?").TextOrNull(string(configured)).Int(no).Exec(); err != nil {
			return err
		}
	}
	// What is told of the old limits says nothing of the new ones.
	if err := t.Prep("UPDATE spending SET told = 0 WHERE budget = ? AND (period = 0 AND starts_at = ? OR period = 1 AND starts_at = ?)").
		Int(no).Int(t.day()).Int(t.month()).Exec(); err != nil {
		return err
	}
	delete(t.Budgets.ByNo, no)
	t.W.budgets = nil
	t.Notify(db.WordSettings, 0, 0, 0)
	b, err := t.budgetNo(no)
	if b != nil {
		b.freed = true
	}
	return err
}

// BudgetRow is a budget as stored, with what was used of it in the current periods.
type BudgetRow struct {
	Tenant string
	KeyID  string // "": the tenant's own
	forebay.BudgetState
}

var sqlBudgetRows = "SELECT " + budgetColumns + `, b.updated_at, b.set_by, t.name,
  (SELECT count(*) FROM (SELECT 1 FROM budget_waits w JOIN messages g ON g.seq = w.seq
    WHERE w.budget = b.no AND g.waiting = 'budget' AND g.lock_token IS NULL AND g.visible_at + 0 > ?3 LIMIT ` + strconv.Itoa(forebay.MaxBudgetWaiting) + `) waits)
FROM tenants t JOIN budgets b ON b.tenant = t.no` + budgetSpending + `WHERE (?4 = '' OR t.name = ?4) AND CASE WHEN b.key_id = '' THEN 0 ELSE 1 END = ?5 ORDER BY t.name, b.key_id LIMIT ?6 + 0`

// MaxBudgetRows bounds what is shown at once: so many budgets of tenants, and of keys.
const MaxBudgetRows = 10_000

// BudgetRows returns the budgets of a tenant, or of all (""). Those of their keys follow if
// keys is set. There are at most 10,000 of either.
func (s *Store) BudgetRows(ctx context.Context, tenant string, keys bool) (list []BudgetRow, now int64, err error) {
	kinds := []int64{0, 1}
	if !keys {
		kinds = kinds[:1]
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		list, now = nil, c.Now()
		for _, ofKeys := range kinds {
			if err := budgetRows(c, now, tenant, ofKeys, func(row BudgetRow) { list = append(list, row) }); err != nil {
				return err
			}
		}
		return nil
	})
	return list, now, err
}

// KeyBudgets returns the budgets of API keys by the ids of the keys, up to 10,000.
func KeyBudgets(c driver.Conn) (map[string]forebay.BudgetState, error) {
	budgets := map[string]forebay.BudgetState{}
	err := budgetRows(c, c.Now(), "", 1, func(row BudgetRow) { budgets[row.KeyID] = row.BudgetState })
	return budgets, err
}

func budgetRows(c driver.Conn, now int64, tenant string, ofKeys int64, each func(BudgetRow)) error {
	return c.Prep(sqlBudgetRows).Int(periodStart(0, now)).Int(periodStart(1, now)).Int(now).Text(tenant).Int(ofKeys).Int(MaxBudgetRows).Each(func(r driver.Row) error {
		each(readBudgetRow(r, now))
		return nil
	})
}

func readBudgetRow(r driver.Row, now int64) BudgetRow {
	b := Budget{Limits: ReadLimits(r, 3)}
	row := BudgetRow{Tenant: r.Text(19), KeyID: r.Text(2), BudgetState: forebay.BudgetState{
		Budget: b.Stated(), Waiting: r.Int(20), UpdatedAt: driver.FromMillisOrNil(r, 17), SetBy: r.Text(18)}}
	for kind := range budgetKinds {
		row.Usage = append(row.Usage, readSpending(r, 7+5*kind, kind, periodStart(kind, now)).use())
	}
	return row
}

// NoUse is what was used of a budget that there is not.
func NoUse(now int64) []forebay.BudgetUse {
	list := make([]forebay.BudgetUse, budgetKinds)
	for kind := range list {
		list[kind] = (&Spending{kind: kind, starts: periodStart(kind, now)}).use()
	}
	return list
}

// BudgetDetail is what the audit log keeps of a budget that was set.
func BudgetDetail(b forebay.Budget) string {
	text, err := json.Marshal(b)
	if err != nil {
		return ""
	}
	return string(text)
}
