package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// jobLimit stands for a budget where a hold is within the limits of its job.
const jobLimit = 0

// afford leaves to each candidate of a look the options that its budgets, and its job's own limits, have
// room for. Candidates without any are taken out: they wait.
func (t *tx) afford(l *look, options [][]Option) ([][]Option, error) {
	for _, b := range t.budgets.byNo {
		b.tentative = Amount{}
	}
	n := 0
	for i := range l.found {
		m := &l.found[i]
		list, err := t.budgetsFor(m.Tenant, m.KeyID)
		if err != nil {
			return nil, err
		}
		going := true
		if m.budgets = list; len(list) > 0 || m.limited() {
			if options[i], going, err = t.affordable(l, m, options[i]); err != nil {
				return nil, err
			}
		}
		if going {
			l.found[n], options[n] = l.found[i], options[i]
			n++
		}
	}
	l.found = l.found[:n]
	return options[:n], nil
}

// affordable is afford for one candidate. Of options that all may take more than the job has left the
// last one stays, for whoever makes the call counts better, and refuses it.
func (t *tx) affordable(l *look, m *candidate, options []Option) (fit []Option, going bool, err error) {
	left, err := t.jobLeft(m)
	if err != nil {
		return nil, false, err
	}
	if options, err = t.estimate(options, left); err != nil {
		return nil, false, err
	}
	bare := len(options) == 0
	if bare { // it needs nothing that is known beforehand
		options = []Option{{}}
	}
	least, most, waits := options[0].hold, Amount{}, true
	for _, o := range options {
		certain, now := true, true
		for _, b := range m.budgets {
			certain = certain && b.lacks(t.now, o.hold, (*spending).committed) == 0
			now = now && b.lacks(t.now, o.hold.plus(b.tentative), (*spending).committed) == 0
		}
		if now {
			fit, most = append(fit, o), most.most(o.hold)
		}
		waits = waits && !certain
		if o.hold.Cost < least.Cost {
			least = o.hold
		}
	}
	switch {
	case waits:
		return nil, false, t.park(l, m, least)
	case len(fit) == 0: // if those before it are not called after all, it may go
		l.held = append(l.held, *m)
		l.askAgain(t.now + blockedPause)
		t.block(l)
		return nil, false, nil
	}
	for _, b := range m.budgets {
		b.tentative = b.tentative.plus(most)
	}
	if bare {
		fit = nil
	}
	return fit, true, nil
}

// estimate says of each option what a call may use there, and leaves out those that may take more than
// the job has left.
func (t *tx) estimate(options []Option, left limit) ([]Option, error) {
	within := options[:0:0]
	for i, o := range options {
		d, err := t.deployment(o.Deployment)
		if err != nil {
			return nil, err
		}
		bound := d.Bound(o.Limits, o.Request)
		o.hold = Amount{
			Tokens: bound.PromptTokens + bound.OutputTokens,
			Cost:   plausible(int64(o.Price.Cost(forebay.TokenUsage{InputTokens: bound.PromptTokens, OutputTokens: bound.OutputTokens})), maxCost),
		}
		if most := left.cut(o.hold); most != o.hold {
			if i < len(options)-1 || len(within) > 0 {
				continue
			}
			o.hold = most // the call is refused if it may take more
		}
		within = append(within, o)
	}
	return within, nil
}

// limited reports whether the job has a limit of its own.
func (m *candidate) limited() bool { return m.MaxCost != nil || m.MaxTotalTokens != nil }

// jobLeft is what a job's own limits leave to its calls.
func (t *tx) jobLeft(m *candidate) (left limit, err error) {
	left = limit{-1, -1}
	var spent Amount
	if m.limited() && (m.Number > 0 || m.Generation > 1) {
		if _, err = t.prep(sqlSpentAndHeld).int(m.Seq).one(func(r row) { spent = Amount{r.int(0), r.int(1)} }); err != nil {
			return left, err
		}
	}
	if m.MaxTotalTokens != nil {
		left.tokens = max(*m.MaxTotalTokens-spent.Tokens, 0)
	}
	if m.MaxCost != nil {
		left.cost = max(int64(*m.MaxCost)-spent.Cost, 0)
	}
	return left, nil
}

// cut is as much of an amount as the limit leaves.
func (l limit) cut(a Amount) Amount {
	if l.tokens >= 0 {
		a.Tokens = min(a.Tokens, l.tokens)
	}
	if l.cost >= 0 {
		a.Cost = min(a.Cost, l.cost)
	}
	return a
}

// What a job has used, and what its call may that was lost and is not recorded yet.
const sqlSpentAndHeld = `
SELECT a.tokens + coalesce(h.tokens, 0), a.cost + coalesce(h.cost, 0) FROM (` + sqlSpent + `) AS a,
  (SELECT max(tokens) AS tokens, max(cost) AS cost FROM budget_holds WHERE seq = ?1 AND lost = 0) AS h`

// forgetLock records the attempt of a job whose lock has expired and that cannot be claimed again soon.
func (t *tx) forgetLock(m *candidate) error {
	if !m.lostToken {
		return nil
	}
	if err := t.recordLost(m); err != nil {
		return err
	}
	m.lostToken = false
	return t.prep("UPDATE messages SET token = NULL, locked_at = NULL WHERE seq = ?").int(m.Seq).exec()
}

const sqlHold = "INSERT INTO budget_holds (seq, token, budget, at, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)"

// hold keeps what a delivery may use from others.
func (t *tx) hold(m *candidate) error {
	var a Amount
	if m.Admission != nil {
		a = m.Admission.hold
	}
	put := func(budget int64) error {
		m.Held = true
		return t.prep(sqlHold).int(m.Seq).int(m.Token).int(budget).int(t.now).int(a.Tokens).int(a.Cost).exec()
	}
	if m.MaxCost != nil && a.Cost > 0 || m.MaxTotalTokens != nil && a.Tokens > 0 {
		if err := put(jobLimit); err != nil {
			return err
		}
	}
	for _, b := range m.budgets {
		if err := put(b.no); err != nil {
			return err
		}
		for _, s := range b.current {
			s.held, s.changed = s.held.plus(a), true
		}
	}
	return nil
}

// held is a row of what is held.
type held struct {
	budget, at int64
	Amount
	lost bool
}

const heldColumns = " RETURNING budget, at, tokens, cost, lost"

func readHolds(st statement) (list []held, err error) {
	err = st.each(func(r row) error {
		list = append(list, held{r.int(0), r.int(1), Amount{r.int(2), r.int(3)}, r.int(4) != 0})
		return nil
	})
	return list, err
}

const (
	sqlEndHolds  = "DELETE FROM budget_holds WHERE seq = ? AND token = ?" + heldColumns
	sqlLoseHolds = "UPDATE budget_holds SET lost = 1 WHERE seq = ? AND lost = 0" + heldColumns
)

// used is what an attempt has used, as far as is known.
func (a *AttemptRecord) used() (used Amount, known bool) {
	used = Amount{plausible(a.Usage.InputTokens, maxTokens) + plausible(a.Usage.OutputTokens, maxTokens), plausible(int64(a.Cost), maxCost)}
	return used, used != Amount{} || !a.Unmeasured
}

// settleHolds books what a delivery has used instead of what was held for it; what was held, if nobody
// knows better.
func (t *tx) settleHolds(d *Delivery, a AttemptRecord) error {
	held, err := t.endHoldsOf(d, &a)
	if _, known := a.used(); err != nil || known || held == (Amount{}) {
		return err
	}
	return t.prep("UPDATE attempts SET cost = ?, assumed_tokens = ? WHERE seq = ? AND generation = ? AND number = ?").
		int(held.Cost).intOrNull(held.Tokens).int(d.Seq).int(int64(d.Generation)).int(int64(d.Number)).exec()
}

// endHoldsOf ends the holds of a delivery, corrects what was booked if it was lost, and returns what was held.
func (t *tx) endHoldsOf(d *Delivery, a *AttemptRecord) (was Amount, err error) {
	list, err := readHolds(t.prep(sqlEndHolds).int(d.Seq).int(d.Token))
	if err != nil {
		return Amount{}, err
	}
	used, known := a.used()
	for _, h := range list {
		was = h.Amount
		if !known {
			used = h.Amount
		}
		if err := t.book(h, used); err != nil {
			return Amount{}, err
		}
	}
	return was, nil
}

// loseHolds books what is held for a job's current delivery as used, for nobody will say what it did
// use, and returns it.
func (t *tx) loseHolds(seq int64) (was Amount, err error) {
	list, err := readHolds(t.prep(sqlLoseHolds).int(seq))
	if err != nil {
		return Amount{}, err
	}
	for _, h := range list {
		was, h.lost = h.Amount, false
		if err := t.book(h, h.Amount); err != nil {
			return Amount{}, err
		}
	}
	return was, nil
}

// book replaces what was held, or was booked as lost, by what was used, in the periods of the hold.
func (t *tx) book(h held, used Amount) error {
	if h.budget == jobLimit {
		return nil
	}
	b, err := t.budgetNo(h.budget)
	if err != nil || b == nil {
		return err
	}
	b.freed = true
	for kind := range budgetKinds {
		s, err := t.spendingAt(b, kind, h.at)
		if err != nil {
			return err
		}
		if h.lost {
			s.settled = s.settled.minus(h.Amount)
		} else {
			s.held = s.held.minus(h.Amount)
		}
		s.settled, s.changed = s.settled.plus(used), true
		if err := t.warn(b, s); err != nil {
			return err
		}
	}
	return nil
}

// tidiedAtOnce is how many rows of a table one transaction forgets.
const tidiedAtOnce = 500

// What nobody asks for any more: how it is found, outside of transactions, and each row removed.
var tidied = []struct {
	find, remove string
	keep         time.Duration
}{
	{"SELECT seq, 0, 0 FROM budget_waits WHERE until <= ? LIMIT ? + 0",
		"DELETE FROM budget_waits WHERE seq = ?2 AND until <= ?1 AND ?3 + ?4 = 0", 0},
	{"SELECT seq, token, budget FROM budget_holds WHERE lost = 1 AND at <= ? LIMIT ? + 0",
		"DELETE FROM budget_holds WHERE seq = ?2 AND token = ?3 AND budget = ?4 AND lost = 1 AND at <= ?1", keepLostHolds},
	{"SELECT budget, period, starts_at FROM spending WHERE starts_at <= ? LIMIT ? + 0",
		"DELETE FROM spending WHERE budget = ?2 AND period = ?3 AND starts_at = ?4 AND starts_at <= ?1", keepSpending},
}

// TidyBudgets forgets what nobody asks for any more, in small steps.
func (s *Store) TidyBudgets(ctx context.Context) error {
	for i := range tidied {
		for rows := tidiedAtOnce; rows == tidiedAtOnce; {
			var err error
			if rows, err = s.tidy(ctx, tidied[i].find, tidied[i].remove, tidied[i].keep); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy removes the first of the rows that a statement finds and returns how many those are.
func (s *Store) tidy(ctx context.Context, find, remove string, keep time.Duration) (rows int, err error) {
	var keys [][3]int64
	before := s.Now().Add(-keep).UnixMilli()
	err = s.read(ctx, func(c conn) error {
		keys = keys[:0]
		return c.prep(find).int(before).int(tidiedAtOnce).each(func(r row) error {
			keys = append(keys, [3]int64{r.int(0), r.int(1), r.int(2)})
			return nil
		})
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return transact(ctx, s, stageChange, func(t *tx) (int, error) {
		for _, key := range keys {
			if err := t.prep(remove).int(before).int(key[0]).int(key[1]).int(key[2]).exec(); err != nil {
				return 0, err
			}
		}
		return len(keys), nil
	})
}
