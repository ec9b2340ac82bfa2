package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/history"
)

// check compares what is stored with the model.
func (m *treasury) check(t *rapid.T) {
	m.engine.Settle(m.s, nil)
	now := m.now()
	_, err := db.TransactIn(context.Background(), admission.Key, m.s.DB.Writer, db.Op{Stage: db.StageChange}, func(x *admission.Tx) (struct{}, error) {
		// A lock that has expired is forgotten where there is no room to call the job again.
		for _, j := range m.jobs {
			if j.call == nil || j.call.LockedUntil.UnixMilli() > now {
				continue
			}
			var token int64
			if _, err := x.Prep("SELECT coalesce(lock_token, 0) FROM messages WHERE seq = ?").Int(j.seq).One(func(r driver.Row) { token = r.Int(0) }); err != nil {
				return struct{}{}, err
			}
			if token != j.call.Token {
				m.lose(j)
			}
		}
		for _, j := range m.jobs {
			var want, spent admission.Amount
			for _, c := range j.calls {
				if !c.held {
					want = want.Plus(c.used)
				}
			}
			if _, err := x.Prep(history.SQLSpent).Int(j.seq).One(func(r driver.Row) { spent = admission.Amount{Tokens: r.Int(0), Cost: r.Int(1)} }); err != nil {
				return struct{}{}, err
			}
			if j.limited && spent != want {
				return struct{}{}, fmt.Errorf("job %d has used %v, want %v", j.seq, spent, want)
			}
		}
		for p, want := range m.budgets {
			var no int64
			found, err := x.Prep("SELECT no FROM budgets WHERE tenant = ? AND key_id = ?").Int(p.tenant).Text(p.key).One(func(r driver.Row) { no = r.Int(0) })
			if err != nil || !found {
				return struct{}{}, fmt.Errorf("budget %v: %t, %w", p, found, err)
			}
			for kind, period := range budgetPeriods {
				var settled, holds admission.Amount
				_, err := x.Prep("SELECT tokens, cost, held_tokens, held_cost FROM spending WHERE budget = ? AND period = ? AND starts_at = ?").
					Int(no).Int(int64(kind)).Int(periodStart(kind, x.Now)).One(func(r driver.Row) {
					settled, holds = admission.Amount{Tokens: r.Int(0), Cost: r.Int(1)}, admission.Amount{Tokens: r.Int(2), Cost: r.Int(3)}
				})
				if err != nil {
					return struct{}{}, err
				}
				if used, held := want.sum(kind, now); settled != used || holds != held {
					return struct{}{}, fmt.Errorf("budget %v has used %v and holds %v in the %s, want %v and %v", p, settled, holds, period, used, held)
				}
			}
			var holds admission.Amount
			err = x.Prep("SELECT tokens, cost FROM budget_holds WHERE budget = ? AND lost = 0").Int(no).Each(func(r driver.Row) error {
				holds = holds.Plus(admission.Amount{Tokens: r.Int(0), Cost: r.Int(1)})
				return nil
			})
			if err != nil {
				return struct{}{}, err
			}
			var all admission.Amount
			for _, c := range want.calls {
				if c.held {
					all = all.Plus(c.used)
				}
			}
			if holds != all {
				return struct{}{}, fmt.Errorf("budget %v: rows hold %v, want %v", p, holds, all)
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// finish takes all limits away: then every job can be carried out, and nothing is held in the end.
func (m *treasury) finish(t *rapid.T) {
	for p, b := range m.budgets {
		if err := setBudget(m.s, p.tenant, p.key, forebay.Budget{}, audit.Act{}); err != nil {
			t.Fatal(err)
		}
		b.Budget = forebay.Budget{}
	}
	for round := 0; ; round++ {
		left, which := 0, int64(0)
		for _, j := range m.jobs {
			if !j.over {
				left++
				which = j.seq
			}
			if j.call == nil {
				continue
			}
			c := j.call
			a := AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeSucceeded}
			err := m.s.Jobs.Succeed(context.Background(), &c.LockedJob, a, Output{Inline: []byte("1"), Size: 1})
			if errors.Is(err, forebay.ErrLockLost) && c.LockedUntil.UnixMilli() <= m.now() {
				m.lose(j)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			c.held, c.used, j.call, j.over = false, admission.Amount{}, nil, true
		}
		if left == 0 {
			break
		}
		if round > 3*len(m.jobs)+10 {
			t.Fatalf("%d jobs are left without any budget, such as %d: %s", left, which, m.dump(which))
		}
		m.engine.Pass(m.s, time.Second)
		m.engine.Pass(m.s, time.Second)
		m.claimed(t, 8)
	}
	m.check(t)
	err := m.s.DB.Read(context.Background(), func(c driver.Conn) error {
		return c.Prep("SELECT count(*), (SELECT count(*) FROM budget_holds WHERE lost = 0) FROM spending WHERE held_tokens <> 0 OR held_cost <> 0 OR tokens < 0 OR cost < 0").Each(func(r driver.Row) error {
			if r.Int(0) != 0 || r.Int(1) != 0 {
				t.Fatalf("in the end %d periods and %d calls hold something", r.Int(0), r.Int(1))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
