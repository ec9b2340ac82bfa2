package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// writers are those that a database has: the second one stores new rows beside the first.
func writers(s *DB) []*Writer {
	return slices.DeleteFunc([]*Writer{s.Writer, s.Inserter}, func(w *Writer) bool { return w == nil })
}

// Whoever brings one row goes into the next transaction, and comes early in it, though another
// party's thousands came before.
func TestManyRowsOfAPartyDoNotDelayAnothersOne(t *testing.T) {
	withDB(t, func(t *testing.T, s *DB) {
		for n, w := range writers(s) {
			const calls, each = 60, 50
			busy, other := fmt.Sprint("busy", n), fmt.Sprint("other", n)
			hold, goOn := held(t, w)
			submit := func(party int64, name string, rows int) {
				at := len(w.Ops)
				hold.Go(func() {
					if _, err := Transact(t.Context(), w, Op{Stage: StageSubmit, Party: party, Rows: rows}, insertNames(name, rows)); err != nil {
						t.Error(err)
					}
				})
				for len(w.Ops) <= at {
					<-time.After(time.Millisecond)
				}
			}
			for i := range calls {
				submit(1, fmt.Sprint(busy, "-", i), each)
			}
			submit(2, other, 1)
			goOn()
			all := names(t, s)
			before := slices.IndexFunc(all, func(name string) bool { return strings.HasPrefix(name, other) })
			if stored := len(all) - n*(calls*each+1); stored != calls*each+1 || before < 0 || before-n*(calls*each+1) > each {
				t.Errorf("%d of the other party's %d rows were stored before the one that came last", before, stored)
			}
		}
	})
}

// held keeps a writer busy with a transaction until goOn, which waits for that and for the
// others of the group.
func held(t *testing.T, w *Writer, run ...func(*Tx)) (callers *sync.WaitGroup, goOn func()) {
	t.Helper()
	callers = &sync.WaitGroup{}
	begun, gate := make(chan struct{}), make(chan struct{})
	callers.Go(func() {
		_, err := Transact(t.Context(), w, Op{Stage: StageSubmit}, func(tx *Tx) (int, error) {
			for _, f := range run {
				f(tx)
			}
			close(begun)
			<-gate
			return 0, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	return callers, func() { close(gate); callers.Wait() }
}

// A slow moment makes transactions small, and what they take then is learned all the same.
func TestTransactionsGrowAgainAfterASlowMoment(t *testing.T) {
	for name, c := range map[string]struct {
		shared     bool
		row, flush time.Duration
		want       int
	}{
		"a fast disk":          {false, 20 * time.Microsecond, time.Millisecond, 400},
		"a slow disk":          {false, 20 * time.Microsecond, 30 * time.Millisecond, MaxBatchOps},
		"shared":               {true, 20 * time.Microsecond, time.Millisecond, 100},
		"shared, slow disk":    {true, 20 * time.Microsecond, 30 * time.Millisecond, MaxBatchOps},
		"shared, slow rows":    {true, time.Millisecond, time.Millisecond, SharedRows},
		"a slow disk and rows": {false, time.Millisecond, 30 * time.Millisecond, 120},
	} {
		t.Run(name, func(t *testing.T) {
			var a batchSizer
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

// A transaction takes less from those who wait while parties share the writer: each waits for
// two of them.
func TestTransactionsAreShortWhilePartiesShare(t *testing.T) {
	withDB(t, func(t *testing.T, s *DB) {
		w := writers(s)[len(writers(s))-1] // one alone: they know of each other's parties
		const calls, each = 20, 20
		// next has calls come while a transaction is under way and returns how many went into the one
		// after it.
		next := func(round string, last int64) int64 {
			var first atomic.Int64
			hold, goOn := held(t, w, func(tx *Tx) {
				tx.w.sizer = batchSizer{row: 20 * time.Microsecond, flush: time.Millisecond}
				tx.After = append(tx.After, func() {
					s.OnCommit(func(c Commit) {
						if c.Operations > 1 { // which this one has not
							first.CompareAndSwap(0, int64(c.Operations))
						}
					})
				})
			})
			for i := range calls {
				party := int64(1)
				if i == calls-1 {
					party = last
				}
				hold.Go(func() {
					_, err := Transact(t.Context(), w, Op{Stage: StageSubmit, Party: party, Rows: each}, insertNames(fmt.Sprint(round, i), each))
					if err != nil {
						t.Error(err)
					}
				})
				for len(w.Ops) <= i {
					<-time.After(time.Millisecond)
				}
			}
			goOn()
			return first.Load()
		}
		// 8 ms are 400 rows, and 2 ms are 100.
		if n := next("alone", 1); n != calls || w.Parties.Now() {
			t.Errorf("of a lone party's %d calls %d went into the next transaction", calls, n)
		}
		if n := next("shared", 2); n > 100/each+1 || !w.Parties.Now() {
			t.Errorf("of %d calls of two parties %d went into the next transaction", calls, n)
		}
	})
}

func TestTheBacklogIsTakenByPartiesInRotation(t *testing.T) {
	var b backlog
	put := func(tenant int64, rows int) {
		b.add(tenant, &Request[int]{Ctx: t.Context(), Op: Op{Party: tenant, Rows: rows}})
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
		b.take(func() bool { return left > 0 }, func(op Operation) { order, left = append(order, op.What().Party), left-op.What().rows() })
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
	var dropped []*Request[int]
	put := func(ctx context.Context, tenant int64) *Request[int] {
		r := &Request[int]{Ctx: ctx, Done: make(chan struct{}), Op: Op{Party: tenant, Rows: rotation}}
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
	var taken []Operation
	b.take(func() bool { return false }, func(op Operation) { taken = append(taken, op) })
	if !slices.Equal(taken, []Operation{waits}) {
		t.Errorf("%d were taken, not the one that its caller waits for", len(taken))
	}
	taken = nil
	b.take(func() bool { return false }, func(op Operation) { taken = append(taken, op) })
	if len(taken) != 1 || taken[0].What().Party != 3 || !b.empty() || len(b.of) != 0 {
		t.Errorf("then %d were taken, and %v are left", len(taken), b.of)
	}
	for _, r := range dropped {
		select {
		case <-r.Done:
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
	withDB(t, func(t *testing.T, s *DB) {
		for n, w := range writers(s) {
			_, goOn := held(t, w)
			ctx, hangUp := context.WithCancel(t.Context())
			const many = 20
			var gone sync.WaitGroup
			store := func(ctx context.Context, name string) error {
				_, err := Transact(ctx, w, Op{Stage: StageSubmit, Party: 1}, insertNames(name, 1))
				return err
			}
			for i := range many {
				gone.Go(func() {
					if err := store(ctx, fmt.Sprint("gone-", i)); !errors.Is(err, context.Canceled) {
						t.Errorf("the caller that left was told %v", err)
					}
				})
			}
			for len(w.Ops) < many {
				<-time.After(time.Millisecond)
			}
			hangUp()
			gone.Wait()
			goOn()
			mustDo(t, store(t.Context(), fmt.Sprint("stays", n)))
			if all := names(t, s); len(all) != n+1 || all[n] != fmt.Sprint("stays", n, "-", 0) {
				t.Errorf("stored %v", all)
			}
		}
	})
}

func TestATransactionTakesAsManyRowsAsItHasTimeFor(t *testing.T) {
	for _, c := range []struct {
		row, flush   time.Duration
		want, shared int
	}{
		{0, 0, MaxBatchOps, 2 * leastRows},                        // nothing is known
		{40 * time.Microsecond, 300 * time.Microsecond, 200, 50},  // 8 ms, or 2
		{40 * time.Microsecond, 10 * time.Millisecond, 1000, 250}, // four times what the disk takes, or once
		{40 * time.Microsecond, 10 * time.Second, MaxBatchOps, MaxBatchOps},
		{time.Second, time.Millisecond, leastRows, SharedRows},
	} {
		a := batchSizer{row: c.row, flush: c.flush}
		if got := a.rows(false); got != c.want {
			t.Errorf("%v takes %d rows, not %d", a, got, c.want)
		}
		if got := a.rows(true); got != c.shared {
			t.Errorf("%v takes %d rows while tenants share the writer, not %d", a, got, c.shared)
		}
	}
	var a batchSizer
	a.note(SharedRows-1, time.Second, time.Second)
	if a != (batchSizer{}) {
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
