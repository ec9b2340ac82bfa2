package store

import (
	"github.com/forebayhq/forebay"
)

// afford leaves to each candidate of a look the options that its budgets, and its job's own limits, have
// room for. Candidates without any are taken out: they wait.
func (t *jobsTx) afford(l *look, options [][]Option) ([][]Option, error) {
	for _, b := range t.admission.budgets.byNo {
		b.tentative = Amount{}
	}
	n := 0
	for i := range l.found {
		m := &l.found[i]
		list, err := t.admission.budgetsFor(m.Tenant, m.KeyID)
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
func (t *jobsTx) affordable(l *look, m *candidate, options []Option) (fit []Option, going bool, err error) {
	left, err := t.jobLeft(m)
	if err != nil {
		return nil, false, err
	}
	if options, err = t.admission.estimate(options, left); err != nil {
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

// limited reports whether the job has a limit of its own.
func (m *candidate) limited() bool { return m.MaxCost != nil || m.MaxTotalTokens != nil }

// jobLeft is what a job's own limits leave to its calls.
func (t *jobsTx) jobLeft(m *candidate) (left limit, err error) {
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

// What a job has used, and what its call may that was lost and is not recorded yet.
const sqlSpentAndHeld = `
SELECT a.tokens + coalesce(h.tokens, 0), a.cost + coalesce(h.cost, 0) FROM (` + sqlSpent + `) AS a,
  (SELECT max(tokens) AS tokens, max(cost) AS cost FROM budget_holds WHERE seq = ?1 AND lost = 0) AS h`

// forgetLock records the attempt of a job whose lock has expired and that cannot be claimed again soon.
func (t *jobsTx) forgetLock(m *candidate) error {
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
func (t *jobsTx) hold(m *candidate) error {
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

// used is what an attempt has used, as far as is known.
func (a *AttemptRecord) used() (used Amount, known bool) {
	used = Amount{plausible(a.Usage.InputTokens, maxTokens) + plausible(a.Usage.OutputTokens, maxTokens), plausible(int64(a.Cost), maxCost)}
	return used, used != Amount{} || !a.Unmeasured
}

// settleHolds books what a delivery has used instead of what was held for it; what was held, if nobody
// knows better.
func (t *jobsTx) settleHolds(d *Delivery, a AttemptRecord) error {
	held, err := t.endHoldsOf(d, &a)
	if _, known := a.used(); err != nil || known || held == (Amount{}) {
		return err
	}
	return t.prep("UPDATE attempts SET cost = ?, assumed_tokens = ? WHERE seq = ? AND generation = ? AND number = ?").
		int(held.Cost).intOrNull(held.Tokens).int(d.Seq).int(int64(d.Generation)).int(int64(d.Number)).exec()
}

// endHoldsOf ends the holds of a delivery, corrects what was booked if it was lost, and returns what was held.
func (t *jobsTx) endHoldsOf(d *Delivery, a *AttemptRecord) (was Amount, err error) {
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
		if err := t.admission.book(h, used); err != nil {
			return Amount{}, err
		}
	}
	return was, nil
}

// park makes a candidate wait until its budgets have room for that much.
func (t *jobsTx) park(l *look, m *candidate, need Amount) error {
	if err := t.forgetLock(m); err != nil {
		return err
	}
	var short *budget
	until := int64(0)
	for _, b := range m.budgets {
		if at := b.lacks(t.now, need, (*spending).committed); at > until {
			short, until = b, at
		}
		if err := t.admission.warnExhausted(b, need); err != nil {
			return err
		}
	}
	if m.fresh {
		err := t.prep(sqlInsertMessage).int(m.Seq).int(int64(l.subqueue)).int(m.rank).int(until).
			int(m.InputSize).int(m.Tenant).intOrNull(m.deadline).text(string(forebay.WaitBudget)).exec()
		if err != nil {
			return err
		}
	} else if err := t.prep(sqlPark).int(until).int(m.Seq).exec(); err != nil {
		return err
	}
	t.due(l.subqueue, m.rank, until)
	t.deadlineAt(m.deadline)
	t.changed(m.Seq)
	// Behind it there may be many more; the next look shall find others' jobs, or those.
	l.limit = maxLook
	if t.admission.budgets.parked++; t.admission.budgets.parked >= maxParked && l.more {
		l.more = false
		l.lines.note(m.rank, t.now, t.now)
	}
	return t.prep(sqlWait).int(m.Seq).int(short.no).int(m.rank).text(m.KeyID).int(until).int(need.Tokens).int(need.Cost).exec()
}

// takeSlots notes that a candidate was locked.
func (t *jobsTx) takeSlots(m *candidate) error {
	put := func(holder string, u *slotUse) error {
		u.going = max(u.going-1, 0)
		if u.n++; u.until == 0 || m.LockedUntil.UnixMilli() < u.until {
			u.until = m.LockedUntil.UnixMilli()
		}
		m.Slotted = true
		return t.prep("INSERT INTO slots (seq, token, holder) VALUES (?, ?, ?)").int(m.Seq).int(m.Token).text(holder).exec()
	}
	if m.Admission != nil && m.Admission.Concurrency > 0 {
		holder := deploymentHolder(m.Admission.Deployment)
		u, err := t.admission.slotsOf(holder)
		if err == nil {
			err = put(holder, u)
		}
		if err != nil {
			return err
		}
	}
	u, err := t.admission.slotsOfTenant(m.Tenant)
	if err != nil || u == nil {
		return err
	}
	err = put(tenantHolder(m.Tenant), u)
	t.admission.rest(m.Tenant, u)
	return err
}

// leaveSlots is for a delivery that was settled.
func (t *jobsTx) leaveSlots(d *Delivery) error {
	if !d.Slotted && t.admission.w.caps[d.Tenant] == 0 {
		return nil
	}
	t.admission.slotFreed(d.Tenant)
	return t.prep("DELETE FROM slots WHERE seq = ? AND token = ?").int(d.Seq).int(d.Token).exec()
}
