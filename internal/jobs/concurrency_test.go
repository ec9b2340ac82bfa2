package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
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

func capTenant(t rapid.TB, s *stores, tenant int64, most int) {
	if err := s.Tenants.SetTenant(context.Background(), tenant, forebay.TenantSettings{Concurrency: &most}, audit.Act{Actor: "a", Action: "set-concurrency", Target: "x"}); err != nil {
		t.Fatal(err)
	}
}

// A tenant has no more calls under way than its concurrency limit. Its other jobs delay nobody.
// A slot is freed by a settlement or by a lost lock, and goes to the next job.
func TestTenantConcurrency(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		capped, other, queueID := tenantNamed(t, s, "default"), tenantNamed(t, s, "other"), queueOf(t, s, "q")
		capTenant(t, s, capped, 2)
		var jobs []NewJob
		for i := range 40 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("capped-", i), Tenant: capped, Queue: queueID, Task: "t", Priority: 9})
		}
		for i := range 3 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("other-", i), Tenant: other, Queue: queueID, Task: "t", Priority: 0})
		}
		submitAll(t, s, jobs...)
		lock := time.Minute
		claim := func(limit int) (deliveries []LockedJob, ids string) {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: limit, MaxBytes: 1 << 20, Lock: lock, MaxDeliveries: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range got {
				ids += d.ID + " "
			}
			return got, ids
		}
		got, ids := claim(10)
		if ids != "capped-0 other-0 capped-1 other-1 other-2 " {
			t.Fatalf("claimed %s", ids)
		}
		holding, err := s.Admission.Holding(t.Context())
		if err != nil || !holding.Concurrency.Full(capped) || holding.Concurrency.OfTenant(capped) != 2 || holding.Concurrency.Full(other) {
			t.Errorf("%+v %v", holding.Concurrency, err)
		}
		waiting := make(chan string)
		go func() {
			_, ids := claim(10)
			waiting <- ids
		}()
		if err := s.Jobs.Succeed(t.Context(), &got[0], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
			t.Fatal(err)
		}
		if ids := <-waiting; ids != "capped-2 " {
			t.Errorf("after a settlement %s were claimed", ids)
		}
		if _, err := s.Jobs.Cancel(t.Context(), got[2].Seq); err != nil {
			t.Fatal(err)
		}
		lock = 300 * time.Millisecond
		died, ids := claim(10)
		if ids != "capped-3 " {
			t.Errorf("after a cancel %s were claimed", ids)
		}
		// Nobody hears of its worker again: the slot is free once the lock has ended.
		again, ids := claim(10)
		if ids != "capped-4 " || again[0].LockedAt.Before(died[0].LockedUntil) {
			t.Errorf("after a lock had ended %s were claimed: %+v", ids, again[0])
		}
		capTenant(t, s, capped, 0)
		if _, ids = claim(100); len(ids) < 36*len("capped-9") {
			t.Errorf("without a limit %s were claimed", ids)
		}
	})
}

// A limit that is set counts the calls that are under way already.
func TestConcurrencySetWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		for i := range 5 {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: "t", Priority: 5})
		}
		req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 3, MaxBytes: 1 << 20, Lock: time.Hour}
		got, err := s.Jobs.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		capTenant(t, s, tenant, 2)
		done := make(chan error)
		began := time.Now()
		go func() {
			_, err := s.Jobs.Claim(t.Context(), req)
			done <- err
		}()
		for i := range got[:2] { // the first leaves as many as there may be
			<-time.After(time.Second)
			if err := s.Jobs.Succeed(t.Context(), &got[i], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("claimed after %s: %v", time.Since(began), err)
		}
	})
}

// A deployment that is full lets calls go to the next one, and jobs that only it could take wait.
func TestDeploymentConcurrency(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "default"), queueOf(t, s, "q")
		plan := func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) (options []admission.Option) {
			options = []admission.Option{{Deployment: "narrow", Concurrency: 2, Request: quota.Request{MaxOutputTokens: -1}}}
			if task == "either" {
				options = append(options, admission.Option{Deployment: "wide", Request: quota.Request{MaxOutputTokens: -1}})
			}
			return options
		}
		for i, task := range []string{"narrow", "either", "narrow", "either"} {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: task, Priority: 5})
		}
		req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 10, MaxBytes: 1 << 20, Lock: time.Minute, Plan: plan}
		got, err := s.Jobs.Claim(t.Context(), req)
		if err != nil || len(got) != 3 || got[2].Admission.Deployment != "wide" {
			t.Fatalf("claimed %+v %v", got, err)
		}
		done := make(chan []LockedJob)
		go func() {
			got, err := s.Jobs.Claim(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		got[0].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
		if err := s.Jobs.Retry(t.Context(), &got[0], AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if next := <-done; len(next) != 1 || next[0].ID != "2" {
			t.Errorf("claimed %+v", next)
		}
	})
}

// counter is the plain model of slots: which locks hold.
type counter struct {
	engine  engine
	stores  []*stores // processes
	queue   int64
	tenants [2]int64
	most    [2]int // 0: any number
	running map[int64]*LockedJob
	latest  *stores // the process that did something last
	jobs    int
}

const narrow = 3 // calls at once at the deployment of that name

func narrowPlan(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
	if task == "none" {
		return nil
	}
	options := []admission.Option{{Deployment: "narrow", Concurrency: narrow, Request: quota.Request{MaxOutputTokens: -1}}}
	if task == "either" {
		options = append(options, admission.Option{Deployment: "wide", Request: quota.Request{MaxOutputTokens: -1}})
	}
	return options
}

// underWay counts the calls whose locks hold.
func (m *counter) underWay(which func(*LockedJob) bool) (n int) {
	for _, d := range m.running {
		if d.LockedUntil.UnixMilli() > m.engine.Now() && which(d) {
			n++
		}
	}
	return n
}

func (m *counter) of(tenant int) func(*LockedJob) bool {
	return func(d *LockedJob) bool { return d.Tenant == m.tenants[tenant] }
}

func atNarrow(d *LockedJob) bool { return d.Admission != nil && d.Admission.Deployment == "narrow" }

// store picks the process that does something.
func (m *counter) store(t *rapid.T) *stores {
	s := rapid.SampledFrom(m.stores).Draw(t, "process")
	if m.latest != nil && s != m.latest { // what the other one has done may not have been heard of yet
		s.DB.Notified(&db.Notification{Lost: true})
	}
	m.latest = s
	return s
}

func (m *counter) submit(t *rapid.T) {
	jobs := make([]NewJob, rapid.IntRange(1, 8).Draw(t, "jobs"))
	for i := range jobs {
		m.jobs++
		class := rapid.IntRange(0, 2).Draw(t, "class")
		task := []string{"none", "narrow", "either"}[class]
		jobs[i] = NewJob{ID: fmt.Sprint(m.jobs), Tenant: m.tenants[rapid.IntRange(0, 1).Draw(t, "tenant")], Queue: m.queue, Task: task, Class: class,
			Priority: rapid.IntRange(4, 6).Draw(t, "priority"), MaxAttempts: 100, Input: []byte("1"), InputSize: 1}
	}
	if _, err := m.store(t).Jobs.Submit(context.Background(), jobs); err != nil {
		t.Fatal(err)
	}
}

// claim takes what a process may have, and leaves nothing lying that it may.
func (m *counter) claim(t *rapid.T) {
	s, limit := m.store(t), rapid.IntRange(1, 12).Draw(t, "most")
	if m.claimed(t, s, limit) > 0 {
		return
	}
	m.engine.Pass(s, 2*blockedPause*time.Millisecond) // for which a subqueue is left alone where calls are held
	if m.claimed(t, s, limit) == 0 {
		m.checkNothingLies(t, s)
	}
}

func (m *counter) claimed(t *rapid.T, s *stores, limit int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	var got []LockedJob
	var err error
	go func() {
		defer close(done)
		got, err = s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(m.queue, queue.SubqueueMain), Max: limit, MaxBytes: 1 << 20, Lock: testLock, Plan: narrowPlan})
	}()
	m.engine.Settle(s, done)
	cancel()
	<-done
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := [...]int{m.underWay(m.of(0)), m.underWay(m.of(1)), m.underWay(atNarrow)}
	for i := range got {
		if d := m.running[got[i].Seq]; d != nil && d.LockedUntil.UnixMilli() > m.engine.Now() {
			t.Fatalf("job %s was claimed twice", d.ID)
		}
		m.running[got[i].Seq] = &got[i]
	}
	for i, which := range []func(*LockedJob) bool{m.of(0), m.of(1), atNarrow} {
		most := narrow
		if i < 2 {
			most = m.most[i]
		}
		if n := m.underWay(which); most > 0 && n > most && n > before[i] {
			t.Fatalf("%d calls are under way, and %d were; %d may be", n, before[i], most)
		}
	}
	return len(got)
}

// checkNothingLies finds that whatever is ready has no slot.
func (m *counter) checkNothingLies(t *rapid.T, s *stores) {
	var text string
	err := s.DB.Read(context.Background(), func(c driver.Conn) error {
		return c.Prep("SELECT m.tenant, j.task, j.id FROM messages m JOIN jobs j ON j.seq = m.seq WHERE m.visible_at <= ? AND m.subqueue = ?").Int(m.engine.Now()).Int(int64(queue.SubqueueOf(m.queue, queue.SubqueueMain))).Each(func(r driver.Row) error {
			i := 0
			if r.Int(0) == m.tenants[1] {
				i = 1
			}
			full := m.most[i] > 0 && m.underWay(m.of(i)) >= m.most[i]
			if !full && (r.Text(1) != "narrow" || m.underWay(atNarrow) < narrow) {
				text = fmt.Sprintf("job %s of tenant %d, task %s, is ready and was not claimed; %d of %d are under way, %d at narrow", r.Text(2), i, r.Text(1), m.underWay(m.of(i)), m.most[i], m.underWay(atNarrow))
			}
			return nil
		})
	})
	if err != nil || text != "" {
		t.Fatal(text, err)
	}
}

func (m *counter) pick(t *rapid.T) *LockedJob {
	var list []*LockedJob
	for seq := range int64(1000) {
		if d := m.running[seq]; d != nil {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(list).Draw(t, "job")
}

func (m *counter) settle(t *rapid.T) {
	d, s := m.pick(t), m.store(t)
	var err error
	switch rapid.SampledFrom([]string{"succeed", "release", "throttle", "cancel", "renew"}).Draw(t, "how") {
	case "succeed":
		err = s.Jobs.Succeed(context.Background(), d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
	case "release":
		err = s.Jobs.Release(context.Background(), d, 0, "")
	case "throttle":
		err = s.Jobs.Throttle(context.Background(), d, AttemptRecord{Outcome: forebay.OutcomeThrottled, RetryDelay: time.Second}, forebay.WaitQuota)
	case "cancel":
		_, err = s.Jobs.Cancel(context.Background(), d.Seq)
	case "renew":
		if d.LockedUntil.UnixMilli() > m.engine.Now() {
			if held, err := s.Jobs.Renew(context.Background(), []queue.Lock{d.Lock}, testLock); err != nil || !held[0] {
				t.Fatal(held, err)
			}
			d.LockedUntil = driver.FromMillis(m.engine.Now()).Add(testLock)
			return
		}
		t.Skip("its lock has ended")
	}
	if err != nil && !errors.Is(err, forebay.ErrLockLost) {
		t.Fatal(err)
	}
	delete(m.running, d.Seq)
}

func (m *counter) limit(t *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(t, "tenant")
	m.most[i] = rapid.IntRange(0, 4).Draw(t, "limit")
	capTenant(t, m.store(t), m.tenants[i], m.most[i])
}

func (m *counter) pass(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 60_000).Draw(t, "milliseconds")) * time.Millisecond
	for i, s := range m.stores {
		if i == 0 {
			m.engine.Pass(s, d)
		} else {
			m.engine.Pass(s, 0)
		}
	}
}

func TestSlotsAgainstModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		m := &counter{engine: e, stores: []*stores{e.Open(t)}, running: map[int64]*LockedJob{}}
		if _, shared := e.(*dbtest.ClockSchema[*stores]); shared {
			m.stores = append(m.stores, e.Reopen(t))
		}
		defer func() {
			for _, s := range m.stores {
				s.DB.Close()
			}
		}()
		var err error
		if m.queue, err = m.stores[0].Queues.EnsureQueue(context.Background(), "default"); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"acme", "other"} {
			if m.tenants[i], err = m.stores[0].Queues.EnsureTenant(context.Background(), name); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "claim": m.claim, "claim more": m.claim, "claim again": m.claim, "settle": m.settle, "settle more": m.settle, "limit": m.limit, "pass": m.pass,
		})
	})
}

// A process whose jobs wait for a slot looks again when another one tells that there may be one.
func TestSlotFreedElsewhere(t *testing.T) {
	const wordSlots = 's' // of package admission
	slots := hearing(t)(func(x *Tx) { x.Notify(wordSlots, 0, 0, 0) })
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		capTenant(t, s, tenant, 1)
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5}, NewJob{ID: "2", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5})
		req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour}
		got, err := s.Jobs.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan time.Time)
		go func() {
			if _, err := s.Jobs.Claim(t.Context(), req); err != nil {
				t.Error(err)
			}
			done <- time.Now()
		}()
		<-time.After(time.Second)
		// As another process would.
		_, err = db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageSettle}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep("UPDATE messages SET lock_token = NULL WHERE seq = ?").Int(got[0].Seq).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		told := time.Now()
		s.DB.Notified(slots)
		if at := <-done; at != told {
			t.Errorf("claimed %s later", at.Sub(told))
		}
	})
}

// Of what is configured and what is set while the server runs the latest change counts.
func TestConfiguredConcurrency(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "default")
		configure := func(most int64) {
			t.Helper()
			wanted := map[int64]int64{tenant: most}
			if most == 0 {
				wanted = nil
			}
			if err := s.Admission.ConfigureConcurrency(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, most int64) {
			t.Helper()
			if tenants, err := s.Tenants.Tenants(t.Context(), "default"); err != nil || len(tenants) != 1 || tenants[0].Concurrency != most {
				t.Errorf("%s: %+v, want %d (%v)", when, tenants, most, err)
			}
		}
		configure(3)
		want("configured", 3)
		capTenant(t, s, tenant, 5)
		configure(3)
		want("set since, and configured as before", 5)
		configure(4)
		want("configured otherwise", 4)
		configure(0)
		want("not configured any more", 0)
		capTenant(t, s, tenant, 7)
		configure(0)
		want("only set", 7)
	})
}
