package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// Two tenants share a lane: one that has much to do and one that comes later with a little.
func TestTenantsShareALane(t *testing.T) {
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
	withTenant(t, func(t *testing.T, s *Store, big int64) {
		small, err := s.EnsureTenant(t.Context(), "small")
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				queue, err := s.EnsureQueue(t.Context(), fmt.Sprintf("q%d", len(name)))
				if err != nil {
					t.Fatal(err)
				}
				submit := func(tenant int64, n int, size int64) {
					jobs := make([]NewJob, n)
					for i := range jobs {
						jobs[i] = NewJob{ID: fmt.Sprintf("%s-%d-%d", name, tenant, i), Tenant: tenant, Queue: queue, Task: "t", Priority: 5, MaxAttempts: 1,
							Input: make([]byte, size), InputSize: size}
					}
					if _, err := s.Submit(t.Context(), jobs); err != nil {
						t.Fatal(err)
					}
				}
				submit(big, 300, test.size)
				submit(small, 10, 0)
				request := ClaimRequest{Lane: LaneOf(queue, LaneMain), Max: 5, MaxBytes: 1 << 30, Lock: time.Minute, Share: func(tenant int64) float64 {
					if tenant == small {
						return test.weight
					}
					return 1
				}}
				served, total := 0, 0
				for total < 310 {
					got, err := s.Claim(t.Context(), request)
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

// While jobs of the highest priority keep coming, one of the lowest still has its turn, once it has waited
// half a minute for each level.
func TestNoPriorityStarves(t *testing.T) {
	open := func(priority int, waited time.Duration) candidate {
		at := time.UnixMilli(1e12)
		return candidate{Delivery: Delivery{Tenant: 1, ScheduledAt: at.Add(-waited), Lock: Lock{Seq: int64(priority)}}, rank: lineOf(1, priority)}
	}
	l := newLines()
	for waited, first := range map[time.Duration]int{time.Minute: forebay.MaxPriority, 9*30*time.Second + time.Second: 0} {
		ordered, _ := l.order([]candidate{open(forebay.MaxPriority, time.Second), open(0, waited)}, nil, nil, 1e12)
		if got := ordered[0].Seq; got != int64(first) {
			t.Errorf("after %s priority %d goes first", waited, got)
		}
	}
}
