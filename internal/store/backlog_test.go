package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Whoever brings one job goes into the next transaction, and comes early in it, though another tenant's thousands came before.
func TestATenantsManyJobsDoNotDelayAnothersOne(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		busy, other, queue := tenantOf(t, s, "busy"), tenantOf(t, s, "other"), queueOf(t, s, "q")
		const calls, each = 60, 50
		jobs := func(tenant int64, name string, n int) (all []NewJob) {
			for i := range n {
				all = append(all, NewJob{ID: fmt.Sprint(name, "-", i), Tenant: tenant, Queue: queue, Task: "t", Priority: 5, Input: []byte("1"), InputSize: 1})
			}
			return all
		}
		w := s.writerFor(jobs(busy, "asked", 1))
		begun, gate := make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := performBy(t.Context(), w, &request[int]{at: stageSubmit, run: func(*tx) (int, error) { close(begun); <-gate; return 0, nil }})
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
		var mu sync.Mutex
		var numbers []int64
		var one int64
		submit := func(at int, jobs []NewJob, took func([]Submitted)) {
			callers.Go(func() {
				made, err := s.Submit(t.Context(), jobs)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				took(made)
			})
			for len(w.ops) <= at {
				<-time.After(time.Millisecond)
			}
		}
		for i := range calls {
			submit(i, jobs(busy, fmt.Sprint("busy", i), each), func(made []Submitted) {
				for _, m := range made {
					numbers = append(numbers, m.Seq)
				}
			})
		}
		submit(calls, jobs(other, "one", 1), func(made []Submitted) { one = made[0].Seq })
		close(gate)
		callers.Wait()
		before := 0
		for _, n := range numbers {
			if n < one {
				before++
			}
		}
		if len(numbers) != calls*each || one == 0 || before > each {
			t.Errorf("%d of the other tenant's %d jobs were stored before the one that came last", before, len(numbers))
		}
	})
}

func TestTheBacklogIsTakenByTenantsInRotation(t *testing.T) {
	var b backlog
	put := func(tenant int64, rows int) { b.add(tenant, &request[int]{tenant: tenant, many: rows}) }
	for range 40 {
		put(1, 4)
	}
	put(2, 100) // which does not fit, and goes alone
	for range 3 {
		put(3, 1)
	}
	left := 64
	var order []int64
	take := func() {
		order = nil
		b.take(func() bool { return left > 0 }, func(op operation) { order, left = append(order, op.party()), left-op.rows() })
	}
	if take(); !slices.Equal(order, []int64{1, 1, 1, 1, 2}) {
		t.Errorf("first %v", order)
	}
	left = 64
	if take(); !slices.Equal(order[:7], []int64{3, 3, 3, 1, 1, 1, 1}) || len(order) != 3+16 {
		t.Errorf("then %v", order)
	}
	left = 1000
	if take(); len(order) != 20 || !b.empty() || len(b.of) != 0 {
		t.Errorf("at last %v, and %v are left", order, b.of)
	}
	left = 0
	put(4, 1)
	if take(); !slices.Equal(order, []int64{4}) { // or it would never go
		t.Errorf("without room %v", order)
	}
}

func TestATransactionTakesAsManyRowsAsItHasTimeFor(t *testing.T) {
	for _, c := range []struct {
		row, flush time.Duration
		want       int
	}{
		{0, 0, maxBatchOps}, // nothing is known
		{40 * time.Microsecond, 300 * time.Microsecond, 200}, // 8 ms
		{40 * time.Microsecond, 10 * time.Millisecond, 1000}, // four times what the disk takes
		{40 * time.Microsecond, 10 * time.Second, maxBatchOps},
		{time.Second, time.Millisecond, leastRows},
	} {
		a := appetite{c.row, c.flush}
		if got := a.rows(); got != c.want {
			t.Errorf("%v takes %d rows, not %d", a, got, c.want)
		}
	}
	var a appetite
	a.note(leastRows/2-1, time.Second, time.Second)
	if a != (appetite{}) {
		t.Errorf("few rows have taught it %v", a)
	}
	a.note(1000, 100*time.Millisecond, time.Millisecond)
	for range 100 {
		a.note(1000, 20*time.Millisecond, 2*time.Millisecond)
	}
	if a.row.Round(time.Microsecond) != 20*time.Microsecond || a.flush.Round(100*time.Microsecond) != 2*time.Millisecond {
		t.Errorf("it learned %v", a)
	}
}
