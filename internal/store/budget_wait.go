package store

// Jobs that wait for a budget stay in their subqueue, invisible until the period ends, so that nobody passes
// them on the way to other tenants' jobs. When a budget has more room before that, as many of them as fit
// are made visible, the first ones first.

// Bounds of what one transaction does with jobs that wait.
const (
	maxParked  = 1024
	maxResumed = 256
)

var sqlPark = merges("UPDATE messages SET visible = ?, waiting = 'budget' WHERE seq = ?",
	"UPDATE messages m SET visible = p1, waiting = 'budget' FROM %s WHERE m.seq = ANY (ARRAY[p2])")

const sqlWait = `
INSERT INTO budget_waits (seq, budget, rank, key_id, until, tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET budget = excluded.budget, rank = excluded.rank, key_id = excluded.key_id, until = excluded.until,
  tokens = excluded.tokens, cost = excluded.cost`

// wait is a job that waits for a budget.
type wait struct {
	seq      int64
	key      string
	subqueue Subqueue
	rank     int64
	need     Amount
}

const sqlWaits = `
SELECT w.seq, w.key_id, m.lane, m.rank, w.tokens, w.cost FROM budget_waits w JOIN messages m ON m.seq = w.seq
WHERE w.budget = ? AND m.waiting = 'budget' AND m.token IS NULL AND m.visible + 0 > ? ORDER BY w.rank, w.seq LIMIT ? + 0`

// resumeWaiting makes jobs visible for which there is room now.
func (t *admissionTx) resumeWaiting() error {
	if err := t.sweepWaits(); err != nil {
		return err
	}
	for _, b := range t.budgets.byNo {
		b.tentative = Amount{}
	}
	for _, b := range t.budgets.byNo {
		if !b.freed {
			continue
		}
		b.freed = false
		if b.limitless() {
			if err := t.resumeAll(b); err != nil {
				return err
			}
			continue
		}
		if b.lacks(t.now, Amount{}, (*spending).committed) > 0 {
			continue
		}
		var waits []wait
		err := t.prep(sqlWaits).int(b.no).int(t.now).int(maxResumed).each(func(r row) error {
			waits = append(waits, wait{r.int(0), r.text(1), Subqueue(r.int(2)), r.int(3), Amount{r.int(4), r.int(5)}})
			return nil
		})
		if err != nil {
			return err
		}
		for _, w := range waits {
			if err := t.resume(b, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepWaits has all budgets looked at that jobs wait for, once in a while: what makes room is told with
// each settlement, but another process may have changed a budget, and of those that were made visible
// some may never be called.
func (t *admissionTx) sweepWaits() error {
	if !t.w.sweeps {
		return nil
	}
	t.w.sweeps = false
	if t.w.budgets == nil {
		if err := t.w.loadBudgets(); err != nil {
			return err
		}
	}
	if t.w.budgets.empty() {
		return nil
	}
	var numbers []int64
	err := t.prep("SELECT DISTINCT budget FROM budget_waits").each(func(r row) error {
		numbers = append(numbers, r.int(0))
		return nil
	})
	for _, no := range numbers {
		b, err := t.budgetNo(no)
		if err != nil {
			return err
		}
		if b != nil {
			b.freed = true
		}
	}
	return err
}

const (
	waitingFor   = " FROM budget_waits w JOIN messages m ON m.seq = w.seq WHERE w.budget = ? AND m.waiting = 'budget' AND m.token IS NULL"
	sqlResumeAll = "UPDATE messages SET visible = ?, waiting = NULL WHERE seq IN (SELECT w.seq" + waitingFor + ")"
)

// resumeAll makes all jobs visible that wait for a budget without limits.
func (t *admissionTx) resumeAll(b *budget) error {
	err := t.prep("SELECT DISTINCT m.lane, m.rank" + waitingFor).int(b.no).each(func(r row) error {
		t.w.jobs.released(t.tx, Subqueue(r.int(0)), r.int(1), t.now)
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.prep(sqlResumeAll).int(t.now).int(b.no).exec(); err != nil {
		return err
	}
	return t.prep("DELETE FROM budget_waits WHERE budget = ?").int(b.no).exec()
}

// resume makes one job visible if there is room for it. What only another budget keeps back waits for
// that one from now on.
func (t *admissionTx) resume(b *budget, w wait) error {
	list, err := t.budgetsFor(b.tenant, w.key)
	if err != nil {
		return err
	}
	for _, other := range list {
		until := other.lacks(t.now, w.need.plus(other.tentative), (*spending).committed)
		switch {
		case until == 0:
			continue
		case other == b:
			return t.warnExhausted(b, w.need)
		}
		if err := t.prep(sqlPark).int(until).int(w.seq).exec(); err != nil {
			return err
		}
		t.w.jobs.released(t.tx, w.subqueue, w.rank, until)
		return t.prep(sqlWait).int(w.seq).int(other.no).int(w.rank).text(w.key).int(until).int(w.need.Tokens).int(w.need.Cost).exec()
	}
	for _, other := range list {
		other.tentative = other.tentative.plus(w.need)
	}
	if err := t.prep("UPDATE messages SET visible = ?, waiting = NULL WHERE seq = ?").int(t.now).int(w.seq).exec(); err != nil {
		return err
	}
	t.w.jobs.released(t.tx, w.subqueue, w.rank, t.now, w.seq)
	return t.prep("DELETE FROM budget_waits WHERE seq = ?").int(w.seq).exec()
}
