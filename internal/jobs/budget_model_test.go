package jobs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/raced"
)

// treasury is the plain model of budgets: what each call of each job holds, was booked with or
// has used.
type treasury struct {
	s       *stores
	engine  engine
	queue   int64
	tenants [2]int64
	budgets map[purse]*modelBudget
	jobs    map[int64]*paidJob
	stale   []*paidCall // whose lock somebody else ended
	serials int
}

// setBudget sets the budget of a tenant, or of one of its keys.
func setBudget(s *stores, tenant int64, key string, limits forebay.Budget, entry audit.Act) error {
	_, err := db.TransactIn(context.Background(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *admission.Tx) (struct{}, error) {
		if err := t.SetBudget(tenant, key, limits, entry.Actor, nil); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, audit.Append(t.Tx, entry)
	})
	return err
}

// purse names a budget.
type purse struct {
	tenant int64
	key    string
}

type modelBudget struct {
	forebay.Budget
	set   bool
	calls []*paidCall // that were claimed while there was a limit
}

type paidJob struct {
	id      string
	seq     int64
	purse   purse // of its key; key "": none
	task    string
	session bool
	limited bool        // it has a limit of its own, which it does not reach
	calls   []*paidCall // all that were claimed
	later   int64       // when it may be called again
	call    *paidCall   // under way
	over    bool
}

func (j *paidJob) need() admission.Amount {
	var n int
	if _, err := fmt.Sscanf(j.task, "t%d", &n); err != nil {
		panic(err)
	}
	return needOf(n)
}

// paidCall is what one delivery holds, or has used.
type paidCall struct {
	LockedJob
	at   int64
	held bool
	used admission.Amount
}

// The price and the size of calls: task n needs n+1 times as much. An estimate from which nothing
// was learned yet has a margin of 30 %.
const (
	promptTokens = 100
	outputTokens = 50
)

var modelPrice = forebay.Price{Input: 10, Output: 30}

func needOf(task int) admission.Amount {
	bound := forebay.TokenUsage{InputTokens: int64(task+1) * promptTokens * 13 / 10, OutputTokens: int64(task+1) * outputTokens}
	return admission.Amount{Tokens: bound.InputTokens + bound.OutputTokens, Cost: int64(modelPrice.Cost(bound))}
}

func paidPlan(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
	var n int
	if _, err := fmt.Sscanf(task, "t%d", &n); err != nil {
		return nil
	}
	return []admission.Option{{Deployment: "d", Price: modelPrice,
		Request: quota.Request{PromptTokens: int64(n+1) * promptTokens, MaxOutputTokens: int64(n+1) * outputTokens}}}
}

func (m *treasury) now() int64 { return m.engine.Now() }

// paying are the budgets that pay for a job now.
func (m *treasury) paying(p purse) (list []*modelBudget) {
	for _, key := range []string{"", p.key} {
		if b := m.budgets[purse{p.tenant, key}]; b != nil && !b.Empty() && (key != "" || len(list) == 0) {
			list = append(list, b)
		}
		if p.key == "" {
			break
		}
	}
	return list
}

// budgetPeriods are the kinds of periods, as the database numbers them.
var budgetPeriods = [...]forebay.BudgetPeriod{forebay.BudgetDay, forebay.BudgetMonth}

// sum is what was used and is held in the period of that kind that a time is in.
func (b *modelBudget) sum(kind int, at int64) (used, held admission.Amount) {
	for _, c := range b.calls {
		if periodStart(kind, c.at) != periodStart(kind, at) {
			continue
		}
		if c.held {
			held = held.Plus(c.used)
		} else {
			used = used.Plus(c.used)
		}
	}
	return used, held
}

func periodStart(kind int, at int64) int64 {
	return budgetPeriods[kind].Start(driver.FromMillis(at)).UnixMilli()
}

func (b *modelBudget) room(now int64, need admission.Amount) bool {
	limits := [len(budgetPeriods)]admission.Limit{{Tokens: -1, Cost: -1}, {Tokens: -1, Cost: -1}}
	for i, v := range []*int64{b.DailyTokens, (*int64)(b.DailyUSD), b.MonthlyTokens, (*int64)(b.MonthlyUSD)} {
		if v == nil {
			continue
		}
		if i%2 == 0 {
			limits[i/2].Tokens = *v
		} else {
			limits[i/2].Cost = *v
		}
	}
	for kind, l := range limits {
		used, held := b.sum(kind, now)
		if !l.Allows(used.Plus(held), need) {
			return false
		}
	}
	return true
}

func (m *treasury) submit(t *rapid.T) {
	m.serials++
	p := purse{tenant: rapid.SampledFrom(m.tenants[:]).Draw(t, "tenant")}
	if rapid.Bool().Draw(t, "by key") {
		p.key = fmt.Sprintf("key_%d_%s", p.tenant, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"))
	}
	task := fmt.Sprintf("t%d", rapid.IntRange(0, 3).Draw(t, "size"))
	job := NewJob{ID: fmt.Sprintf("job_%d", m.serials), Tenant: p.tenant, Queue: m.queue, Task: task, MaxAttempts: 100, Priority: 5,
		Input: []byte("{}"), InputSize: 2, KeyID: p.key}
	if rapid.IntRange(0, 3).Draw(t, "session") == 0 {
		job.SessionID = "s"
	}
	if rapid.Bool().Draw(t, "limited") {
		job.MaxTotalTokens = new(int64(forebay.MaxTotalTokens))
	}
	if _, err := m.s.Jobs.Submit(context.Background(), []NewJob{job}); err != nil {
		t.Fatal(err)
	}
	row, err := m.s.Jobs.Job(context.Background(), p.tenant, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	m.jobs[row.Seq] = &paidJob{id: job.ID, seq: row.Seq, purse: p, task: task, session: job.SessionID != "", limited: job.MaxTotalTokens != nil}
}

// claim takes what is given. It checks that there was room for it, and that there is no room for
// anything that is left.
func (m *treasury) claim(t *rapid.T) { m.claimed(t, rapid.IntRange(1, 8).Draw(t, "max")) }

// drain claims until there is nothing more. What is left then waits for a budget that has no room
// for it.
func (m *treasury) drain(t *rapid.T) {
	for got := -1; got != 0; {
		for got = 0; m.claimed(t, 8) > 0; {
			got++
		}
		// What was kept for a moment is scanned again: first for claims that have gone, if there are
		// any.
		m.engine.Pass(m.s, blockedPause*time.Millisecond)
		m.engine.Pass(m.s, blockedPause*time.Millisecond)
		got += m.claimed(t, 8)
	}
	now := m.now()
	for _, j := range m.jobs {
		if j.over || j.session || j.call != nil && j.call.LockedUntil.UnixMilli() > now || j.call == nil && j.later > now {
			continue
		}
		room := true
		for _, b := range m.paying(j.purse) {
			room = room && b.room(now, j.need())
		}
		row, err := m.s.Jobs.Job(context.Background(), j.purse.tenant, j.id)
		if err != nil {
			t.Fatal(err)
		}
		if room || row.Waiting != forebay.WaitBudget || row.Status != forebay.StatusQueued {
			t.Fatalf("job %d of %v is %s and waits for %q; is there room for it: %v\n%s", j.seq, j.purse, row.Status, row.Waiting, room, m.dump(j.seq))
		}
	}
}

// dump is what is stored of a job's message, and what the writer knows of its subqueue.
func (m *treasury) dump(seq int64) (text string) {
	_, _ = db.TransactIn(context.Background(), Key, m.s.DB.Writer, db.Op{Stage: db.StageChange}, func(x *Tx) (struct{}, error) {
		text = fmt.Sprintf("at %d: due %v, blocked %v; ", x.Now, x.w.DueAt, x.w.blocked)
		return struct{}{}, x.Prep("SELECT subqueue, flow, visible_at, coalesce(lock_token, 0), waiting FROM messages WHERE seq = ?").Int(seq).Each(func(r driver.Row) error {
			text += fmt.Sprintf("lane %d rank %d visible %d token %d waiting %q", r.Int(0), r.Int(1), r.Int(2), r.Int(3), r.Text(4))
			return nil
		})
	})
	return text
}

func (m *treasury) claimed(t *rapid.T, limit int) int {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var got []LockedJob
	var err error
	go func() {
		defer close(done)
		got, err = m.s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(m.queue, queue.SubqueueMain), Max: limit, MaxBytes: 1 << 20, Lock: testLock, Plan: paidPlan})
	}()
	m.engine.Settle(m.s, done)
	cancel()
	<-done
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	now := m.now()
	for _, d := range got {
		j := m.jobs[d.Seq]
		if c := j.call; c != nil { // its lock had expired
			m.lose(j)
		}
		c := &paidCall{LockedJob: d, at: now, held: true, used: j.need()}
		for _, b := range m.paying(j.purse) {
			if !b.room(now, c.used) {
				t.Fatalf("job %d of %v was claimed without room for it", d.Seq, j.purse)
			}
		}
		paying := m.paying(j.purse)
		for _, b := range paying {
			b.calls = append(b.calls, c)
		}
		if want := len(paying) > 0 || j.limited; d.Held != want {
			t.Fatalf("job %d of %v: held %v, want %v", d.Seq, j.purse, d.Held, want)
		}
		j.call, j.calls = c, append(j.calls, c)
	}
	return len(got)
}

// lose books what a call holds as used.
func (m *treasury) lose(j *paidJob) {
	j.call.held = false
	m.stale = append(m.stale, j.call)
	j.call = nil
}

// running picks a job that is being called.
func (m *treasury) running(t *rapid.T) *paidJob {
	var list []*paidJob
	for seq := int64(0); seq < int64(m.serials)*20+100; seq++ {
		if j := m.jobs[seq]; j != nil && j.call != nil {
			list = append(list, j)
		}
	}
	if len(list) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(list).Draw(t, "job")
}

func (m *treasury) settle(t *rapid.T) {
	j := m.running(t)
	c := j.call
	a := AttemptRecord{Deployment: "d", Usage: forebay.TokenUsage{InputTokens: rapid.Int64Range(1, 400).Draw(t, "input"), OutputTokens: rapid.Int64Range(0, 200).Draw(t, "output")}}
	a.Cost = modelPrice.Cost(a.Usage)
	used := admission.Amount{Tokens: a.Usage.InputTokens + a.Usage.OutputTokens, Cost: int64(a.Cost)}
	var err error
	ways := []string{"succeed", "throttle", "release", "cut off", "retry"}
	if j.session { // the others would wait until its retry is over
		ways = ways[:4]
	}
	switch rapid.SampledFrom(ways).Draw(t, "how") {
	case "succeed":
		a.Outcome = forebay.OutcomeSucceeded
		err = m.s.Jobs.Succeed(context.Background(), &c.LockedJob, a, Output{Inline: []byte("1"), Size: 1})
		j.over = true
	case "throttle":
		a, used = AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeThrottled, RetryDelay: time.Second}, admission.Amount{}
		err = m.s.Jobs.Throttle(context.Background(), &c.LockedJob, a, forebay.WaitQuota)
		j.later = m.now() + 1000
	case "release":
		used = admission.Amount{}
		err = m.s.Jobs.Release(context.Background(), &c.LockedJob, 0, "")
	case "cut off":
		a, used = AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeLost, Unmeasured: true}, c.used
		err = m.s.Jobs.Interrupt(context.Background(), &c.LockedJob, a)
	case "retry": // into the retry subqueue, where nobody claims it here
		a.Outcome, a.RetryDelay, j.over = forebay.OutcomeRetried, time.Hour, true
		err = m.s.Jobs.Retry(context.Background(), &c.LockedJob, a)
	}
	if errors.Is(err, forebay.ErrLockLost) && c.LockedUntil.UnixMilli() <= m.now() { // there was no room to call it again
		m.lose(j)
		j.over = false
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	c.held, c.used = false, used
	j.call = nil
}

func (m *treasury) cancel(t *rapid.T) {
	var list []*paidJob
	for seq := int64(0); seq < int64(m.serials)*20+100; seq++ {
		if j := m.jobs[seq]; j != nil && !j.over {
			list = append(list, j)
		}
	}
	if len(list) == 0 {
		t.Skip("no job is there")
	}
	j := rapid.SampledFrom(list).Draw(t, "job")
	if _, err := m.s.Jobs.Cancel(context.Background(), j.seq); err != nil {
		t.Fatal(err)
	}
	j.over = true
	if j.call != nil {
		m.lose(j)
	}
}

// amend is a worker that says what a call has used that somebody else ended.
func (m *treasury) amend(t *rapid.T) {
	if len(m.stale) == 0 {
		t.Skip("nothing was lost")
	}
	i := rapid.IntRange(0, len(m.stale)-1).Draw(t, "call")
	c := m.stale[i]
	m.stale = append(m.stale[:i:i], m.stale[i+1:]...)
	a := AttemptRecord{}
	if rapid.Bool().Draw(t, "called") {
		a.Deployment = "d"
		a.Usage = forebay.TokenUsage{InputTokens: rapid.Int64Range(0, 400).Draw(t, "input")}
		a.Cost, a.Unmeasured = modelPrice.Cost(a.Usage), true
	}
	if err := m.s.Jobs.Amend(context.Background(), &c.LockedJob, a); err != nil {
		t.Fatal(err)
	}
	if used, known := a.used(); known {
		c.used = used
	}
}

func (m *treasury) setBudget(t *rapid.T) {
	p := purse{tenant: rapid.SampledFrom(m.tenants[:]).Draw(t, "tenant")}
	if rapid.Bool().Draw(t, "of key") {
		p.key = fmt.Sprintf("key_%d_%s", p.tenant, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"))
	}
	var limits forebay.Budget
	if rapid.Bool().Draw(t, "a day") {
		limits.DailyTokens = new(rapid.Int64Range(0, 3000).Draw(t, "tokens"))
	}
	if rapid.Bool().Draw(t, "a month") {
		limits.MonthlyUSD = new(forebay.Money(rapid.Int64Range(0, 30_000_000).Draw(t, "cost")))
	}
	if err := setBudget(m.s, p.tenant, p.key, limits, audit.Act{Actor: "a", Action: "set-budget", Target: "x"}); err != nil {
		t.Fatal(err)
	}
	b := m.budgets[p]
	if b == nil {
		b = &modelBudget{}
		m.budgets[p] = b
	}
	b.Budget, b.set = limits, true
}

func (m *treasury) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, testLock + time.Second, 3 * time.Hour, 11 * time.Hour, 9 * 24 * time.Hour}).Draw(t, "duration")
	m.engine.Pass(m.s, d)
}

func TestBudgetsAgainstModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	overDays(t, func(t *rapid.T, e engine) {
		m := &treasury{s: e.Open(t), engine: e, budgets: map[purse]*modelBudget{}, jobs: map[int64]*paidJob{}}
		defer func() { m.s.DB.Close() }()
		var err error
		if m.queue, err = m.s.Queues.EnsureQueue(context.Background(), "default"); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"acme", "other"} {
			if m.tenants[i], err = m.s.Queues.EnsureTenant(context.Background(), name); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "submit": m.submit, "submit more": m.submit, "claim": m.claim, "claim more": m.claim, "drain": m.drain, "drain more": m.drain, "settle": m.settle, "settle more": m.settle,
			"cancel": m.cancel, "amend": m.amend, "set budget": m.setBudget, "pass": m.pass,
		})
		m.finish(t)
	})
}

// days is a bubble in which days pass. Its idle writer looks once an hour whether it has missed
// something: twice a minute is most of what there would be to do.
type days struct{ dbtest.Bubble[*stores] }

func (d days) Open(t rapid.TB) *stores {
	s := d.Bubble.Open(t)
	_, err := db.Transact(context.Background(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) {
		s.DB.Writer.Polling = time.Hour
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// overDays is onEveryEngine for runs that take days. Rapid ends a check after one day by the
// bubble's clock, so each run on SQLite has a bubble of its own. Its seed is a flag. No other test
// may read that meanwhile.
func overDays(t *testing.T, run func(*rapid.T, engine)) {
	t.Run("sqlite", func(t *testing.T) {
		dir, first := t.TempDir(), rand.Uint64()>>1
		given := flag.Lookup("rapid.seed").Value.String()
		if seed, err := strconv.ParseUint(given, 10, 64); err == nil && seed != 0 {
			first = seed
		}
		defer flag.Set("rapid.seed", given)
		for serial := range uint64(dbtest.SQLiteRuns * dbtest.Repeat()) {
			if err := flag.Set("rapid.seed", strconv.FormatUint(first+serial, 10)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
					runs++
					run(t, days{fixture.Bubble(filepath.Join(dir, fmt.Sprintf("%d_%d.db", serial, runs)))})
				})
			})
			if t.Failed() {
				return
			}
		}
	})
	t.Parallel()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		server, serial := dbtest.NewClockServer(t), 0
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			if serial++; serial > 3*dbtest.PostgresRuns*dbtest.Repeat() || testing.Short() && serial > dbtest.PostgresRuns {
				return
			}
			run(t, fixture.ClockSchema(server))
		})
	})
}
