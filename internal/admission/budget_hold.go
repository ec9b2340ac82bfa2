package admission

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// JobLimit stands for a budget where a hold is within the limits of its job.
const JobLimit = 0

// Estimate says of each option what a call may use there, and leaves out those that may take
// more than the job has left.
func (t *Tx) Estimate(options []Option, left Limit) ([]Option, error) {
	within := options[:0:0]
	for i, o := range options {
		d, err := t.Deployment(o.Deployment)
		if err != nil {
			return nil, err
		}
		bound := d.Bound(o.Limits, o.Request)
		o.Hold = Amount{
			Tokens: bound.PromptTokens + bound.OutputTokens,
			Cost:   Plausible(int64(o.Price.CostBound(forebay.TokenUsage{InputTokens: bound.PromptTokens, OutputTokens: bound.OutputTokens})), MaxCost),
		}
		if most := left.cut(o.Hold); most != o.Hold {
			if i < len(options)-1 || len(within) > 0 {
				continue
			}
			o.Hold = most // the call is refused if it may take more
		}
		within = append(within, o)
	}
	return within, nil
}

// cut is as much of an amount as the limit leaves.
func (l Limit) cut(a Amount) Amount {
	if l.Tokens >= 0 {
		a.Tokens = min(a.Tokens, l.Tokens)
	}
	if l.Cost >= 0 {
		a.Cost = min(a.Cost, l.Cost)
	}
	return a
}

// Held is a row of what is held for a call.
type Held struct {
	budget, at int64
	Amount
	lost bool
}

// readHolds reads what is held: budget, time, tokens, cost, and whether it was booked as lost.
func readHolds(st driver.Statement) (list []Held, err error) {
	err = st.Each(func(r driver.Row) error {
		list = append(list, Held{r.Int(0), r.Int(1), Amount{r.Int(2), r.Int(3)}, r.Int(4) != 0})
		return nil
	})
	return list, err
}

const (
	heldColumns  = "SELECT budget, at, tokens, cost, lost FROM budget_holds WHERE "
	sqlHolds     = heldColumns + "seq = ? AND lock_token = ?"
	sqlLiveHolds = heldColumns + "seq = ? AND lost = 0"
)

var (
	sqlEndHolds = driver.BatchForm("DELETE FROM budget_holds WHERE seq = ? AND lock_token = ?",
		"DELETE FROM budget_holds h USING %s WHERE h.seq = ANY (ARRAY[p1]) AND h.lock_token = p2")
	sqlLoseHolds = driver.BatchForm("UPDATE budget_holds SET lost = 1 WHERE seq = ? AND lost = 0",
		"UPDATE budget_holds h SET lost = 1 FROM %s WHERE h.seq = ANY (ARRAY[p1]) AND h.lost = 0")
)

// PrefetchHolds is what EndHolds reads, which depends on that row.
func PrefetchHolds(seq, token int64, row driver.RowName) driver.Prefetch {
	return driver.NewPrefetch(sqlHolds, row).Int(seq).Int(token)
}

// PrefetchLiveHolds is what LoseHolds reads, which depends on that row.
func PrefetchLiveHolds(seq int64, row driver.RowName) driver.Prefetch {
	return driver.NewPrefetch(sqlLiveHolds, row).Int(seq)
}

// EndHolds ends what is held for a delivery and returns it.
func (t *Tx) EndHolds(seq, token int64) (list []Held, err error) {
	if list, err = readHolds(t.Prep(sqlHolds).Int(seq).Int(token)); err != nil || len(list) == 0 {
		return nil, err
	}
	return list, t.Prep(sqlEndHolds).Int(seq).Int(token).Exec()
}

// LoseHolds books what is held for a job's current delivery as used, for nobody will say what
// it did use, and returns it.
func (t *Tx) LoseHolds(seq int64) (was Amount, err error) {
	list, known := t.liveHolds[seq]
	if delete(t.liveHolds, seq); !known {
		list, err = readHolds(t.Prep(sqlLiveHolds).Int(seq))
	}
	if err != nil || len(list) == 0 {
		return Amount{}, err
	}
	if err := t.Prep(sqlLoseHolds).Int(seq).Exec(); err != nil {
		return Amount{}, err
	}
	for _, h := range list {
		was, h.lost = h.Amount, false
		if err := t.Book(h, h.Amount); err != nil {
			return Amount{}, err
		}
	}
	return was, nil
}

// ReadLiveHolds reads at once what LoseHolds needs of these jobs, where that takes round trips.
func (t *Tx) ReadLiveHolds(seqs []int64) error {
	if len(seqs) == 0 || !t.Arrays() {
		return nil
	}
	read := make(map[int64][]Held, len(seqs))
	budgets := map[int64]bool{}
	for _, seq := range seqs {
		read[seq] = nil
	}
	err := driver.EachOf(t.Conn, "SELECT x.no, h.budget, h.at, h.tokens, h.cost", " JOIN budget_holds h ON h.seq = x.no AND h.lost = 0", seqs, func(r driver.Row) error {
		read[r.Int(0)] = append(read[r.Int(0)], Held{r.Int(1), r.Int(2), Amount{r.Int(3), r.Int(4)}, false})
		budgets[r.Int(1)] = true
		return nil
	})
	if err != nil {
		return err
	}
	t.liveHolds = read
	numbers := slices.Collect(maps.Keys(budgets))
	return t.Interleave(len(numbers), func(i int) error {
		_, err := t.budgetNo(numbers[i])
		return err
	})
}

// Book replaces what was held, or was booked as lost, by what was used, in the periods of the
// hold.
func (t *Tx) Book(h Held, used Amount) error {
	if h.budget == JobLimit {
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
			s.Held = s.Held.minus(h.Amount)
		}
		s.settled, s.Changed = s.settled.Plus(used), true
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
	{"SELECT seq, lock_token, budget FROM budget_holds WHERE lost = 1 AND at <= ? LIMIT ? + 0",
		"DELETE FROM budget_holds WHERE seq = ?2 AND lock_token = ?3 AND budget + 0 = ?4 AND lost = 1 AND at <= ?1", keepLostHolds},
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
	err = s.Read(ctx, func(c driver.Conn) error {
		keys = keys[:0]
		return c.Prep(find).Int(before).Int(tidiedAtOnce).Each(func(r driver.Row) error {
			keys = append(keys, [3]int64{r.Int(0), r.Int(1), r.Int(2)})
			return nil
		})
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
		for _, key := range keys {
			if err := t.Prep(remove).Int(before).Int(key[0]).Int(key[1]).Int(key[2]).Exec(); err != nil {
				return 0, err
			}
		}
		return len(keys), nil
	})
}
