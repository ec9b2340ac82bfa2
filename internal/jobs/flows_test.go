package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// Two tenants share a subqueue: one that has much to do and one that comes later with a little.
func TestTenantsShareASubqueue(t *testing.T) {
	tests := map[string]struct {
		size    int64 // bytes of the big tenant's inputs; those of the small one have none
		weight  float64
		fewest  int // of the small tenant's ten jobs among the first thirty
		biggest int // most
	}{
		"equal jobs":            {0, 1, 10, 10},
		"larger jobs":           {10_000, 1, 10, 10},
		"a tenth of the weight": {0, 0.1, 2, 4},
	}
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		big := tenantNamed(t, s, "default")
		small := tenantNamed(t, s, "small")
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				queueID := queueOf(t, s, fmt.Sprintf("q%d", len(name)))
				submit := func(tenant int64, n int, size int64) {
					jobs := make([]NewJob, n)
					for i := range jobs {
						jobs[i] = NewJob{ID: fmt.Sprintf("%s-%d-%d", name, tenant, i), Tenant: tenant, Queue: queueID, Task: "t", Priority: 5, MaxAttempts: 1,
							Input: make([]byte, size), InputSize: size}
					}
					if _, err := s.Jobs.Submit(t.Context(), jobs); err != nil {
						t.Fatal(err)
					}
				}
				submit(big, 300, test.size)
				submit(small, 10, 0)
				request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 5, MaxBytes: 1 << 30, Lock: time.Minute, Share: func(tenant int64) float64 {
					if tenant == small {
						return test.weight
					}
					return 1
				}}
				served, total := 0, 0
				for total < 310 {
					got, err := s.Jobs.Claim(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range got {
						if total++; total <= 30 && d.Tenant == small {
							served++
						}
					}
				}
				if served < test.fewest || served > test.biggest {
					t.Errorf("%d of the small tenant's jobs are among the first 30", served)
				}
			})
		}
	})
}

// Tenants whose jobs differ only in how much they may answer share the tokens, however a provider
// counts.
func TestTenantsShareTokens(t *testing.T) {
	const prompt, brief, long = 100, 150, 2400
	tests := map[string]struct {
		accounting quota.Accounting
		weight     float64 // of the tenant with long answers
		max        int     // jobs that a claim wants
		want       int     // of its jobs among the first 110
	}{
		"Azure":              {quota.AccountAzureOpenAI, 1, 5, 10},
		"many at once":       {quota.AccountAzureOpenAI, 1, 40, 10},
		"one at a time":      {quota.AccountAzurePTU, 1, 1, 10},
		"OpenAI":             {quota.AccountOpenAI, 1, 5, 6},
		"Anthropic":          {quota.AccountAnthropic, 1, 5, 10},
		"no limit of tokens": {quota.AccountNone, 1, 5, 10},
		"five times as much": {quota.AccountAzureOpenAI, 5, 5, 37},
	}
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		verbose, terse := tenantNamed(t, s, "default"), tenantNamed(t, s, "terse")
		for name, test := range tests {
			queueID := queueOf(t, s, "q"+strings.ReplaceAll(name, " ", ""))
			var jobs []NewJob
			for i := range 120 {
				for tenant, task := range map[int64]string{verbose: "long", terse: "brief"} {
					jobs = append(jobs, NewJob{ID: fmt.Sprint(name, tenant, i), Tenant: tenant, Queue: queueID, Task: task, Priority: 5, MaxAttempts: 1,
						Input: make([]byte, 4*prompt), InputSize: 4 * prompt})
				}
			}
			if _, err := s.Jobs.Submit(t.Context(), jobs); err != nil {
				t.Fatal(err)
			}
			request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: test.max, MaxBytes: 1 << 30, Lock: time.Minute,
				Share: func(tenant int64) float64 {
					if tenant == verbose {
						return test.weight
					}
					return 1
				},
				Plan: func(task string, _ []byte, size int64, _ *forebay.CallEstimate) []admission.Option {
					most := map[string]int64{"brief": brief, "long": long}[task]
					return []admission.Option{{Deployment: name, Limits: quota.Limits{Accounting: test.accounting},
						Request: quota.Request{PromptTokens: size / 4, MaxOutputTokens: most}}}
				}}
			got := 0
			for n := 0; n < 110; {
				deliveries, err := s.Jobs.Claim(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range deliveries {
					if n++; n <= 110 && d.Tenant == verbose {
						got++
					}
				}
			}
			if got < test.want-2 || got > test.want+2 {
				t.Errorf("%s: of the first 110 jobs %d may answer much, want about %d", name, got, test.want)
			}
		}
	})
}

// What was reserved for a job that is not delivered after all, its tenant does not pay for.
func TestGivenBackIsNotCharged(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5})
		served := func() (tokens float64) {
			tokens, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (float64, error) {
				return t.w.flowsOf(queue.SubqueueOf(queueID, queue.SubqueueMain)).Shares.Start(tenant), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return tokens
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Second, MaxDeliveries: 1, FailureSubqueue: queue.SubqueueDeadLetter,
			Plan: func(string, []byte, int64, *forebay.CallEstimate) []admission.Option {
				return []admission.Option{{Deployment: "d", Limits: quota.Limits{Accounting: quota.AccountAzureOpenAI}, Request: quota.Request{MaxOutputTokens: 16_000}}}
			}}
		if _, err := s.Jobs.Claim(t.Context(), request); err != nil || served() != 16_000 {
			t.Fatalf("%g tokens are charged for a delivery (%v)", served(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := s.Jobs.Claim(ctx, request); err == nil || served() >= 17_000 { // it was delivered as often as it may be
			t.Errorf("%g tokens are charged after %d deliveries more", served(), len(got))
		}
	})
}

// Jobs of the highest priority keep coming. One of the lowest still has its turn, once it has
// waited half a minute for each level.
func TestNoPriorityStarves(t *testing.T) {
	open := func(priority int, waited time.Duration) candidate {
		at := time.UnixMilli(1e12)
		return candidate{LockedJob: LockedJob{Tenant: 1, ScheduledAt: at.Add(-waited), Lock: queue.Lock{Seq: int64(priority)}}, flow: flows.ID(1, 0, priority)}
	}
	l := flows.NewSet()
	for waited, first := range map[time.Duration]int{time.Minute: forebay.MaxPriority, 9*30*time.Second + time.Second: 0} {
		ordered, _ := orderBy(&l.Shares, []candidate{open(forebay.MaxPriority, time.Second), open(0, waited)}, nil, nil, (*candidate).roughly, 1e12)
		if got := ordered[0].Seq; got != int64(first) {
			t.Errorf("after %s priority %d goes first", waited, got)
		}
	}
}

// A paused tenant's jobs stay where they are, old and new ones, and those of others go on.
func TestPausedTenant(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		paused := tenantNamed(t, s, "default")
		other := tenantNamed(t, s, "other")
		queueID := queueOf(t, s, "q")
		submit := func(tenant int64, id string) {
			if _, err := s.Jobs.Submit(t.Context(), []NewJob{{ID: id, Tenant: tenant, Queue: queueID, Task: "t", Priority: 5, MaxAttempts: 1, Input: []byte("1"), InputSize: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		claim := func(want string) {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute})
			if err != nil || got[0].ID != want {
				t.Fatalf("claimed %v %v, want %s", got, err, want)
			}
		}
		submit(paused, "held-1")
		if err := s.Jobs.SetTenantPaused(t.Context(), paused, true, audit.Act{Actor: "a", Action: "pause-tenant", Target: "default"}); err != nil {
			t.Fatal(err)
		}
		submit(paused, "held-2")
		submit(other, "free")
		claim("free")
		job, err := s.Jobs.Job(t.Context(), paused, "held-1")
		if err != nil || job.Status != forebay.StatusQueued || job.Waiting != forebay.WaitPaused {
			t.Errorf("%s waits for %q (%v)", job.Status, job.Waiting, err)
		}
		if err := s.Jobs.SetTenantPaused(t.Context(), paused, false, audit.Act{Actor: "a", Action: "resume-tenant", Target: "default"}); err != nil {
			t.Fatal(err)
		}
		claim("held-1")
		claim("held-2")
	})
}

// A tenant is resumed while nobody waits for the subqueue; whoever comes next gets its job.
func TestResumedWhileNobodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		if err := s.Jobs.SetTenantPaused(t.Context(), tenant, true, audit.Act{Actor: "a", Action: "pause-tenant", Target: "a"}); err != nil {
			t.Fatal(err)
		}
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5})
		req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Jobs.Claim(ctx, req); err == nil {
			t.Fatal("delivered")
		}
		other := tenantNamed(t, s, "b")
		submitAll(t, s, NewJob{ID: "2", Tenant: other, Queue: queueID, Task: "t", Priority: 5})
		req.Max = 2
		if _, err := s.Jobs.Claim(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if err := s.Jobs.SetTenantPaused(t.Context(), tenant, false, audit.Act{Actor: "a", Action: "resume-tenant", Target: "a"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := s.Jobs.Claim(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("delivered after %s", took)
		}
	})
}

// A tenant that another process has paused has none of its jobs delivered, even before a
// notification arrives.
func TestPausedByAnother(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		if e.Name != "postgresql" {
			t.Skip("one process serves a file")
		}
		s := e.Open()
		tenant, other := tenantNamed(t, s, "a"), tenantNamed(t, s, "b")
		queueID := queueOf(t, s, "q")
		submitAll(t, s, NewJob{ID: "held", Tenant: tenant, Queue: queueID, Task: "t", Priority: 5}, NewJob{ID: "free", Tenant: other, Queue: queueID, Task: "t", Priority: 5})
		if err := e.Tamper("UPDATE tenants SET paused = 1 WHERE name = 'a'"); err != nil {
			t.Fatal(err)
		}
		got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 2, MaxBytes: 1 << 20, Lock: time.Minute})
		if err != nil || len(got) != 1 || got[0].ID != "free" {
			t.Errorf("claimed %v %v", got, err)
		}
	})
}

// A scan searches a flow from the earliest message that the last scan found, or from what has
// come since.
func TestLooksForWhatWaitsFromWhereItWas(t *testing.T) {
	const subqueue, no, now = 4, 85, 1_000
	w := newTestPart()
	l := w.flowsOf(subqueue)
	l.Known, l.Flows[no] = true, &flows.Flow{}
	claims := []*claim{{ClaimRequest: ClaimRequest{Subqueue: subqueue, Max: 1}}}
	for i, step := range []struct {
		at, before, within int64 // when it looks, and what is noted before that, and before its end
		from, near, finds  int64
	}{
		{at: now, from: 0, finds: 50_000},
		{at: now + 1, from: 50_000, finds: 60_000},
		{at: now + 2, before: 55_000, from: 55_000, finds: 55_000},
		{at: now + 3, before: now + 3, from: 55_000, near: now + 3, finds: 70_000}, // what is ready is no reason
		{at: now + 4, within: 65_000, from: 70_000, near: now + 3, finds: db.Never},
		{at: now + 5, from: 65_000, near: now + 3, finds: 65_000},
		{at: now + flows.SweepPause.Milliseconds(), from: 0, near: now + 3, finds: 65_000}, // from the very beginning, once in a while
	} {
		if step.before > 0 {
			l.Note(no, step.before, step.at)
		}
		x := w.newScan(subqueue, claims, step.at)
		if a := x.flowQueries[0]; a.SeenNext != step.from || a.NewDue != step.near {
			t.Errorf("look %d begins at %d instead of %d, after %d instead of %d", i, a.SeenNext, step.from, a.NewDue, step.near)
		}
		if step.within > 0 {
			l.Note(no, step.within, step.at)
		}
		x.flowQueries[0].NextReady = step.finds
		x.arrange(nil, claimTx{&Tx{Tx: &db.Tx{Now: step.at}, w: w, admission: &admission.Tx{W: w.admission}}})
	}
}

// Looks that pass much keep their distance, and one that is slow alone is no reason to.
func TestPace(t *testing.T) {
	var p flows.Pace
	for range 100 {
		p.Note(2*time.Millisecond, 0)
	}
	for i, step := range []struct {
		took, want time.Duration
		looks      int
	}{
		{time.Millisecond, time.Second, 1}, {time.Minute, time.Second, 1}, {3 * time.Millisecond, time.Second, 1},
		{22 * time.Millisecond, time.Second, 1}, {12 * time.Millisecond, 10 * time.Second, 1},
		{time.Minute, 10 * time.Second, 1}, {time.Minute, 15 * time.Second, 1},
		{202 * time.Millisecond, time.Second, 200},
	} {
		if p.Note(step.took, step.looks); p.Every(time.Second) != step.want {
			t.Errorf("after %d it is %v instead of %v", i, p.Every(time.Second), step.want)
		}
	}
}

// A message that another process has made ready counts as ready, even if this clock is a little
// behind.
func TestHeardOfWhatIsReady(t *testing.T) {
	const subqueue, no = 4, 85
	said := hearing(t)
	for ahead, later := range map[int64]bool{-1: false, 0: false, db.Inexact: false, 1000 * db.Inexact: true} {
		w := newTestPart()
		now := w.Clock()
		l := w.flowsOf(subqueue)
		l.Known, l.SweptAt, l.Flows[no] = true, now, &flows.Flow{SeenNext: now + 300_000, NewNext: db.Never, NewReady: db.Never}
		w.Notified(said(func(x *Tx) {
			x.Notify(queue.WordReady, subqueue, 0, now+ahead)
			x.Notify(wordFlow, subqueue, no, 0)
		}))
		asks := w.newScan(subqueue, []*claim{{ClaimRequest: ClaimRequest{Subqueue: subqueue, Max: 1}}}, now).flowQueries
		if found := asks[0].SeenNext == now+ahead; found != later || !found && asks[0].NewDue != now+ahead {
			t.Errorf("told of %d ms ahead, the next look begins %d ms ahead, unless it is before %d ms", ahead, asks[0].SeenNext-now, asks[0].NewDue-now)
		}
	}
}

// Messages of other processes that are not ready yet are scanned for too, even if one
// notification names them together with ready ones.
func TestHeardOfWhatWaits(t *testing.T) {
	const subqueue, no, other, later = 4, 85, 101, 20_000
	said := hearing(t)
	for name, split := range map[string]bool{"in one piece": false, "lines before times": true} {
		w := newTestPart()
		now := w.Clock()
		l := w.flowsOf(subqueue)
		l.Known, l.Flows[no] = true, &flows.Flow{SeenNext: now + 300_000, NewNext: db.Never, NextReady: now + 300_000, NewReady: db.Never}
		l.SweptAt = now
		if split {
			w.Notified(said(func(x *Tx) {
				x.Notify(wordFlow, subqueue, no, 0)
				x.Notify(wordFlow, subqueue, other, 0)
			}))
		} else {
			w.Notified(said(func(x *Tx) { x.Due(subqueue, other, now+later) }, func(x *Tx) { x.Due(subqueue, no, now-1) }))
		}
		for _, a := range w.newScan(subqueue, []*claim{{ClaimRequest: ClaimRequest{Subqueue: subqueue, Max: 1}}}, now).flowQueries {
			if a.SeenNext > now+later {
				t.Errorf("%s: of line %d what waits is looked for from %d ms on", name, a.Flow, a.SeenNext-now)
			}
		}
	}
}

// newTestPart is a participant of a writer that is not running.
func newTestPart() *participant {
	w := &db.Writer{Conn: driver.Conn{Driver: &postgres.Conn{}}, Racing: map[string]bool{}}
	queues := &queue.Participant{Writer: w, Paused: map[int64]bool{}}
	return newJobsPart(w, queues, &admission.Participant{Writer: w, Full: map[int64]int64{}}, &Store{})
}

// A notification names only so many flows one by one. Beyond that, the known flows are no longer
// all, so the flows are listed again.
func TestNotificationsOfManyLines(t *testing.T) {
	const subqueue, kept = 4, 2000
	said := hearing(t)
	hear := func(lines int) *participant {
		p := newTestPart()
		p.Waiters[subqueue] = []*claim{{}}
		p.flowsOf(subqueue).Known = true
		n := said(func(x *Tx) {
			for no := range int64(lines) {
				x.Notify(wordFlow, subqueue, 1<<40+no, 0)
			}
			x.Notify(queue.WordReady, subqueue, 0, 1e12)
		})
		p.queue.Notified(n)
		p.Notified(n)
		return p
	}
	p := hear(kept)
	if known := len(p.flows[subqueue].Flows); known != kept || p.DueAt[subqueue] != 1e12 || !p.flows[subqueue].Known {
		t.Errorf("%d lines are known, the subqueue is due at %d", known, p.DueAt[subqueue])
	}
	if p = hear(kept + 1); p.flows[subqueue].Known {
		t.Error("all lines are known, it seems")
	}
}
