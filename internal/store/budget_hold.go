package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// jobLimit stands for a budget where a hold is within the limits of its job.
const jobLimit = 0

// estimate says of each option what a call may use there, and leaves out those that may take more than
// the job has left.
func (t *admissionTx) estimate(options []Option, left limit) ([]Option, error) {
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

// loseHolds books what is held for a job's current delivery as used, for nobody will say what it did
// use, and returns it.
func (t *admissionTx) loseHolds(seq int64) (was Amount, err error) {
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
func (t *admissionTx) book(h held, used Amount) error {
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
func (s *AdmissionStore) TidyBudgets(ctx context.Context) error {
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
func (s *AdmissionStore) tidy(ctx context.Context, find, remove string, keep time.Duration) (rows int, err error) {
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
	return transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (int, error) {
		for _, key := range keys {
			if err := t.prep(remove).int(before).int(key[0]).int(key[1]).int(key[2]).exec(); err != nil {
				return 0, err
			}
		}
		return len(keys), nil
	})
}
