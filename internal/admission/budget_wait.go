package admission

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Jobs that wait for a budget stay in their subqueue, invisible until the period ends. So scans
// for other tenants' jobs do not pass them. When a budget has more room before that, as many of
// them as fit are made visible, the first ones first.

// Bounds of what one transaction does with jobs that wait.
const (
	MaxParked  = 1024
	maxResumed = 256
	maxForgets = 64 // searches for those that wait, behind what waits no longer
)

var SQLPark = driver.BatchForm("UPDATE messages SET visible_at = ?, waiting = 'budget' WHERE seq = ?",
	"UPDATE messages m SET visible_at = p1, waiting = 'budget' FROM %s WHERE m.seq = ANY (ARRAY[p2])")

const SQLWait = `
INSERT INTO budget_waits (seq, budget, flow, key_id, until, tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET budget = excluded.budget, flow = excluded.flow, key_id = excluded.key_id, until = excluded.until,
  tokens = excluded.tokens, cost = excluded.cost`

// place is one in the order of the jobs that wait for a budget.
type place struct{ flow, seq int64 }

var front = place{-1, -1}

// wait is a job that waits for a budget.
type wait struct {
	seq      int64
	key      string
	subqueue queue.Subqueue
	flow     int64
	need     Amount
	place    place
}

const sqlWaits = `
SELECT w.seq, w.key_id, coalesce(m.subqueue, 0), coalesce(m.flow, 0), w.tokens, w.cost, w.flow,
  CAST(CASE WHEN m.waiting = 'budget' AND m.lock_token IS NULL AND m.visible_at > ? THEN 1 ELSE 0 END AS BIGINT)
FROM (SELECT seq, key_id, tokens, cost, flow FROM budget_waits WHERE budget = ? AND (flow, seq) > (?, ?) ORDER BY flow, seq LIMIT ? + 0) w
  LEFT JOIN messages m ON m.seq = w.seq
ORDER BY w.flow, w.seq`

var sqlForgetWait = driver.BatchForm("DELETE FROM budget_waits WHERE seq = ?", "DELETE FROM budget_waits w USING %s WHERE w.seq = ANY (ARRAY[p1])")

// ResumeWaiting makes jobs visible for which there is room now. Beside the transactions of others
// there is nothing to see to: it must leave alone what they change.
func (t *Tx) ResumeWaiting() error {
	if t.W.Inserter {
		return nil
	}
	if err := t.sweepWaits(); err != nil {
		return err
	}
	for _, b := range t.Budgets.ByNo {
		b.Tentative = Amount{}
	}
	var pieces []*waitPiece
	look := func(b *Budget, after place) {
		pieces = append(pieces, &waitPiece{b: b, after: after, last: after, more: true})
	}
	for _, b := range t.Budgets.ByNo {
		if !b.freed {
			continue
		}
		b.freed = false
		if b.Limitless() {
			if err := t.resumeAll(b); err != nil {
				return err
			}
			continue
		}
		if b.Lacks(t.Now, Amount{}, (*Spending).Committed) > 0 {
			continue
		}
		look(b, front)
		if behind, ok := t.W.behind[b.No]; ok {
			look(b, behind)
		}
	}
	if len(pieces) == 0 {
		return nil
	}
	if err := readWaits(t, pieces); err != nil {
		return err
	}
	type waiting struct {
		b *Budget
		wait
	}
	var waits []waiting
	for _, piece := range pieces {
		for _, w := range piece.waits {
			waits = append(waits, waiting{piece.b, w})
		}
	}
	// First all budgets that have to do with them are read, at once.
	err := t.Interleave(len(waits), func(i int) error {
		_, err := t.BudgetsFor(waits[i].b.tenant, waits[i].key)
		return err
	})
	looked := make(map[int64]bool, len(waits))
	for _, piece := range pieces {
		if err == nil {
			err = piece.resume(t, looked)
		}
	}
	return err
}

// waitPiece are the first jobs that wait for a budget after a place.
type waitPiece struct {
	b     *Budget
	after place
	waits []wait

	last place   // of the rows that were read
	rows int     // how many the latest were
	gone []int64 // those of them that wait no longer
	more bool    // others are to be read
}

// ask asks for the piece's next rows.
func (p *waitPiece) ask(now int64, limit int) driver.PipelineQuery {
	from := p.last
	p.rows, p.gone = 0, nil
	return driver.PipelineQuery{SQL: sqlWaits,
		Bind: func(st driver.Statement) driver.Statement {
			return st.Int(now).Int(p.b.No).Int(from.flow).Int(from.seq).Int(int64(limit))
		},
		OnRow: func(r driver.Row) {
			p.rows++
			p.last = place{r.Int(6), r.Int(0)}
			switch {
			case r.Int(7) == 0:
				p.gone = append(p.gone, r.Int(0))
			case len(p.waits) < maxResumed:
				p.waits = append(p.waits, wait{r.Int(0), r.Text(1), queue.Subqueue(r.Int(2)), r.Int(3), Amount{r.Int(4), r.Int(5)}, p.last})
			}
		}}
}

// readWaits reads the jobs of pieces. Rows of jobs that wait no longer, such as cancelled ones,
// are removed on the way: the next search shall not pass them again.
func readWaits(t *Tx, pieces []*waitPiece) error {
	limit := maxResumed
	for range maxForgets {
		var asked []*waitPiece
		var questions []driver.PipelineQuery
		for _, p := range pieces {
			if p.more {
				asked, questions = append(asked, p), append(questions, p.ask(t.Now, limit))
			}
		}
		if len(asked) == 0 {
			break
		}
		if err := t.RunPipeline(questions); err != nil {
			return err
		}
		for _, p := range asked {
			p.more = len(p.gone) > 0 && p.rows == limit && len(p.waits) < maxResumed
			for _, seq := range p.gone {
				if err := t.Prep(sqlForgetWait).Int(seq).Exec(); err != nil {
					return err
				}
			}
		}
		limit = 4 * maxResumed
	}
	return nil
}

// resume makes jobs visible for which there is room, unless they were looked at. There may be none
// for a whole piece. Then the next search also looks behind it, for smaller jobs wait there.
func (p *waitPiece) resume(t *Tx, looked map[int64]bool) error {
	stay := 0
	for _, w := range p.waits {
		stays := looked[w.seq]
		if !stays {
			looked[w.seq] = true
			var err error
			if stays, err = t.resume(p.b, w); err != nil {
				return err
			}
		}
		if stays {
			stay++
		}
	}
	_, further := t.W.behind[p.b.No]
	switch {
	case p.after == front && further: // the other piece tells
	case stay == maxResumed:
		t.W.behind[p.b.No] = p.waits[stay-1].place
	case p.after != front && len(p.waits) == maxResumed: // there was room: it looks there again
	default:
		delete(t.W.behind, p.b.No)
	}
	return nil
}

// sweepWaits checks now and then all budgets that jobs wait for. A settlement tells when it
// makes room. But another process may have changed a budget, and a job that was made visible
// may never be called.
func (t *Tx) sweepWaits() error {
	if !t.W.Sweeps {
		return nil
	}
	t.W.Sweeps = false
	if t.W.budgets == nil {
		if err := t.W.loadBudgets(); err != nil {
			return err
		}
	}
	if t.W.budgets.empty() {
		return nil
	}
	if err := t.RunPipeline(t.AskWaited()); err != nil {
		return err
	}
	numbers := *t.waited
	return t.Interleave(len(numbers), func(i int) error {
		b, err := t.budgetNo(numbers[i])
		if b != nil {
			b.freed = true
		}
		return err
	})
}

// AskWaited asks for which budgets jobs wait, once in the transaction. Jobs that begin to wait
// after that were found not to fit.
func (t *Tx) AskWaited() []driver.PipelineQuery {
	if t.waited != nil || t.W.budgets != nil && t.W.budgets.empty() {
		return nil
	}
	t.waited = &[]int64{}
	return []driver.PipelineQuery{{SQL: "SELECT DISTINCT budget FROM budget_waits", OnRow: func(r driver.Row) { *t.waited = append(*t.waited, r.Int(0)) }}}
}

// ReadWaitedSoon has the budgets that jobs wait for read with what is asked next.
func (t *Tx) ReadWaitedSoon() {
	if t.waited == nil {
		return
	}
	for _, no := range *t.waited {
		if t.Budgets.ByNo[no] == nil {
			t.PrefetchSoon([]driver.Prefetch{driver.NewPrefetch(sqlBudgetNo, driver.RowName{Of: "budgets", No: no}).Int(t.day()).Int(t.month()).Int(no)})
		}
	}
}

const (
	waitingFor   = " FROM budget_waits w JOIN messages m ON m.seq = w.seq WHERE w.budget = ? AND m.waiting = 'budget' AND m.lock_token IS NULL"
	sqlResumeAll = "UPDATE messages SET visible_at = ?, waiting = NULL WHERE seq IN (SELECT w.seq" + waitingFor + ")"
)

// resumeAll makes all jobs visible that wait for a budget without limits.
func (t *Tx) resumeAll(b *Budget) error {
	err := t.Prep("SELECT DISTINCT m.subqueue, m.flow" + waitingFor).Int(b.No).Each(func(r driver.Row) error {
		t.W.Jobs.Released(t.Tx, queue.Subqueue(r.Int(0)), r.Int(1), t.Now)
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.Prep(sqlResumeAll).Int(t.Now).Int(b.No).Exec(); err != nil {
		return err
	}
	return t.Prep("DELETE FROM budget_waits WHERE budget = ?").Int(b.No).Exec()
}

// resume makes one job visible if there is room for it. What only another budget keeps back
// waits for that one from now on. It reports whether the job still waits for this one.
func (t *Tx) resume(b *Budget, w wait) (stays bool, err error) {
	list, err := t.BudgetsFor(b.tenant, w.key)
	if err != nil {
		return false, err
	}
	for _, other := range list {
		until := other.Lacks(t.Now, w.need.Plus(other.Tentative), (*Spending).Committed)
		switch {
		case until == 0:
			continue
		case other == b:
			return true, t.WarnExhausted(b, w.need)
		}
		if err := t.Prep(SQLPark).Int(until).Int(w.seq).Exec(); err != nil {
			return false, err
		}
		t.W.Jobs.Released(t.Tx, w.subqueue, w.flow, until)
		return false, t.Prep(SQLWait).Int(w.seq).Int(other.No).Int(w.flow).Text(w.key).Int(until).Int(w.need.Tokens).Int(w.need.Cost).Exec()
	}
	for _, other := range list {
		other.Tentative = other.Tentative.Plus(w.need)
	}
	if err := t.Prep("UPDATE messages SET visible_at = ?, waiting = NULL WHERE seq = ?").Int(t.Now).Int(w.seq).Exec(); err != nil {
		return false, err
	}
	t.W.Jobs.Released(t.Tx, w.subqueue, w.flow, t.Now, w.seq)
	return false, t.Prep(sqlForgetWait).Int(w.seq).Exec()
}
