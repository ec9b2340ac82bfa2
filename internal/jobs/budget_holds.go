package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/history"
)

// budgetTx keeps deliveries within the budgets of their tenants and API keys, and within the
// limits that a job sets itself.
type budgetTx struct{ *Tx }

func (t *Tx) budgets() budgetTx { return budgetTx{t} }

// afford leaves to each candidate of a scan the options that its budgets and its own limits have
// room for. It takes out candidates without any; they wait.
func (t budgetTx) afford(l *scan, options [][]admission.Option) ([][]admission.Option, error) {
	for _, b := range t.admission.Budgets.ByNo {
		b.Tentative = admission.Amount{}
	}
	for _, m := range l.going {
		for _, b := range m.budgets {
			if m.Admission != nil {
				b.Tentative = b.Tentative.Plus(m.Admission.Hold)
			}
		}
	}
	n := 0
	for i := range l.found {
		m := &l.found[i]
		list, err := t.admission.BudgetsFor(m.Tenant, m.KeyID)
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

// affordable is afford for one candidate. If all options may take more than the job's own limits
// leave, the last one stays: whoever makes the call counts exactly, and refuses it.
func (t budgetTx) affordable(l *scan, m *candidate, options []admission.Option) (fit []admission.Option, going bool, err error) {
	left, err := t.jobLeft(m)
	if err != nil {
		return nil, false, err
	}
	if options, err = t.admission.Estimate(options, left); err != nil {
		return nil, false, err
	}
	bare := len(options) == 0
	if bare { // nothing is known beforehand of what it needs
		options = []admission.Option{{}}
	}
	least, most, waits := options[0].Hold, admission.Amount{}, true
	for _, o := range options {
		certain, now := true, true
		for _, b := range m.budgets {
			certain = certain && b.Lacks(t.Now, o.Hold, (*admission.Spending).Committed) == 0
			now = now && b.Lacks(t.Now, o.Hold.Plus(b.Tentative), (*admission.Spending).Committed) == 0
		}
		if now {
			fit, most = append(fit, o), most.Most(o.Hold)
		}
		waits = waits && !certain
		if o.Hold.Cost < least.Cost {
			least = o.Hold
		}
	}
	switch {
	case waits:
		return nil, false, t.park(l, m, least)
	case len(fit) == 0: // it may go if the candidates before it do not
		l.held = append(l.held, *m)
		l.scanAgain(t.Now + blockedPause)
		t.claims().block(l)
		return nil, false, nil
	}
	for _, b := range m.budgets {
		b.Tentative = b.Tentative.Plus(most)
	}
	if bare {
		fit = nil
	}
	return fit, true, nil
}

// limited reports whether the job has limits of its own.
func (m *candidate) limited() bool { return m.MaxCost != nil || m.MaxTotalTokens != nil }

// jobLeft is what a job's own limits leave for its calls.
func (t budgetTx) jobLeft(m *candidate) (left admission.Limit, err error) {
	left = admission.Limit{Tokens: -1, Cost: -1}
	var spent admission.Amount
	if m.limited() && m.calledBefore() {
		if spent, err = t.spentBy(m.Seq); err != nil {
			return left, err
		}
	}
	if m.MaxTotalTokens != nil {
		left.Tokens = max(*m.MaxTotalTokens-spent.Tokens, 0)
	}
	if m.MaxCost != nil {
		left.Cost = max(int64(*m.MaxCost)-spent.Cost, 0)
	}
	return left, nil
}

// spentBy is what a job has used.
func (t budgetTx) spentBy(seq int64) (spent admission.Amount, err error) {
	if spent, known := t.spent[seq]; known {
		return spent, nil
	}
	_, err = t.Prep(sqlSpentAndHeld).Int(seq).One(func(r driver.Row) { spent = admission.Amount{Tokens: r.Int(0), Cost: r.Int(1)} })
	return spent, err
}

// What a job has used, including what its lost call may have used that is not recorded yet.
const sqlSpentAndHeld = `
SELECT a.tokens + coalesce(h.tokens, 0), a.cost + coalesce(h.cost, 0) FROM (` + history.SQLSpent + `) AS a,
  (SELECT max(tokens) AS tokens, max(cost) AS cost FROM budget_holds WHERE seq = ?1 AND lost = 0) AS h`

// forgetLock records the lost attempt of a job that cannot be claimed again soon.
func (t budgetTx) forgetLock(m *candidate) error {
	if !m.lostToken {
		return nil
	}
	if err := t.recordLost(m); err != nil {
		return err
	}
	m.lostToken = false
	return t.Prep("UPDATE messages SET lock_token = NULL, locked_at = NULL WHERE seq = ?").Int(m.Seq).Exec()
}

const sqlHold = "INSERT INTO budget_holds (seq, lock_token, budget, at, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)"

// hold reserves in its budgets what a delivery may use.
func (t budgetTx) hold(m *candidate) error {
	var a admission.Amount
	if m.Admission != nil {
		a = m.Admission.Hold
	}
	put := func(budget int64) error {
		m.Held = true
		return t.Prep(sqlHold).Int(m.Seq).Int(m.Token).Int(budget).Int(t.Now).Int(a.Tokens).Int(a.Cost).Exec()
	}
	if m.MaxCost != nil && a.Cost > 0 || m.MaxTotalTokens != nil && a.Tokens > 0 {
		if err := put(admission.JobLimit); err != nil {
			return err
		}
	}
	for _, b := range m.budgets {
		if err := put(b.No); err != nil {
			return err
		}
		for _, s := range b.Current {
			s.Held, s.Changed = s.Held.Plus(a), true
		}
	}
	return nil
}

// used is what an attempt has used, as far as is known.
func (a *AttemptRecord) used() (used admission.Amount, known bool) {
	used = admission.Amount{Tokens: admission.Plausible(a.Usage.InputTokens, admission.MaxTokens) + admission.Plausible(a.Usage.OutputTokens, admission.MaxTokens), Cost: admission.Plausible(int64(a.Cost), admission.MaxCost)}
	return used, used != admission.Amount{} || !a.Unmeasured
}

// settle books what a delivery has used instead of what was held for it. If its use is
// unknown, it books what was held.
func (t budgetTx) settle(d *LockedJob, a AttemptRecord) error {
	held, err := t.endHolds(d, &a)
	if _, known := a.used(); err != nil || known || held == (admission.Amount{}) {
		return err
	}
	t.assume(d.Seq, held)
	return t.Prep("UPDATE attempts SET cost = ?, assumed_tokens = ? WHERE seq = ? AND generation = ? AND number = ?").
		Int(held.Cost).IntOrNull(held.Tokens).Int(d.Seq).Int(int64(d.Generation)).Int(int64(d.Number)).Exec()
}

// endHolds ends the holds of a delivery and returns what was held. If the delivery was lost, it
// corrects what was booked.
func (t budgetTx) endHolds(d *LockedJob, a *AttemptRecord) (was admission.Amount, err error) {
	list, err := t.admission.EndHolds(d.Seq, d.Token)
	if err != nil {
		return admission.Amount{}, err
	}
	used, known := a.used()
	for _, h := range list {
		was = h.Amount
		if !known {
			used = h.Amount
		}
		if err := t.admission.Book(h, used); err != nil {
			return admission.Amount{}, err
		}
	}
	return was, nil
}

// park makes a candidate wait until its budgets have room for that much.
func (t budgetTx) park(l *scan, m *candidate, need admission.Amount) error {
	if err := t.forgetLock(m); err != nil {
		return err
	}
	var short *admission.Budget
	until := int64(0)
	for _, b := range m.budgets {
		if at := b.Lacks(t.Now, need, (*admission.Spending).Committed); at > until {
			short, until = b, at
		}
		if err := t.admission.WarnExhausted(b, need); err != nil {
			return err
		}
	}
	if m.isNew {
		err := t.Prep(sqlInsertMessage).Int(m.Seq).Int(int64(l.subqueue)).Int(m.flow).Int(until).
			Int(m.InputSize).Int(m.Tenant).IntOrNull(m.deadline).Text(string(forebay.WaitBudget)).Exec()
		if err != nil {
			return err
		}
	} else if err := t.Prep(admission.SQLPark).Int(until).Int(m.Seq).Exec(); err != nil {
		return err
	}
	t.Due(l.subqueue, m.flow, until)
	t.deadlineAt(m.deadline)
	t.Changed(m.Seq)
	// Behind it there may be many jobs of the same budget; the next scan reaches those of others.
	l.limit = maxScan
	if t.admission.Budgets.Parked++; t.admission.Budgets.Parked >= admission.MaxParked && l.more {
		l.more = false
		l.flows.Note(m.flow, t.Now, t.Now)
	}
	return t.Prep(admission.SQLWait).Int(m.Seq).Int(short.No).Int(m.flow).Text(m.KeyID).Int(until).Int(need.Tokens).Int(need.Cost).Exec()
}
