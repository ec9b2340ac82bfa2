package admission

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A budget bounds what a tenant, or one of its keys, uses in a day and in a month. The
// transaction that claims a job holds what its call may use at most, in the current periods.
// The transaction that settles the job replaces that by what the call did use. Whatever ends a
// delivery in another way, another claim, a cancel, an expiry, books the hold as used: the call
// may have been made. Its worker, if it lives, corrects that.

// Amount is tokens and nano-dollars.
type Amount struct{ Tokens, Cost int64 }

func (a Amount) Plus(b Amount) Amount  { return Amount{a.Tokens + b.Tokens, a.Cost + b.Cost} }
func (a Amount) minus(b Amount) Amount { return Amount{a.Tokens - b.Tokens, a.Cost - b.Cost} }
func (a Amount) Most(b Amount) Amount {
	return Amount{max(a.Tokens, b.Tokens), max(a.Cost, b.Cost)}
}

// Periods, as the database numbers them.
var budgetPeriods = [...]forebay.BudgetPeriod{forebay.BudgetDay, forebay.BudgetMonth}

const budgetKinds = len(budgetPeriods)

func periodStart(kind int, at int64) int64 {
	return budgetPeriods[kind].Start(driver.FromMillis(at)).UnixMilli()
}

// PeriodEnd is when a period of that kind ends that is under way at that time.
func PeriodEnd(kind int, at int64) int64 {
	return budgetPeriods[kind].End(driver.FromMillis(at)).UnixMilli()
}

// Budget is one in a transaction.
type Budget struct {
	No, tenant int64
	key        string
	Limits     [budgetKinds]Limit
	Current    [budgetKinds]*Spending
	others     []*Spending // in earlier periods, for calls that began there
	Tentative  Amount      // of candidates that may be claimed next
	freed      bool        // it may have room that it had not before
}

// Limit is what may be used in a period; negative: no limit.
type Limit struct{ Tokens, Cost int64 }

func (l Limit) Allows(used, more Amount) bool {
	return allows(l.Tokens, used.Tokens, more.Tokens) && allows(l.Cost, used.Cost, more.Cost)
}

// allows keeps everything from a budget that is used up, also what is thought to need nothing.
func allows(limit, used, more int64) bool { return limit < 0 || used < limit && used+more <= limit }

// Spending is what was used of a budget in a period.
type Spending struct {
	kind          int
	starts        int64
	settled, Held Amount
	notified      int64 // bits
	Changed       bool
}

// What is counted as used, from what is certain to what might come.
func (s *Spending) certain() Amount   { return s.settled }
func (s *Spending) Committed() Amount { return s.settled.Plus(s.Held) }

// Lacks tells when the periods have ended that have no room for so much more; 0: all have.
func (b *Budget) Lacks(now int64, more Amount, used func(*Spending) Amount) (until int64) {
	for kind, l := range b.Limits {
		if !l.Allows(used(b.Current[kind]), more) {
			until = max(until, PeriodEnd(kind, now))
		}
	}
	return until
}

// Limitless reports whether the budget limits nothing.
func (b *Budget) Limitless() bool { return b.Limits == [budgetKinds]Limit{{-1, -1}, {-1, -1}} }

// budgetSet is whose budgets there are: a hint, for who has none shall not pay for asking.
type budgetSet struct {
	tenants map[int64]bool
	keys    map[string]bool // false: it has none
}

func (s *budgetSet) empty() bool { return len(s.tenants) == 0 && len(s.keys) == 0 }

const someLimit = "(daily_tokens IS NOT NULL OR daily_cost IS NOT NULL OR monthly_tokens IS NOT NULL OR monthly_cost IS NOT NULL)"

func (w *Participant) loadBudgets() error {
	set := newBudgetSet()
	err := w.Conn.RunPipeline([]driver.PipelineQuery{set.ask()})
	if err == nil {
		w.budgets = set
	}
	return err
}

func newBudgetSet() *budgetSet { return &budgetSet{map[int64]bool{}, map[string]bool{}} }

// ask returns the question whose answer fills the set.
func (s *budgetSet) ask() driver.PipelineQuery {
	return driver.PipelineQuery{SQL: "SELECT tenant, key_id FROM budgets WHERE " + someLimit, OnRow: func(r driver.Row) {
		if key := r.Text(1); key != "" {
			s.keys[key] = true
		} else {
			s.tenants[r.Int(0)] = true
		}
	}}
}

// budgetMemory is what a transaction has read of budgets.
type budgetMemory struct {
	ByNo   map[int64]*Budget
	Parked int // jobs
}

// BudgetsFor returns the budgets that a job of the tenant, submitted with that key, is paid from.
func (t *Tx) BudgetsFor(tenant int64, key string) (list []*Budget, err error) {
	if t.W.budgets == nil {
		if err := t.Alone(t.W.loadBudgets); err != nil {
			return nil, err
		}
	}
	if t.W.budgets.tenants[tenant] {
		if list, err = t.addBudget(list, tenant, ""); err != nil {
			return nil, err
		}
	}
	if key == "" {
		return list, nil
	}
	has, known := t.W.budgets.keys[key]
	if !known { // it has got its budget beside this process
		has, err = t.Prep("SELECT 1 FROM budgets WHERE tenant = ? AND key_id = ? AND " + someLimit).Int(tenant).Text(key).One(func(driver.Row) {})
		if err != nil {
			return nil, err
		}
		t.W.budgets.keys[key] = has
	}
	if has {
		return t.addBudget(list, tenant, key)
	}
	return list, nil
}

func (t *Tx) addBudget(list []*Budget, tenant int64, key string) ([]*Budget, error) {
	for _, b := range t.Budgets.ByNo {
		if b.tenant == tenant && b.key == key {
			if b.Limitless() {
				return list, nil
			}
			return append(list, b), nil
		}
	}
	b, err := t.readBudget(t.Prep(sqlBudget + "b.tenant = ? AND b.key_id = ?").Int(t.day()).Int(t.month()).Int(tenant).Text(key))
	if err != nil || b == nil || b.Limitless() {
		return list, err
	}
	return append(list, b), nil
}

// budgetNo returns the budget with that number.
func (t *Tx) budgetNo(no int64) (*Budget, error) {
	if b := t.Budgets.ByNo[no]; b != nil {
		return b, nil
	}
	return t.readBudget(t.Prep(sqlBudgetNo).Int(t.day()).Int(t.month()).Int(no))
}

func (t *Tx) day() int64   { return periodStart(0, t.Now) }
func (t *Tx) month() int64 { return periodStart(1, t.Now) }

const (
	LimitColumns  = "coalesce(b.daily_tokens, -1), coalesce(b.daily_cost, -1), coalesce(b.monthly_tokens, -1), coalesce(b.monthly_cost, -1)"
	budgetColumns = "b.no, b.tenant, b.key_id, " + LimitColumns + `,
  d.tokens, d.cost, d.held_tokens, d.held_cost, d.told, m.tokens, m.cost, m.held_tokens, m.held_cost, m.told`
	// ?1 and ?2 are the beginnings of the day and the month.
	budgetSpending = `
  LEFT JOIN spending d ON d.budget = b.no AND d.period = 0 AND d.starts_at = ?1
  LEFT JOIN spending m ON m.budget = b.no AND m.period = 1 AND m.starts_at = ?2
`
	sqlBudget   = "SELECT " + budgetColumns + " FROM budgets b" + budgetSpending + "WHERE "
	sqlBudgetNo = sqlBudget + "b.no = ?3"
)

// ReadLimits reads the limits of each kind of period from two columns each, from i on.
func ReadLimits(r driver.Row, i int) (limits [budgetKinds]Limit) {
	for kind := range limits {
		limits[kind] = Limit{r.Int(i + 2*kind), r.Int(i + 2*kind + 1)}
	}
	return limits
}

// readBudget returns the budget that a statement finds, if any, and remembers it.
func (t *Tx) readBudget(st driver.Statement) (b *Budget, err error) {
	_, err = st.One(func(r driver.Row) { b = scanBudget(r, t.Now) })
	if err != nil || b == nil {
		return nil, err
	}
	if read := t.Budgets.ByNo[b.No]; read != nil { // by another operation, meanwhile
		return read, nil
	}
	if t.Budgets.ByNo == nil {
		t.Budgets.ByNo = map[int64]*Budget{}
	}
	t.Budgets.ByNo[b.No] = b
	return b, nil
}

// scanBudget reads budgetColumns.
func scanBudget(r driver.Row, now int64) *Budget {
	b := &Budget{No: r.Int(0), tenant: r.Int(1), key: r.Text(2), Limits: ReadLimits(r, 3)}
	for kind := range budgetKinds {
		b.Current[kind] = readSpending(r, 7+5*kind, kind, periodStart(kind, now))
	}
	return b
}

func readSpending(r driver.Row, i, kind int, starts int64) *Spending {
	return &Spending{kind: kind, starts: starts, settled: Amount{r.Int(i), r.Int(i + 1)}, Held: Amount{r.Int(i + 2), r.Int(i + 3)}, notified: r.Int(i + 4)}
}

// spendingAt returns what was used of a budget in the period of that kind that a time is in.
func (t *Tx) spendingAt(b *Budget, kind int, at int64) (*Spending, error) {
	starts := periodStart(kind, at)
	if s := b.Current[kind]; s.starts == starts {
		return s, nil
	}
	if s := b.earlier(kind, starts); s != nil {
		return s, nil
	}
	s := &Spending{kind: kind, starts: starts}
	_, err := t.Prep("SELECT tokens, cost, held_tokens, held_cost, told FROM spending WHERE budget = ? AND period = ? AND starts_at = ?").
		Int(b.No).Int(int64(kind)).Int(starts).One(func(r driver.Row) { s = readSpending(r, 0, kind, starts) })
	if read := b.earlier(kind, starts); err == nil && read != nil { // by another operation, meanwhile
		return read, nil
	}
	b.others = append(b.others, s)
	return s, err
}

// earlier returns what was used in an earlier period; nil: it was not read yet.
func (b *Budget) earlier(kind int, starts int64) *Spending {
	for _, s := range b.others {
		if s.kind == kind && s.starts == starts {
			return s
		}
	}
	return nil
}

const sqlSpending = `
INSERT INTO spending (budget, period, starts_at, tokens, cost, held_tokens, held_cost, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (budget, period, starts_at) DO UPDATE SET tokens = excluded.tokens, cost = excluded.cost,
  held_tokens = excluded.held_tokens, held_cost = excluded.held_cost, told = excluded.told`

// storeSpending writes what the transaction has changed.
func (t *Tx) storeSpending() error {
	for _, b := range t.Budgets.ByNo {
		for _, s := range append(b.Current[:], b.others...) {
			if !s.Changed {
				continue
			}
			err := t.Prep(sqlSpending).Int(b.No).Int(int64(s.kind)).Int(s.starts).Int(s.settled.Tokens).Int(s.settled.Cost).
				Int(s.Held.Tokens).Int(s.Held.Cost).Int(s.notified).Exec()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// use is a period as others see it.
func (s *Spending) use() forebay.BudgetUse {
	at := driver.FromMillis(s.starts)
	return forebay.BudgetUse{
		Period: budgetPeriods[s.kind], StartsAt: at, EndsAt: budgetPeriods[s.kind].End(at),
		Tokens: s.settled.Tokens, CostUSD: forebay.Money(s.settled.Cost), HeldTokens: s.Held.Tokens, HeldUSD: forebay.Money(s.Held.Cost),
	}
}

// Stated is the budget's limits as others see them.
func (b *Budget) Stated() forebay.Budget {
	return forebay.Budget{
		DailyTokens: limitOrNil[int64](b.Limits[0].Tokens), DailyUSD: limitOrNil[forebay.Money](b.Limits[0].Cost),
		MonthlyTokens: limitOrNil[int64](b.Limits[1].Tokens), MonthlyUSD: limitOrNil[forebay.Money](b.Limits[1].Cost),
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

// Plausible bounds what somebody else has counted.
func Plausible(n, most int64) int64 { return min(max(n, 0), most) }

// What a provider says it used is bounded, so that sums over attempts cannot overflow.
const (
	MaxTokens = 1 << 40
	MaxCost   = int64(1_000_000 * forebay.Dollar)
)
