package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
		w := s.Jobs.writerFor(jobs(busy, "asked", 1))
		begun, gate := make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := perform(t.Context(), w, &request[int]{op: op{stage: stageSubmit}, run: func(*tx) (int, error) { close(begun); <-gate; return 0, nil }})
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
				made, err := s.Jobs.Submit(t.Context(), jobs)
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

// A slow moment makes transactions small, and what they take then is learned all the same.
func TestTransactionsGrowAgainAfterASlowMoment(t *testing.T) {
	for name, c := range map[string]struct {
		shared     bool
		row, flush time.Duration
		want       int
	}{
		"a fast disk":          {false, 20 * time.Microsecond, time.Millisecond, 400},
		"a slow disk":          {false, 20 * time.Microsecond, 30 * time.Millisecond, maxBatchOps},
		"shared":               {true, 20 * time.Microsecond, time.Millisecond, 100},
		"shared, slow disk":    {true, 20 * time.Microsecond, 30 * time.Millisecond, maxBatchOps},
		"shared, slow rows":    {true, time.Millisecond, time.Millisecond, sharedRows},
		"a slow disk and rows": {false, time.Millisecond, 30 * time.Millisecond, 120},
	} {
		t.Run(name, func(t *testing.T) {
			var a appetite
			a.note(40, time.Second, time.Millisecond)
			for range 100 {
				rows := a.rows(c.shared)
				a.note(rows, time.Duration(rows)*c.row, c.flush)
			}
			if got := a.rows(c.shared); got < c.want*9/10 || got > c.want*11/10 {
				t.Errorf("a transaction takes %d rows, want about %d", got, c.want)
			}
		})
	}
}

// A transaction takes less from those who wait while tenants share the writer: each waits for two of them.
func TestTransactionsAreShortWhileTenantsShare(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		busy, other, queue := tenantOf(t, s, "busy"), tenantOf(t, s, "other"), queueOf(t, s, "q")
		const calls, each = 20, 20
		jobs := func(tenant int64, name string) (all []NewJob) {
			for i := range each {
				all = append(all, NewJob{ID: fmt.Sprint(name, "-", i), Tenant: tenant, Queue: queue, Task: "t", Priority: 5, Input: []byte("1"), InputSize: 1})
			}
			return all
		}
		w := s.Jobs.writerFor(jobs(busy, "asked"))
		// next has calls come while a transaction is under way and returns how many went into the one after it.
		next := func(round string, last int64) int64 {
			var first atomic.Int64
			begun, gate := make(chan struct{}), make(chan struct{})
			var callers sync.WaitGroup
			callers.Go(func() {
				_, err := perform(t.Context(), w, &request[int]{op: op{stage: stageSubmit}, run: func(t *tx) (int, error) {
					t.w.appetite = appetite{row: 20 * time.Microsecond, flush: time.Millisecond}
					t.after = append(t.after, func() {
						s.DB.OnCommit(func(c Commit) {
							if c.Operations > 1 { // which this one has not
								first.CompareAndSwap(0, int64(c.Operations))
							}
						})
					})
					close(begun)
					<-gate
					return 0, nil
				}})
				if err != nil {
					t.Error(err)
				}
			})
			<-begun
			for i := range calls {
				tenant := busy
				if i == calls-1 {
					tenant = last
				}
				callers.Go(func() {
					if _, err := s.Jobs.Submit(t.Context(), jobs(tenant, fmt.Sprint(round, i))); err != nil {
						t.Error(err)
					}
				})
				for len(w.ops) <= i {
					<-time.After(time.Millisecond)
				}
			}
			close(gate)
			callers.Wait()
			return first.Load()
		}
		// 8 ms are 400 rows, and 2 ms are 100.
		if n := next("alone", busy); n != calls || s.Jobs.AtOnce() <= sharedRows {
			t.Errorf("of a lone tenant's %d calls %d went into the next transaction", calls, n)
		}
		if n := next("shared", other); n > 100/each+1 || s.Jobs.AtOnce() > sharedRows {
			t.Errorf("of %d calls of two tenants %d went into the next transaction", calls, n)
		}
	})
}

func TestTheBacklogIsTakenByTenantsInRotation(t *testing.T) {
	var b backlog
	put := func(tenant int64, rows int) {
		b.add(tenant, &request[int]{ctx: t.Context(), op: op{party: tenant, rows: rows}})
	}
	for range 40 {
		put(1, rotation/4)
	}
	put(2, 100) // which does not fit, and goes alone
	for range 3 {
		put(3, 1)
	}
	left := 4 * rotation
	var order []int64
	take := func() {
		order = nil
		b.take(func() bool { return left > 0 }, func(op operation) { order, left = append(order, op.party()), left-op.rows() })
	}
	if take(); !slices.Equal(order, []int64{1, 1, 1, 1, 2}) {
		t.Errorf("first %v", order)
	}
	left = 4 * rotation
	if take(); !slices.Equal(order[:7], []int64{3, 3, 3, 1, 1, 1, 1}) || len(order) != 3+15 {
		t.Errorf("then %v", order)
	}
	left = 1000
	if take(); len(order) != 21 || !b.empty() || len(b.of) != 0 {
		t.Errorf("at last %v, and %v are left", order, b.of)
	}
	left = 0
	put(4, 1)
	if take(); !slices.Equal(order, []int64{4}) { // or it would never go
		t.Errorf("without room %v", order)
	}
}

func TestTheBacklogDropsWhatNobodyWaitsFor(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	var b backlog
	var dropped []*request[int]
	put := func(ctx context.Context, tenant int64) *request[int] {
		r := &request[int]{ctx: ctx, done: make(chan struct{}), op: op{party: tenant, rows: rotation}}
		b.add(tenant, r)
		return r
	}
	for range 100 {
		dropped = append(dropped, put(left, 1))
	}
	waits := put(t.Context(), 1)
	dropped = append(dropped, put(left, 2))
	put(t.Context(), 3)
	leave()
	var taken []operation
	b.take(func() bool { return false }, func(op operation) { taken = append(taken, op) })
	if !slices.Equal(taken, []operation{waits}) {
		t.Errorf("%d were taken, not the one that its caller waits for", len(taken))
	}
	taken = nil
	b.take(func() bool { return false }, func(op operation) { taken = append(taken, op) })
	if len(taken) != 1 || taken[0].party() != 3 || !b.empty() || len(b.of) != 0 {
		t.Errorf("then %d were taken, and %v are left", len(taken), b.of)
	}
	for _, r := range dropped {
		select {
		case <-r.done:
		default:
			t.Fatal("one was not finished")
		}
		if !errors.Is(r.err, context.Canceled) {
			t.Fatalf("one ended with %v", r.err)
		}
	}
}

// A client that sends and hangs up at once, again and again, leaves nothing to store.
func TestWhatWaitsForTheWriterEndsWithItsCaller(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant, queue := tenantOf(t, s, "t"), queueOf(t, s, "q")
		jobs := func(id string) []NewJob {
			return []NewJob{{ID: id, Tenant: tenant, Queue: queue, Task: "t", Priority: 5, Input: []byte("1"), InputSize: 1}}
		}
		w := s.Jobs.writerFor(jobs("asked"))
		begun, gate := make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := perform(t.Context(), w, &request[int]{op: op{stage: stageSubmit}, run: func(*tx) (int, error) { close(begun); <-gate; return 0, nil }})
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
		ctx, hangUp := context.WithCancel(t.Context())
		const many = 20
		var gone sync.WaitGroup
		for i := range many {
			gone.Go(func() {
				if _, err := s.Jobs.Submit(ctx, jobs(fmt.Sprint("gone-", i))); !errors.Is(err, context.Canceled) {
					t.Errorf("the caller that left was told %v", err)
				}
			})
		}
		for len(w.ops) < many {
			<-time.After(time.Millisecond)
		}
		hangUp()
		gone.Wait()
		close(gate)
		callers.Wait()
		if _, err := s.Jobs.Submit(t.Context(), jobs("stays")); err != nil {
			t.Fatal(err)
		}
		var ids []string
		err := s.DB.read(t.Context(), func(c conn) error {
			return c.prep("SELECT id FROM jobs").each(func(r row) error { ids = append(ids, r.text(0)); return nil })
		})
		if err != nil || !slices.Equal(ids, []string{"stays"}) {
			t.Errorf("stored %v; %v", ids, err)
		}
	})
}

func TestATransactionTakesAsManyRowsAsItHasTimeFor(t *testing.T) {
	for _, c := range []struct {
		row, flush   time.Duration
		want, shared int
	}{
		{0, 0, maxBatchOps, 2 * leastRows},                        // nothing is known
		{40 * time.Microsecond, 300 * time.Microsecond, 200, 50},  // 8 ms, or 2
		{40 * time.Microsecond, 10 * time.Millisecond, 1000, 250}, // four times what the disk takes, or once
		{40 * time.Microsecond, 10 * time.Second, maxBatchOps, maxBatchOps},
		{time.Second, time.Millisecond, leastRows, sharedRows},
	} {
		a := appetite{c.row, c.flush}
		if got := a.rows(false); got != c.want {
			t.Errorf("%v takes %d rows, not %d", a, got, c.want)
		}
		if got := a.rows(true); got != c.shared {
			t.Errorf("%v takes %d rows while tenants share the writer, not %d", a, got, c.shared)
		}
	}
	var a appetite
	a.note(sharedRows-1, time.Second, time.Second)
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
