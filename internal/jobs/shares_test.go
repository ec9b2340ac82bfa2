package jobs

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// flood is a backlog of one tenant.
type flood struct {
	weight   float64
	priority int
	class    int
	jobs     int
	age      time.Duration
	tokens   int64 // of each answer
}

// fillBacklogs stores the backlogs, one tenant each, and says how the tenants share.
func fillBacklogs(t *testing.T, s *stores, queueID int64, floods []flood) (tenants []int64, share flows.Shares) {
	t.Helper()
	weights := map[int64]float64{}
	for i, f := range floods {
		no := tenantNamed(t, s, fmt.Sprint("tenant-", i))
		tenants, weights[no] = append(tenants, no), f.weight
		jobs := make([]NewJob, f.jobs)
		for n := range jobs {
			jobs[n] = NewJob{ID: fmt.Sprintf("%d-%d-%d", queueID, i, n), Tenant: no, Queue: queueID, Task: fmt.Sprint(i), Priority: f.priority, Class: f.class}
			if f.class < 0 {
				jobs[n].Class = 1 + n%3
			}
		}
		submitAll(t, s, jobs...)
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
			for _, l := range tx.w.flows { // as if they had come then
				for no, one := range l.Flows {
					if flows.TenantOf(no) == tenants[i] {
						one.Floor, one.Oldest = 0, 0
					}
				}
			}
			return struct{}{}, tx.Prep("UPDATE messages SET visible_at = visible_at - ? WHERE subqueue = ? AND tenant = ?").
				Int(f.age.Milliseconds()).Int(int64(queue.SubqueueOf(queueID, queue.SubqueueMain))).Int(no).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tenants, func(tenant int64) float64 { return weights[tenant] }
}

// checkShares fails unless each tenant was served what its weight says, within a tenth.
func checkShares(t *testing.T, what string, floods []flood, tokens []float64) {
	t.Helper()
	all, weights := 0.0, 0.0
	for i, f := range floods {
		all, weights = all+tokens[i], weights+f.weight
	}
	for i, f := range floods {
		if got, want := tokens[i]/all, f.weight/weights; math.Abs(got-want) > want/10 {
			t.Errorf("%s: tenant %d of weight %g got %.1f %% instead of %.1f %%", what, i, f.weight, 100*got, 100*want)
		}
	}
}

// Tenants share what is delivered by their weights, whatever the priorities, the ages and the
// models of their backlogs are.
func TestSharesWhateverPriorityAndAge(t *testing.T) {
	tests := map[string][]flood{
		"an old flood":             {{weight: 6, priority: 5, jobs: 400, age: 30 * time.Minute}, {weight: 4, priority: 5, jobs: 300}, {weight: 3, priority: 0, jobs: 300, age: 30 * time.Second}},
		"a fresh flood":            {{weight: 6, priority: 9, jobs: 400}, {weight: 4, priority: 5, jobs: 300, age: 5 * time.Minute}, {weight: 3, priority: 0, jobs: 300}},
		"several models":           {{weight: 2, priority: 9, jobs: 600, class: -1, age: 10 * time.Minute}, {weight: 1, priority: 3, jobs: 300, class: 2}},
		"many tenants, one of low": {},
	}
	for i := range 40 {
		tests["many tenants, one of low"] = append(tests["many tenants, one of low"], flood{weight: 1 + float64(i%2), priority: i % 10, jobs: 40, age: time.Duration(i) * time.Minute})
	}
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		for name, floods := range tests {
			queueID := queueOf(t, s, fmt.Sprint("q", len(name)))
			tenants, share := fillBacklogs(t, s, queueID, floods)
			total := 300
			if len(tenants) > 10 {
				total = 1200
			}
			tokens := make([]float64, len(tenants))
			for n := 0; n < total; {
				got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 16, MaxBytes: 1 << 20, Lock: time.Hour, Share: share})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range got {
					n++
					tokens[d.Tenant-tenants[0]]++
				}
			}
			checkShares(t, name, floods, tokens)
		}
	})
}

// Several processes that serve one subqueue share among the tenants as one does.
func TestSharesOfSeveralProcesses(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		if e.Name != "postgresql" {
			t.Skip("one process serves a file")
		}
		first := e.Open()
		queueID := queueOf(t, first, "q")
		floods := []flood{{weight: 3, priority: 9, jobs: 600, age: time.Hour}, {weight: 2, priority: 0, jobs: 500}, {weight: 1, priority: 5, jobs: 300}}
		tenants, share := fillBacklogs(t, first, queueID, floods)
		tokens := make([]float64, len(tenants))
		var mu sync.Mutex
		var running sync.WaitGroup
		for i := range 3 {
			s := first
			if i > 0 {
				s = e.Open()
			}
			running.Go(func() {
				for range 25 {
					got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 4 + i, MaxBytes: 1 << 20, Lock: time.Hour, Share: share})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, d := range got {
						tokens[d.Tenant-tenants[0]]++
					}
					mu.Unlock()
				}
			})
		}
		running.Wait()
		checkShares(t, "three processes", floods, tokens)
	})
}

// Where a quota is all that is scarce it is shared by weight too.
func TestSharesOfAQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		floods := []flood{{weight: 3, priority: 0, jobs: 200, tokens: 2000, class: 1}, {weight: 2, priority: 9, jobs: 200, tokens: 1500, class: 1, age: time.Hour}}
		tenants, share := fillBacklogs(t, s, queueID, floods)
		plan := func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			var i int
			if _, err := fmt.Sscan(task, &i); err != nil {
				t.Error(err)
			}
			return []admission.Option{{Deployment: "d", Limits: quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 60_000}, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: floods[i].tokens}}}
		}
		tokens := make([]float64, len(tenants))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for {
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 8, MaxBytes: 1 << 20, Lock: time.Hour, Share: share, Plan: plan})
			if err != nil {
				break
			}
			for _, d := range got {
				tokens[d.Tenant-tenants[0]] += float64(d.Admission.Reservation.Size())
				d.Admission.Outcome = &quota.Outcome{Kind: quota.Succeeded}
				if err := s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkShares(t, "a quota", floods, tokens)
	})
}

// If the jobs of more tenants than a scan asks may not be called, jobs of other tenants that call
// something else still go.
func TestManyTenantsThatAreHeldLeaveRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		floods := make([]flood, 3*flows.MaxFlows)
		for i := range floods {
			floods[i] = flood{weight: 1, priority: 9, class: 1, jobs: 12, age: time.Hour}
		}
		const last, jobs = 3*flows.MaxFlows - 1, 100
		floods[last] = flood{weight: 0.01, class: 2, jobs: jobs}
		_, share := fillBacklogs(t, s, queueID, floods)
		if err := s.Admission.PauseDeployment(t.Context(), "paused", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "paused"}); err != nil {
			t.Fatal(err)
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 10, MaxBytes: 1 << 20, Lock: time.Hour, Share: share, Plan: func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			if task == fmt.Sprint(last) {
				return []admission.Option{{Deployment: "open"}}
			}
			return []admission.Option{{Deployment: "paused"}}
		}}
		begun, claims := time.Now(), 0
		for n := 0; n < jobs; claims++ {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			n += len(got)
		}
		if took := time.Since(begun); took > 5*time.Second || claims > jobs/2 {
			t.Errorf("it took %v and %d claims", took, claims)
		}
	})
}
