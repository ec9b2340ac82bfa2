package store

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
	"github.com/forebayhq/forebay/internal/quota"
)

// treasury is the plain model of budgets: what each call of each job holds, was booked with or has used.
type treasury struct {
	s       *Store
	engine  engine
	queue   int64
	tenants [2]int64
	budgets map[purse]*modelBudget
	jobs    map[int64]*paidJob
	stale   []*paidCall // whose lock somebody else ended
	serials int
}

// setBudget sets the budget of a tenant, or of one of its keys.
func setBudget(s *Store, tenant int64, key string, limits forebay.Budget, entry Audit) error {
	_, err := transactIn(context.Background(), admissionKey, s.DB.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		if err := t.setBudget(tenant, key, limits, entry.Actor, nil); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, auditIn(t.tx, entry)
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

func (j *paidJob) need() Amount {
	var n int
	if _, err := fmt.Sscanf(j.task, "t%d", &n); err != nil {
		panic(err)
	}
	return needOf(n)
}

// paidCall is what one delivery holds, or has used.
type paidCall struct {
	Delivery
	at   int64
	held bool
	used Amount
}

// The price and the size of calls: task n needs n+1 times as much. The margin for an estimate that nothing
// was learned of is 30 %.
const (
	promptTokens = 100
	outputTokens = 50
)

var modelPrice = forebay.Price{Input: 10, Output: 30}

func needOf(task int) Amount {
	bound := forebay.TokenUsage{InputTokens: int64(task+1) * promptTokens * 13 / 10, OutputTokens: int64(task+1) * outputTokens}
	return Amount{bound.InputTokens + bound.OutputTokens, int64(modelPrice.Cost(bound))}
}

func paidPlan(task string, _ []byte, _ int64) []Option {
	var n int
	if _, err := fmt.Sscanf(task, "t%d", &n); err != nil {
		return nil
	}
	return []Option{{Deployment: "d", Price: modelPrice,
		Request: quota.Request{PromptTokens: int64(n+1) * promptTokens, MaxOutputTokens: int64(n+1) * outputTokens}}}
}

func (m *treasury) now() int64 { return m.engine.now() }

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

// sum is what was used and is held in the period of that kind that a time is in.
func (b *modelBudget) sum(kind int, at int64) (used, held Amount) {
	for _, c := range b.calls {
		if periodStart(kind, c.at) != periodStart(kind, at) {
			continue
		}
		if c.held {
			held = held.plus(c.used)
		} else {
			used = used.plus(c.used)
		}
	}
	return used, held
}

func (b *modelBudget) room(now int64, need Amount) bool {
	limits := [budgetKinds]limit{{-1, -1}, {-1, -1}}
	for i, v := range []*int64{b.DailyTokens, (*int64)(b.DailyUSD), b.MonthlyTokens, (*int64)(b.MonthlyUSD)} {
		if v == nil {
			continue
		}
		if i%2 == 0 {
			limits[i/2].tokens = *v
		} else {
			limits[i/2].cost = *v
		}
	}
	for kind, l := range limits {
		used, held := b.sum(kind, now)
		if !l.allows(used.plus(held), need) {
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

// claim takes what is given, checks that there was room for it, and that nothing is left for which there
// would be.
func (m *treasury) claim(t *rapid.T) { m.claimed(t, rapid.IntRange(1, 8).Draw(t, "max")) }

// drain claims until there is nothing more: then whatever is left waits for a budget that has no room for it.
func (m *treasury) drain(t *rapid.T) {
	for got := -1; got != 0; {
		for got = 0; m.claimed(t, 8) > 0; {
			got++
		}
		// What was kept for a moment is looked at again: first for claims that have gone, if there are such.
		m.engine.pass(m.s, blockedPause*time.Millisecond)
		m.engine.pass(m.s, blockedPause*time.Millisecond)
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
	_, _ = transactIn(context.Background(), jobsKey, m.s.DB.writer, op{stage: stageChange}, func(x *jobsTx) (struct{}, error) {
		text = fmt.Sprintf("at %d: due %v, blocked %v; ", x.now, x.w.dueAt, x.w.blocked)
		return struct{}{}, x.prep("SELECT lane, rank, visible, coalesce(token, 0), waiting FROM messages WHERE seq = ?").int(seq).each(func(r row) error {
			text += fmt.Sprintf("lane %d rank %d visible %d token %d waiting %q", r.int(0), r.int(1), r.int(2), r.int(3), r.text(4))
			return nil
		})
	})
	return text
}

func (m *treasury) claimed(t *rapid.T, limit int) int {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var got []Delivery
	var err error
	go func() {
		defer close(done)
		got, err = m.s.Jobs.Claim(ctx, ClaimRequest{Subqueue: SubqueueOf(m.queue, SubqueueMain), Max: limit, MaxBytes: 1 << 20, Lock: testLock, Plan: paidPlan})
	}()
	m.engine.settle(m.s, done)
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
		c := &paidCall{Delivery: d, at: now, held: true, used: j.need()}
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
	used := Amount{a.Usage.InputTokens + a.Usage.OutputTokens, int64(a.Cost)}
	var err error
	ways := []string{"succeed", "throttle", "release", "cut off", "retry"}
	if j.session { // the others would wait until its retry is over
		ways = ways[:4]
	}
	switch rapid.SampledFrom(ways).Draw(t, "how") {
	case "succeed":
		a.Outcome = forebay.OutcomeSucceeded
		err = m.s.Jobs.Succeed(context.Background(), &c.Delivery, a, Output{Inline: []byte("1"), Size: 1})
		j.over = true
	case "throttle":
		a, used = AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeThrottled, RetryDelay: time.Second}, Amount{}
		err = m.s.Jobs.Throttle(context.Background(), &c.Delivery, a, forebay.WaitQuota)
		j.later = m.now() + 1000
	case "release":
		used = Amount{}
		err = m.s.Jobs.Release(context.Background(), &c.Delivery, 0, "")
	case "cut off":
		a, used = AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeLost, Unmeasured: true}, c.used
		err = m.s.Jobs.Interrupt(context.Background(), &c.Delivery, a)
	case "retry": // into the retry subqueue, where nobody claims it here
		a.Outcome, a.RetryDelay, j.over = forebay.OutcomeRetried, time.Hour, true
		err = m.s.Jobs.Retry(context.Background(), &c.Delivery, a)
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
	if err := m.s.Jobs.Amend(context.Background(), &c.Delivery, a); err != nil {
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
	if err := setBudget(m.s, p.tenant, p.key, limits, Audit{Actor: "a", Action: "set-budget", Target: "x"}); err != nil {
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
	m.engine.pass(m.s, d)
}

// check compares what is stored with the model.
func (m *treasury) check(t *rapid.T) {
	m.engine.settle(m.s, nil)
	now := m.now()
	_, err := transactIn(context.Background(), admissionKey, m.s.DB.writer, op{stage: stageChange}, func(x *admissionTx) (struct{}, error) {
		// A lock that has expired is forgotten where there is no room to call the job again.
		for _, j := range m.jobs {
			if j.call == nil || j.call.LockedUntil.UnixMilli() > now {
				continue
			}
			var token int64
			if _, err := x.prep("SELECT coalesce(token, 0) FROM messages WHERE seq = ?").int(j.seq).one(func(r row) { token = r.int(0) }); err != nil {
				return struct{}{}, err
			}
			if token != j.call.Token {
				m.lose(j)
			}
		}
		for _, j := range m.jobs {
			var want, spent Amount
			for _, c := range j.calls {
				if !c.held {
					want = want.plus(c.used)
				}
			}
			if _, err := x.prep(sqlSpent).int(j.seq).one(func(r row) { spent = Amount{r.int(0), r.int(1)} }); err != nil {
				return struct{}{}, err
			}
			if j.limited && spent != want {
				return struct{}{}, fmt.Errorf("job %d has used %v, want %v", j.seq, spent, want)
			}
		}
		for p, want := range m.budgets {
			b, err := x.readBudget(x.prep(sqlBudget + "b.tenant = ? AND b.key_id = ?").int(x.day()).int(x.month()).int(p.tenant).text(p.key))
			if err != nil || b == nil {
				return struct{}{}, fmt.Errorf("budget %v: %v, %w", p, b, err)
			}
			for kind, s := range b.current {
				used, held := want.sum(kind, now)
				if s.settled != used || s.held != held {
					return struct{}{}, fmt.Errorf("budget %v has used %v and holds %v in the %s, want %v and %v", p, s.settled, s.held, budgetPeriods[kind], used, held)
				}
			}
			var holds Amount
			err = x.prep("SELECT tokens, cost FROM budget_holds WHERE budget = ? AND lost = 0").int(b.no).each(func(r row) error {
				holds = holds.plus(Amount{r.int(0), r.int(1)})
				return nil
			})
			if err != nil {
				return struct{}{}, err
			}
			var all Amount
			for _, c := range want.calls {
				if c.held {
					all = all.plus(c.used)
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
		if err := setBudget(m.s, p.tenant, p.key, forebay.Budget{}, Audit{}); err != nil {
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
			err := m.s.Jobs.Succeed(context.Background(), &c.Delivery, a, Output{Inline: []byte("1"), Size: 1})
			if errors.Is(err, forebay.ErrLockLost) && c.LockedUntil.UnixMilli() <= m.now() {
				m.lose(j)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			c.held, c.used, j.call, j.over = false, Amount{}, nil, true
		}
		if left == 0 {
			break
		}
		if round > 3*len(m.jobs)+10 {
			t.Fatalf("%d jobs are left without any budget, such as %d: %s", left, which, m.dump(which))
		}
		m.engine.pass(m.s, time.Second)
		m.engine.pass(m.s, time.Second)
		m.claimed(t, 8)
	}
	m.check(t)
	err := m.s.DB.read(context.Background(), func(c conn) error {
		return c.prep("SELECT count(*), (SELECT count(*) FROM budget_holds WHERE lost = 0) FROM spending WHERE held_tokens <> 0 OR held_cost <> 0 OR tokens < 0 OR cost < 0").each(func(r row) error {
			if r.int(0) != 0 || r.int(1) != 0 {
				t.Fatalf("in the end %d periods and %d calls hold something", r.int(0), r.int(1))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBudgetsAgainstModel(t *testing.T) {
	overDays(t, func(t *rapid.T, e engine) {
		m := &treasury{s: e.open(t), engine: e, budgets: map[purse]*modelBudget{}, jobs: map[int64]*paidJob{}}
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

// overDays is onEveryEngine for runs that take days: rapid ends a check after one, by the bubble's clock,
// so each run on SQLite has a bubble of its own.
func overDays(t *testing.T, run func(*rapid.T, engine)) {
	t.Run("sqlite", func(t *testing.T) {
		dir, first := t.TempDir(), rand.Uint64()>>1
		given := flag.Lookup("rapid.seed").Value.String()
		if seed, err := strconv.ParseUint(given, 10, 64); err == nil && seed != 0 {
			first = seed
		}
		defer flag.Set("rapid.seed", given)
		for serial := range uint64(sqliteRuns * more()) {
			if err := flag.Set("rapid.seed", strconv.FormatUint(first+serial, 10)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
					runs++
					run(t, bubble{filepath.Join(dir, fmt.Sprintf("%d_%d.db", serial, runs))})
				})
			})
			if t.Failed() {
				return
			}
		}
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		server, serial := newClockServer(t), 0
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			if serial++; serial > 3*postgresRuns*more() || testing.Short() && serial > postgresRuns {
				return
			}
			run(t, &clockSchema{server: server, name: fmt.Sprintf("s%d", serial)})
		})
	})
}
