package store

import (
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
)

// configurationActor is who has set a budget that the configuration says.
const configurationActor = "configuration"

// ConfigureBudgets takes in what the configuration says of tenants' own budgets. It wins over what was
// set since it was heard last only if it has changed: the latest change counts, whoever made it. A tenant
// that it says nothing of any more has no limits any more.
func (s *AdmissionStore) ConfigureBudgets(ctx context.Context, wanted map[int64]forebay.Budget) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		before := map[int64]string{}
		err := t.prep("SELECT tenant, configured FROM budgets WHERE key_id = '' AND configured IS NOT NULL").each(func(r row) error {
			before[r.int(0)] = r.text(1)
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
				if err := t.setBudget(tenant, "", limits, configurationActor, text); err != nil {
					return struct{}{}, err
				}
			}
			delete(before, tenant)
		}
		for tenant := range before {
			if err := t.setBudget(tenant, "", forebay.Budget{}, configurationActor, []byte{}); err != nil {
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

// setBudget replaces limits. configured is what the configuration says of them: nil, if it is not the
// configuration that sets them; empty, if it says nothing any more.
func (t *admissionTx) setBudget(tenant int64, key string, limits forebay.Budget, by string, configured []byte) error {
	if err := t.storeSpending(); err != nil { // what the transaction remembers is read anew
		return err
	}
	var no int64
	st := t.prep(sqlSetBudget).int(tenant).text(key)
	for _, v := range []*int64{limits.DailyTokens, (*int64)(limits.DailyUSD), limits.MonthlyTokens, (*int64)(limits.MonthlyUSD)} {
		if v == nil {
			st = st.null(kindInt)
		} else {
			st = st.int(*v)
		}
	}
	if _, err := st.int(t.now).text(by).one(func(r row) { no = r.int(0) }); err != nil {
		return err
	}
	if configured != nil {
		if err := t.prep("UPDATE budgets SET configured = ? WHERE no = ?").textOrNull(string(configured)).int(no).exec(); err != nil {
			return err
		}
	}
	// What is told of the old limits says nothing of the new ones.
	if err := t.prep("UPDATE spending SET told = 0 WHERE budget = ? AND (period = 0 AND starts_at = ? OR period = 1 AND starts_at = ?)").
		int(no).int(t.day()).int(t.month()).exec(); err != nil {
		return err
	}
	delete(t.budgets.byNo, no)
	t.w.budgets = nil
	t.notify(wordSettings, 0, 0, 0)
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

const sqlBudgetRows = "SELECT " + budgetColumns + `, b.updated_at, b.set_by, t.name,
  (SELECT count(*) FROM budget_waits w JOIN messages g ON g.seq = w.seq WHERE w.budget = b.no AND g.waiting = 'budget' AND g.token IS NULL AND g.visible + 0 > ?3)
FROM tenants t JOIN budgets b ON b.tenant = t.no` + budgetSpending + `WHERE (?4 = '' OR t.name = ?4) AND CASE WHEN b.key_id = '' THEN 0 ELSE 1 END = ?5 ORDER BY t.name, b.key_id LIMIT ?6 + 0`

// maxBudgetRows bounds what is shown at once: so many budgets of tenants, and of keys.
const maxBudgetRows = 10_000

// BudgetRows returns the budgets of a tenant, or of all (""), and after them those of their keys if keys is set: at most
// 10,000 of either.
func (s *AdmissionStore) BudgetRows(ctx context.Context, tenant string, keys bool) (list []BudgetRow, now int64, err error) {
	kinds := []int64{0, 1}
	if !keys {
		kinds = kinds[:1]
	}
	err = s.read(ctx, func(c conn) error {
		list, now = nil, c.now()
		for _, ofKeys := range kinds {
			err := c.prep(sqlBudgetRows).int(periodStart(0, now)).int(periodStart(1, now)).int(now).text(tenant).int(ofKeys).int(maxBudgetRows).each(func(r row) error {
				list = append(list, readBudgetRow(r, now))
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return list, now, err
}

func readBudgetRow(r row, now int64) BudgetRow {
	b := budget{limits: readLimits(r, 3)}
	row := BudgetRow{Tenant: r.text(19), KeyID: r.text(2), BudgetState: forebay.BudgetState{
		Budget: b.stated(), Waiting: r.int(20), UpdatedAt: fromMillisOrNil(r, 17), SetBy: r.text(18)}}
	for kind := range budgetKinds {
		row.Usage = append(row.Usage, readSpending(r, 7+5*kind, kind, periodStart(kind, now)).use())
	}
	return row
}

// NoUse is what was used of a budget that there is not.
func NoUse(now int64) []forebay.BudgetUse {
	list := make([]forebay.BudgetUse, budgetKinds)
	for kind := range list {
		list[kind] = (&spending{kind: kind, starts: periodStart(kind, now)}).use()
	}
	return list
}
