package store

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// purseful is a store with a tenant, in a bubble.
type purseful struct {
	*testing.T
	*Store
	tenant, queue int64
	serial        int
}

func inPurse(t *testing.T, do func(*purseful)) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Options{Path: path, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := &purseful{T: t, Store: s}
		if p.tenant, err = s.EnsureTenant(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if p.queue, err = s.EnsureQueue(t.Context(), "default"); err != nil {
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
	if _, err := p.Submit(p.Context(), []NewJob{job}); err != nil {
		p.Fatal(err)
	}
	return job.ID
}

// claim returns what is given within a moment.
func (p *purseful) claim(plan Plan) []Delivery {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 200*time.Millisecond)
	defer cancel()
	got, err := p.Claim(ctx, ClaimRequest{Lane: LaneOf(p.queue, LaneMain), Max: 8, MaxBytes: 1 << 20, Lock: testLock, Plan: plan})
	if err != nil && ctx.Err() == nil {
		p.Fatal(err)
	}
	return got
}

func (p *purseful) succeed(d *Delivery, used int64) {
	p.Helper()
	if err := p.Succeed(p.Context(), d, AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeSucceeded, Usage: forebay.TokenUsage{InputTokens: used}}, Output{Inline: []byte("1"), Size: 1}); err != nil {
		p.Fatal(err)
	}
}

func (p *purseful) dailyTokens(limit int64) {
	p.Helper()
	if err := setBudget(p.Store, p.tenant, "", forebay.Budget{DailyTokens: &limit}, Audit{Tenant: "acme", Actor: "key_1", Action: "set-budget"}); err != nil {
		p.Fatal(err)
	}
}

// A budget that runs out is told of once a period: in the audit log, to listeners and to subscribers.
func TestBudgetIsToldOf(t *testing.T) {
	inPurse(t, func(p *purseful) {
		var heard []forebay.EventType
		p.OnBudgetEvent(func(e forebay.BudgetEvent) { heard = append(heard, e.Type) })
		settings := MessageQueue{Tenant: p.tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic, sub := settings, settings
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		topic, _, err := p.PutMessageQueue(p.Context(), topic, 10)
		if err != nil {
			p.Fatal(err)
		}
		sub.Name = SubscriptionName(topic.Name, "budgets")
		wanted := "sys.Label LIKE 'budget%'"
		sub, _, err = p.PutSubscription(p.Context(), topic, sub, []Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: wanted}}}, 10)
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
		entries, err := p.AuditEntries(p.Context(), forebay.AuditFilter{Actor: budgetActor}, 0, 10)
		if err != nil || len(entries) != 4 {
			p.Fatalf("audit %+v %v", entries, err)
		}
		var e forebay.BudgetEvent
		if err := json.Unmarshal([]byte(entries[0].Detail), &e); err != nil || e.Tenant != "acme" || e.Period != forebay.BudgetDay || !strings.HasPrefix(entries[0].Action, "budget_") {
			p.Errorf("told %+v %v", e, err)
		}
		events, err := p.Receive(p.Context(), ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil || len(events) != 4 {
			p.Fatalf("%d events were published (%v)", len(events), err)
		}
	})
}

// The cost limit of a job counts what a call may have cost whose worker was never heard of again, and
// passes over a deployment that is too dear.
func TestCostLimitCountsLostCalls(t *testing.T) {
	inPurse(t, func(p *purseful) {
		usage := forebay.TokenUsage{InputTokens: 130, OutputTokens: 50}
		dear, cheap := forebay.Price{Input: 20, Output: 60}, modelPrice
		plan := func(string, []byte, int64) []Option {
			request := quota.Request{PromptTokens: 100, MaxOutputTokens: 50}
			return []Option{{Deployment: "dear", Price: dear, Request: request}, {Deployment: "cheap", Price: cheap, Request: request}}
		}
		limit := dear.Cost(usage) + cheap.Cost(usage)
		id := p.submit(func(j *NewJob) { j.MaxCost = &limit })
		var names []string
		for range 3 {
			got := p.claim(plan)
			if len(got) != 1 {
				p.Fatalf("%d were claimed", len(got))
			}
			names = append(names, got[0].Admission.Deployment)
			<-time.After(testLock + time.Second)
		}
		row, err := p.Job(p.Context(), p.tenant, id)
		if err != nil {
			p.Fatal(err)
		}
		// The third is left to whoever makes the call: there is nothing left, and it is refused.
		if got := strings.Join(names, " "); got != "dear cheap cheap" || row.Usage.CostUSD != limit {
			p.Errorf("called %s for %s, want dear and cheap for %s", got, row.Usage.CostUSD, limit)
		}
		if spent, err := p.Spent(p.Context(), row.Seq); err != nil || spent != limit {
			p.Errorf("spent %s %v", spent, err)
		}
	})
}

// The latest change counts, whether the configuration or an operator made it.
func TestConfiguredBudgets(t *testing.T) {
	inPurse(t, func(p *purseful) {
		configure := func(limits map[int64]forebay.Budget) {
			p.Helper()
			if err := p.ConfigureBudgets(p.Context(), limits); err != nil {
				p.Fatal(err)
			}
		}
		expect := func(what string, limit int64, by string) {
			p.Helper()
			rows, _, err := p.BudgetRows(p.Context(), "acme", true)
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
		expect("configured", 10, configurationActor)
		p.dailyTokens(15)
		configure(map[int64]forebay.Budget{p.tenant: {DailyTokens: &ten}})
		expect("a start with the same file", 15, "key_1")
		configure(map[int64]forebay.Budget{p.tenant: {DailyTokens: &twenty}})
		expect("a start with another file", 20, configurationActor)
		configure(nil)
		expect("taken out of the file", -1, configurationActor)
		p.dailyTokens(15)
		configure(nil)
		expect("never in the file", 15, "key_1")
	})
}

// Other tenants' jobs pass those of a tenant whose budget is spent, however many these are.
func TestOthersPassWhoWaits(t *testing.T) {
	inPurse(t, func(p *purseful) {
		p.dailyTokens(0)
		other, err := p.EnsureTenant(p.Context(), "other")
		if err != nil {
			p.Fatal(err)
		}
		jobs := make([]NewJob, 3*maxParked)
		for i := range jobs {
			jobs[i] = NewJob{ID: "job_x" + time.Duration(i).String(), Tenant: p.tenant, Queue: p.queue, Task: "t0", MaxAttempts: 9, Priority: 9, Input: []byte("1"), InputSize: 1}
		}
		if _, err := p.Submit(p.Context(), jobs); err != nil {
			p.Fatal(err)
		}
		id := p.submit(func(j *NewJob) { j.Tenant = other })
		if got := p.claim(paidPlan); len(got) != 1 || got[0].ID != id {
			p.Fatalf("claimed %+v", got)
		}
		if got := p.claim(paidPlan); len(got) != 0 { // it looks at all the others
			p.Fatalf("claimed %+v", got)
		}
		rows, _, err := p.BudgetRows(p.Context(), "acme", false)
		if err != nil || rows[0].Waiting != int64(len(jobs)) {
			p.Errorf("%+v wait, %v", rows, err)
		}
	})
}
