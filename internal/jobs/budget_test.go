package jobs

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// purseful is a store with a tenant, in a bubble.
type purseful struct {
	*testing.T
	*stores
	tenant, queue int64
	serial        int
}

func inPurse(t *testing.T, do func(*purseful)) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := openStores(t.Context(), db.Options{Path: path, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		p := &purseful{T: t, stores: s}
		if p.tenant, err = s.Queues.EnsureTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if p.queue, err = s.Queues.EnsureQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		do(p)
	})
}

func (p *purseful) submit(change func(*NewJob)) string {
	p.Helper()
	p.serial++
	job := NewJob{ID: "job_" + string(rune('a'+p.serial)), Tenant: p.tenant, Queue: p.queue, Task: "t0", MaxAttempts: 9, Priority: 5, Input: []byte("1"), InputSize: 1}
	if change != nil {
		change(&job)
	}
	if _, err := p.Jobs.Submit(p.Context(), []NewJob{job}); err != nil {
		p.Fatal(err)
	}
	return job.ID
}

// claim returns what is given within a moment.
func (p *purseful) claim(plan admission.Plan) []LockedJob {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 200*time.Millisecond)
	defer cancel()
	got, err := p.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(p.queue, queue.SubqueueMain), Max: 8, MaxBytes: 1 << 20, Lock: testLock, Plan: plan})
	if err != nil && ctx.Err() == nil {
		p.Fatal(err)
	}
	return got
}

func (p *purseful) succeed(d *LockedJob, used int64) {
	p.Helper()
	if err := p.Jobs.Succeed(p.Context(), d, AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeSucceeded, Usage: forebay.TokenUsage{InputTokens: used}}, Output{Inline: []byte("1"), Size: 1}); err != nil {
		p.Fatal(err)
	}
}

func (p *purseful) dailyTokens(limit int64) {
	p.Helper()
	if err := setBudget(p.stores, p.tenant, "", forebay.Budget{DailyTokens: &limit}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "set-budget"}); err != nil {
		p.Fatal(err)
	}
}

// A budget that runs out is announced once a period: in the audit log, to listeners and to
// subscribers.
func TestBudgetIsToldOf(t *testing.T) {
	inPurse(t, func(p *purseful) {
		var heard []forebay.EventType
		p.Admission.OnBudgetEvent(func(e forebay.BudgetEvent) { heard = append(heard, e.Type) })
		settings := bus.MessageQueue{Tenant: p.tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic, sub := settings, settings
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		topic, _, err := p.Bus.PutMessageQueue(p.Context(), topic, 10)
		if err != nil {
			p.Fatal(err)
		}
		sub.Name = entity.SubscriptionName(topic.Name, "budgets")
		wanted := "sys.Label LIKE 'budget%'"
		sub, _, err = p.Bus.PutSubscription(p.Context(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: wanted}}}, 10)
		if err != nil {
			p.Fatal(err)
		}
		p.dailyTokens(1000)
		for range 8 {
			p.submit(nil)
		}
		for day := range 2 {
			for {
				got := p.claim(paidPlan)
				if len(got) == 0 {
					break
				}
				for i := range got {
					p.succeed(&got[i], 170)
				}
			}
			synctest.Wait() // whoever hears of it does so after the claim has its answer
			if want := 2 * (day + 1); len(heard) != want || heard[want-2] != forebay.EventBudgetWarning && heard[want-2] != forebay.EventBudgetExhausted {
				p.Fatalf("after day %d: heard %v", day, heard)
			}
			<-time.After(24 * time.Hour)
			for range 5 {
				p.submit(nil)
			}
		}
		entries, _, err := p.Audit.Entries(p.Context(), forebay.AuditFilter{Actor: forebay.ServerActor}, 0, 10)
		if err != nil || len(entries) != 4 {
			p.Fatalf("audit %+v %v", entries, err)
		}
		var e forebay.BudgetEvent
		if err := json.Unmarshal([]byte(entries[0].Detail), &e); err != nil || e.Tenant != "acme" || e.Period != forebay.BudgetDay || !strings.HasPrefix(entries[0].Action, "budget_") {
			p.Errorf("told %+v %v", e, err)
		}
		events, err := p.Bus.Receive(p.Context(), bus.ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil || len(events) != 4 {
			p.Fatalf("%d events were published (%v)", len(events), err)
		}
	})
}

// The limits of a job count what a call with a lost worker may have used. A deployment where the
// next call may use more than is left is passed over.
func TestJobLimitsCountLostCalls(t *testing.T) {
	first, last := needOf(2), needOf(0)
	both := first.Plus(last)
	cost := forebay.Money(both.Cost)
	for name, limited := range map[string]func(*NewJob){
		"cost":   func(j *NewJob) { j.MaxCost = &cost },
		"tokens": func(j *NewJob) { j.MaxTotalTokens = &both.Tokens },
	} {
		t.Run(name, func(t *testing.T) {
			inPurse(t, func(p *purseful) {
				id := p.submit(limited)
				var names []string
				for range 3 {
					got := p.claim(largeAndSmall)
					if len(got) != 1 {
						p.Fatalf("%d were claimed", len(got))
					}
					names = append(names, got[0].Admission.Deployment)
					<-time.After(testLock + time.Second)
				}
				row, err := p.Jobs.Job(p.Context(), p.tenant, id)
				if err != nil {
					p.Fatal(err)
				}
				// The third is left to whoever makes the call: there is nothing left, and it is refused.
				if got := strings.Join(names, " "); got != "large small small" || row.Usage.CostUSD != cost {
					p.Errorf("called %s for %s, want large and small for %s", got, row.Usage.CostUSD, cost)
				}
				if spent, err := p.Jobs.Spent(p.Context(), row.Seq); err != nil || spent != both {
					p.Errorf("spent %+v %v, want %+v", spent, err, both)
				}
			})
		})
	}
}

// largeAndSmall are deployments of which the first is asked for three times as much.
func largeAndSmall(string, []byte, int64, *forebay.CallEstimate) []admission.Option {
	large, small := paidPlan("t2", nil, 0, nil)[0], paidPlan("t0", nil, 0, nil)[0]
	large.Deployment, small.Deployment = "large", "small"
	return []admission.Option{large, small}
}

// However a call ends, it counts towards its job's token limit. It counts by what it used, or if
// that is unknown, by what was held for it.
func TestTokenLimitIsExact(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "default"), queueOf(t, s, "q")
		large, small := needOf(2).Tokens, needOf(0).Tokens
		// Room for a large one until the last: small ones that are known to have used 7, 11 and 0.
		limit := large + small + 7 + 11 + small
		submitAll(t, s, NewJob{ID: "job", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5, MaxAttempts: 9, MaxTotalTokens: &limit})
		claim := func(deployment string, lock time.Duration) *LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: lock, Plan: largeAndSmall})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %v, %v", got, err)
			}
			if d := &got[0]; d.Admission.Deployment != deployment || !d.Held || d.MaxTotalTokens == nil || *d.MaxTotalTokens != limit {
				t.Fatalf("claimed %+v for %s, want %s", d, d.Admission.Deployment, deployment)
			}
			return &got[0]
		}
		spent := int64(0)
		counts := func(what string, more int64, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			row, err := s.Jobs.Job(t.Context(), tenant, "job")
			if err != nil {
				t.Fatal(err)
			}
			spent += more
			if got, err := s.Jobs.Spent(t.Context(), row.Seq); err != nil || got.Tokens != spent {
				t.Fatalf("%s: %d tokens count %v, want %d", what, got.Tokens, err, spent)
			}
			if *row.MaxTotalTokens != limit {
				t.Fatalf("the limit is %d", *row.MaxTotalTokens)
			}
		}
		record := func(used int64, unmeasured bool) AttemptRecord {
			return AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeLost, Usage: forebay.TokenUsage{InputTokens: used - used/2, OutputTokens: used / 2}, Unmeasured: unmeasured}
		}
		counts("cut off", large, s.Jobs.Interrupt(t.Context(), claim("large", time.Minute), record(0, true)))
		counts("cut off, and known", 7, s.Jobs.Interrupt(t.Context(), claim("small", time.Minute), record(7, true)))
		counts("turned away", 0, s.Jobs.Throttle(t.Context(), claim("small", time.Minute), record(0, false), forebay.WaitQuota))
		counts("not called", 0, s.Jobs.Release(t.Context(), claim("small", time.Minute), 0, ""))
		lost := claim("small", 20*time.Millisecond)
		again := claim("small", 20*time.Millisecond) // once that lock has expired
		counts("lost", small, nil)
		counts("lost, and told later", 11-small, s.Jobs.Amend(t.Context(), lost, record(11, false)))
		unsent := claim("small", time.Minute)
		counts("lost", small, nil)
		counts("lost before it was sent", -small, s.Jobs.Amend(t.Context(), again, AttemptRecord{}))
		counts("cut off again", small, s.Jobs.Interrupt(t.Context(), unsent, record(0, true)))
		last := claim("small", time.Minute)
		if last.Admission.Hold.Tokens != small {
			t.Errorf("%d tokens are held for the last call", last.Admission.Hold.Tokens)
		}
		c, err := s.Jobs.Cancel(t.Context(), last.Seq)
		if err != nil || !c.Cancelled {
			t.Fatalf("cancelled %+v %v", c, err)
		}
		counts("cancelled", small, nil)
		counts("cancelled, and nobody knows", 0, s.Jobs.Amend(t.Context(), last, record(0, true)))
		counts("told once", 0, s.Jobs.Amend(t.Context(), last, record(5, false)))
		if spent != limit {
			t.Errorf("%d of %d tokens were used", spent, limit)
		}
	})
}

// The latest change counts, whether the configuration or an operator made it.
func TestConfiguredBudgets(t *testing.T) {
	inPurse(t, func(p *purseful) {
		configure := func(limits map[int64]forebay.Budget) {
			p.Helper()
			if err := p.Admission.ConfigureBudgets(p.Context(), limits); err != nil {
				p.Fatal(err)
			}
		}
		expect := func(what string, limit int64, by string) {
			p.Helper()
			rows, _, err := p.Admission.BudgetRows(p.Context(), "acme", true)
			if err != nil || len(rows) != 1 {
				p.Fatalf("%+v %v", rows, err)
			}
			got := int64(-1)
			if rows[0].Budget.DailyTokens != nil {
				got = *rows[0].Budget.DailyTokens
			}
			if got != limit || rows[0].SetBy != by {
				p.Errorf("%s: %d by %s, want %d by %s", what, got, rows[0].SetBy, limit, by)
			}
		}
		ten, twenty := int64(10), int64(20)
		configure(map[int64]forebay.Budget{p.tenant: {DailyTokens: &ten}})
		expect("configured", 10, "configuration")
		p.dailyTokens(15)
		configure(map[int64]forebay.Budget{p.tenant: {DailyTokens: &ten}})
		expect("a start with the same file", 15, "key_1")
		configure(map[int64]forebay.Budget{p.tenant: {DailyTokens: &twenty}})
		expect("a start with another file", 20, "configuration")
		configure(nil)
		expect("taken out of the file", -1, "configuration")
		p.dailyTokens(15)
		configure(nil)
		expect("never in the file", 15, "key_1")
	})
}

// A job is made ready because its budget has room. If it ends before it is called, the next job
// gets that room.
func TestRoomOfAJobThatEndsIsOthers(t *testing.T) {
	for name, end := range map[string]func(p *purseful, id string){
		"cancelled": func(p *purseful, id string) {
			job, err := p.Jobs.Job(p.Context(), p.tenant, id)
			if err != nil {
				p.Fatal(err)
			}
			if c, err := p.Jobs.Cancel(p.Context(), job.Seq); err != nil || !c.Cancelled {
				p.Fatalf("%+v %v", c, err)
			}
		},
		"its deadline passes": func(*purseful, string) { <-time.After(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inPurse(t, func(p *purseful) {
				p.dailyTokens(0)
				p.submit(nil)
				p.claim(paidPlan)
				need, err := waitsFor(p)
				if err != nil {
					t.Fatal(err)
				}
				p.dailyTokens(need) // for one call
				running := p.claim(paidPlan)
				if len(running) != 1 {
					t.Fatalf("claimed %+v", running)
				}
				deadline := time.Now().Add(4 * time.Second)
				first := p.submit(func(j *NewJob) {
					if name != "cancelled" {
						j.Deadline = &deadline
					}
				})
				second := p.submit(nil)
				if got := p.claim(paidPlan); len(got) != 0 {
					t.Fatalf("claimed %+v", got)
				}
				p.succeed(&running[0], 0) // the first of those that wait is ready now, and nobody claims it
				end(p, first)
				if got := p.claim(paidPlan); len(got) != 1 || got[0].ID != second {
					t.Errorf("claimed %+v", got)
				}
			})
		})
	}
}

// waitsFor returns the tokens that the first job needs which waits for a budget.
func waitsFor(p *purseful) (tokens int64, err error) {
	err = p.DB.Read(p.Context(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT tokens FROM budget_waits ORDER BY seq LIMIT 1").One(func(r driver.Row) { tokens = r.Int(0) })
		return err
	})
	return tokens, err
}

// Other tenants' jobs pass those of a tenant whose budget is spent, however many these are.
func TestOthersPassWhoWaits(t *testing.T) {
	inPurse(t, func(p *purseful) {
		p.dailyTokens(0)
		other, err := p.Queues.EnsureTenant(p.Context(), "other")
		if err != nil {
			p.Fatal(err)
		}
		jobs := make([]NewJob, 3*admission.MaxParked)
		for i := range jobs {
			jobs[i] = NewJob{ID: "job_x" + time.Duration(i).String(), Tenant: p.tenant, Queue: p.queue, Task: "t0", MaxAttempts: 9, Priority: 9, Input: []byte("1"), InputSize: 1}
		}
		if _, err := p.Jobs.Submit(p.Context(), jobs); err != nil {
			p.Fatal(err)
		}
		id := p.submit(func(j *NewJob) { j.Tenant = other })
		if got := p.claim(paidPlan); len(got) != 1 || got[0].ID != id {
			p.Fatalf("claimed %+v", got)
		}
		if got := p.claim(paidPlan); len(got) != 0 { // it looks at all the others
			p.Fatalf("claimed %+v", got)
		}
		rows, _, err := p.Admission.BudgetRows(p.Context(), "acme", false)
		if err != nil || rows[0].Waiting != int64(len(jobs)) {
			p.Errorf("%+v wait, %v", rows, err)
		}
	})
}

// However many budgets keys have, none of a tenant's is left out for them.
func TestBudgetsOfManyKeys(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		first, last := tenantNamed(t, s, "acme"), tenantNamed(t, s, "zeta")
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
			const insert = "INSERT INTO budgets (tenant, key_id, daily_tokens, updated_at, set_by) "
			if err := tx.Prep(insert + "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= ?2) SELECT ?1, 'key_' || i, 5, 1, 'me' FROM n").
				Int(first).Int(admission.MaxBudgetRows).Exec(); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, tx.Prep(insert + "VALUES (?, '', 7, 1, 'me'), (?, '', 7, 1, 'me')").Int(first).Int(last).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		rows, _, err := s.Admission.BudgetRows(t.Context(), "", true)
		if err != nil || len(rows) != 2+admission.MaxBudgetRows {
			t.Fatalf("%d budgets, %v", len(rows), err)
		}
		for i, tenant := range []string{"acme", "zeta"} {
			if r := rows[i]; r.Tenant != tenant || r.KeyID != "" || r.Budget.DailyTokens == nil || *r.Budget.DailyTokens != 7 {
				t.Errorf("%+v instead of the budget of %s", r, tenant)
			}
		}
		if rows, _, err := s.Admission.BudgetRows(t.Context(), "zeta", true); err != nil || len(rows) != 1 {
			t.Errorf("%d budgets of a tenant without keys, %v", len(rows), err)
		}
		if rows, _, err := s.Admission.BudgetRows(t.Context(), "", false); err != nil || len(rows) != 2 {
			t.Errorf("%d budgets of tenants, %v", len(rows), err)
		}
	})
}

// What a call may have used whose worker has not said it yet does not make a budget spent.
func TestBudgetIsNotSpentByLostCalls(t *testing.T) {
	inPurse(t, func(p *purseful) {
		const hold = promptTokens*13/10 + outputTokens // at most
		p.submit(nil)
		second := p.submit(nil)
		p.dailyTokens(hold + 1)
		got := p.claim(paidPlan)
		if len(got) != 1 || len(p.claim(paidPlan)) != 0 {
			p.Fatalf("claimed %+v", got)
		}
		if _, err := p.Jobs.Cancel(p.Context(), got[0].Seq); err != nil {
			p.Fatal(err)
		}
		if left, err := p.Admission.Spent(p.Context(), second); err != nil || left != 0 {
			p.Errorf("spent for %s, %v", left, err)
		}
		if err := p.Jobs.Amend(p.Context(), &got[0], AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeCancelled, Usage: forebay.TokenUsage{InputTokens: hold}}); err != nil {
			p.Fatal(err)
		}
		if left, err := p.Admission.Spent(p.Context(), second); err != nil || left == 0 {
			p.Errorf("not spent by what the call did use: %s, %v", left, err)
		}
	})
}

// A spent budget says for how long it surely has no room for a job: until the last of its periods
// ends. What running calls hold is not spent.
func TestBudgetSpentUntil(t *testing.T) {
	inPurse(t, func(p *purseful) {
		spent := func(id string) time.Duration {
			p.Helper()
			left, err := p.Admission.Spent(p.Context(), id)
			if err != nil {
				p.Fatal(err)
			}
			return left.Round(time.Minute)
		}
		<-time.After(23 * time.Hour)                   // an hour is left of the day, which is the first of a month
		const hold = promptTokens*13/10 + outputTokens // at most
		first, second := p.submit(nil), p.submit(nil)
		if left := spent(first); left != 0 {
			p.Errorf("without a budget: %s", left)
		}
		p.dailyTokens(hold + 1)
		got := p.claim(paidPlan)
		if len(got) != 1 || got[0].ID != first {
			p.Fatalf("claimed %+v", got)
		}
		if got := p.claim(paidPlan); len(got) != 0 { // what the second one needs is known from now on
			p.Fatalf("claimed %+v", got)
		}
		if left := spent(second); left != 0 {
			p.Errorf("held by a call: %s", left)
		}
		p.succeed(&got[0], 2)
		if left := spent(second); left != time.Hour {
			p.Errorf("too little is left: %s", left)
		}
		month := int64(2)
		if err := setBudget(p.stores, p.tenant, "", forebay.Budget{MonthlyTokens: &month}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "set-budget"}); err != nil {
			p.Fatal(err)
		}
		if left := spent(second); left != 30*24*time.Hour+time.Hour {
			p.Errorf("of a month: %s", left)
		}
		other, err := p.Queues.EnsureTenant(p.Context(), "other")
		if err != nil {
			p.Fatal(err)
		}
		if left := spent(p.submit(func(j *NewJob) { j.Tenant = other })); left != 0 {
			p.Errorf("of another tenant: %s", left)
		}
		p.dailyTokens(hold + 1)
		<-time.After(2 * time.Hour)
		if left := spent(second); left != 0 {
			p.Errorf("on the next day: %s", left)
		}
	})
}
