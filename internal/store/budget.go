package store

import (
	"time"

	"github.com/forebayhq/forebay"
)

// A budget bounds what a tenant, or one of its keys, uses in a day and in a month. What a call may use at
// most is held in the transaction that claims its job, in the periods of that time, and replaced by what
// it did use in the transaction that settles it. Whatever ends a delivery in another way, another claim,
// a cancel, an expiry, books the hold as used: the call may have been made. Its worker, if it lives,
// corrects that.

// Amount is tokens and nano-dollars.
type Amount struct{ Tokens, Cost int64 }

func (a Amount) plus(b Amount) Amount  { return Amount{a.Tokens + b.Tokens, a.Cost + b.Cost} }
func (a Amount) minus(b Amount) Amount { return Amount{a.Tokens - b.Tokens, a.Cost - b.Cost} }
func (a Amount) most(b Amount) Amount {
	return Amount{max(a.Tokens, b.Tokens), max(a.Cost, b.Cost)}
}

// Periods, as the database numbers them.
var budgetPeriods = [...]forebay.BudgetPeriod{forebay.BudgetDay, forebay.BudgetMonth}

const budgetKinds = len(budgetPeriods)

func periodStart(kind int, at int64) int64 {
	return budgetPeriods[kind].Start(fromMillis(at)).UnixMilli()
}

func periodEnd(kind int, at int64) int64 { return budgetPeriods[kind].End(fromMillis(at)).UnixMilli() }

// budget is one in a transaction.
type budget struct {
	no, tenant int64
	key        string
	limits     [budgetKinds]limit
	current    [budgetKinds]*spending
	others     []*spending // in earlier periods, for calls that began there
	tentative  Amount      // of candidates that may be claimed next
	freed      bool        // it may have room that it had not before
}

// limit is what may be used in a period; negative: no limit.
type limit struct{ tokens, cost int64 }

func (l limit) allows(used, more Amount) bool {
	return allows(l.tokens, used.Tokens, more.Tokens) && allows(l.cost, used.Cost, more.Cost)
}

// allows keeps everything from a budget that is used up, also what is thought to need nothing.
func allows(limit, used, more int64) bool { return limit < 0 || used < limit && used+more <= limit }

// spending is what was used of a budget in a period.
type spending struct {
	kind          int
	starts        int64
	settled, held Amount
	told          int64 // bits
	changed       bool
}

// What is counted as used, from what is certain to what might come.
func (s *spending) certain() Amount   { return s.settled }
func (s *spending) committed() Amount { return s.settled.plus(s.held) }

// lacks tells when the periods have ended that have no room for so much more; 0: all have.
func (b *budget) lacks(now int64, more Amount, used func(*spending) Amount) (until int64) {
	for kind, l := range b.limits {
		if !l.allows(used(b.current[kind]), more) {
			until = max(until, periodEnd(kind, now))
		}
	}
	return until
}

// limitless reports whether the budget limits nothing.
func (b *budget) limitless() bool { return b.limits == [budgetKinds]limit{{-1, -1}, {-1, -1}} }

// budgetSet is whose budgets there are: a hint, for who has none shall not pay for asking.
type budgetSet struct {
	tenants map[int64]bool
	keys    map[string]bool // false: it has none
}

func (s *budgetSet) empty() bool { return len(s.tenants) == 0 && len(s.keys) == 0 }

const someLimit = "(daily_tokens IS NOT NULL OR daily_cost IS NOT NULL OR monthly_tokens IS NOT NULL OR monthly_cost IS NOT NULL)"

func (w *admissionPart) loadBudgets() error {
	set := &budgetSet{map[int64]bool{}, map[string]bool{}}
	err := w.conn.prep("SELECT tenant, key_id FROM budgets WHERE " + someLimit).each(func(r row) error {
		if key := r.text(1); key != "" {
			set.keys[key] = true
		} else {
			set.tenants[r.int(0)] = true
		}
		return nil
	})
	if err == nil {
		w.budgets = set
	}
	return err
}

// budgetMemory is what a transaction has read of budgets.
type budgetMemory struct {
	byNo   map[int64]*budget
	parked int // jobs
}

// budgetsFor returns the budgets that a job of the tenant, submitted with that key, is paid from.
func (t *admissionTx) budgetsFor(tenant int64, key string) (list []*budget, err error) {
	if t.w.budgets == nil {
		if err := t.w.loadBudgets(); err != nil {
			return nil, err
		}
	}
	if t.w.budgets.tenants[tenant] {
		if list, err = t.addBudget(list, tenant, ""); err != nil {
			return nil, err
		}
	}
	if key == "" {
		return list, nil
	}
	has, known := t.w.budgets.keys[key]
	if !known { // it has got its budget beside this process
		has, err = t.prep("SELECT 1 FROM budgets WHERE tenant = ? AND key_id = ? AND " + someLimit).int(tenant).text(key).one(func(row) {})
		if err != nil {
			return nil, err
		}
		t.w.budgets.keys[key] = has
	}
	if has {
		return t.addBudget(list, tenant, key)
	}
	return list, nil
}

func (t *admissionTx) addBudget(list []*budget, tenant int64, key string) ([]*budget, error) {
	for _, b := range t.budgets.byNo {
		if b.tenant == tenant && b.key == key {
			if b.limitless() {
				return list, nil
			}
			return append(list, b), nil
		}
	}
	b, err := t.readBudget(t.prep(sqlBudget + "b.tenant = ? AND b.key_id = ?").int(t.day()).int(t.month()).int(tenant).text(key))
	if err != nil || b == nil || b.limitless() {
		return list, err
	}
	return append(list, b), nil
}

// budgetNo returns the budget with that number.
func (t *admissionTx) budgetNo(no int64) (*budget, error) {
	if b := t.budgets.byNo[no]; b != nil {
		return b, nil
	}
	return t.readBudget(t.prep(sqlBudget + "b.no = ?").int(t.day()).int(t.month()).int(no))
}

func (t *admissionTx) day() int64   { return periodStart(0, t.now) }
func (t *admissionTx) month() int64 { return periodStart(1, t.now) }

const (
	limitColumns  = "coalesce(b.daily_tokens, -1), coalesce(b.daily_cost, -1), coalesce(b.monthly_tokens, -1), coalesce(b.monthly_cost, -1)"
	budgetColumns = "b.no, b.tenant, b.key_id, " + limitColumns + `,
  d.tokens, d.cost, d.held_tokens, d.held_cost, d.told, m.tokens, m.cost, m.held_tokens, m.held_cost, m.told`
	// ?1 and ?2 are the beginnings of the day and the month.
	budgetSpending = `
  LEFT JOIN spending d ON d.budget = b.no AND d.period = 0 AND d.starts_at = ?1
  LEFT JOIN spending m ON m.budget = b.no AND m.period = 1 AND m.starts_at = ?2
`
	sqlBudget = "SELECT " + budgetColumns + " FROM budgets b" + budgetSpending + "WHERE "
)

func readLimits(r row, i int) (limits [budgetKinds]limit) {
	for kind := range limits {
		limits[kind] = limit{r.int(i + 2*kind), r.int(i + 2*kind + 1)}
	}
	return limits
}

// readBudget returns the budget that a statement finds, if any, and remembers it.
func (t *admissionTx) readBudget(st statement) (b *budget, err error) {
	_, err = st.one(func(r row) {
		b = &budget{no: r.int(0), tenant: r.int(1), key: r.text(2), limits: readLimits(r, 3)}
		for kind := range budgetKinds {
			b.current[kind] = readSpending(r, 7+5*kind, kind, periodStart(kind, t.now))
		}
	})
	if err == nil && b != nil {
		if t.budgets.byNo == nil {
			t.budgets.byNo = map[int64]*budget{}
		}
		t.budgets.byNo[b.no] = b
	}
	return b, err
}

func readSpending(r row, i, kind int, starts int64) *spending {
	return &spending{kind: kind, starts: starts, settled: Amount{r.int(i), r.int(i + 1)}, held: Amount{r.int(i + 2), r.int(i + 3)}, told: r.int(i + 4)}
}

// spendingAt returns what was used of a budget in the period of that kind that a time is in.
func (t *admissionTx) spendingAt(b *budget, kind int, at int64) (*spending, error) {
	starts := periodStart(kind, at)
	if s := b.current[kind]; s.starts == starts {
		return s, nil
	}
	for _, s := range b.others {
		if s.kind == kind && s.starts == starts {
			return s, nil
		}
	}
	s := &spending{kind: kind, starts: starts}
	_, err := t.prep("SELECT tokens, cost, held_tokens, held_cost, told FROM spending WHERE budget = ? AND period = ? AND starts_at = ?").
		int(b.no).int(int64(kind)).int(starts).one(func(r row) { s = readSpending(r, 0, kind, starts) })
	b.others = append(b.others, s)
	return s, err
}

const sqlSpending = `
INSERT INTO spending (budget, period, starts_at, tokens, cost, held_tokens, held_cost, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (budget, period, starts_at) DO UPDATE SET tokens = excluded.tokens, cost = excluded.cost,
  held_tokens = excluded.held_tokens, held_cost = excluded.held_cost, told = excluded.told`

// storeSpending writes what the transaction has changed.
func (t *admissionTx) storeSpending() error {
	for _, b := range t.budgets.byNo {
		for _, s := range append(b.current[:], b.others...) {
			if !s.changed {
				continue
			}
			err := t.prep(sqlSpending).int(b.no).int(int64(s.kind)).int(s.starts).int(s.settled.Tokens).int(s.settled.Cost).
				int(s.held.Tokens).int(s.held.Cost).int(s.told).exec()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// use is a period as others see it.
func (s *spending) use() forebay.BudgetUse {
	at := fromMillis(s.starts)
	return forebay.BudgetUse{
		Period: budgetPeriods[s.kind], StartsAt: at, EndsAt: budgetPeriods[s.kind].End(at),
		Tokens: s.settled.Tokens, CostUSD: forebay.Money(s.settled.Cost), HeldTokens: s.held.Tokens, HeldUSD: forebay.Money(s.held.Cost),
	}
}

// stated is the budget's limits as others see them.
func (b *budget) stated() forebay.Budget {
	return forebay.Budget{
		DailyTokens: limitOrNil[int64](b.limits[0].tokens), DailyUSD: limitOrNil[forebay.Money](b.limits[0].cost),
		MonthlyTokens: limitOrNil[int64](b.limits[1].tokens), MonthlyUSD: limitOrNil[forebay.Money](b.limits[1].cost),
	}
}

func limitOrNil[T ~int64](limit int64) *T {
	if limit < 0 {
		return nil
	}
	v := T(limit)
	return &v
}

// How long what is over is kept.
const (
	keepSpending  = 400 * 24 * time.Hour
	keepLostHolds = 24 * time.Hour // in which a worker may still say what a call used
)

func plausible(n, most int64) int64 { return min(max(n, 0), most) }

// What a provider says it used is bounded, so that sums over attempts cannot overflow.
const (
	maxTokens = 1 << 40
	maxCost   = int64(1_000_000 * forebay.Dollar)
)
