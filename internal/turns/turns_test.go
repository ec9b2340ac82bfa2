package turns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// compute takes that many slices and pauses after each.
func compute(t *Turn, slicesOf int, each func()) error {
	for range slicesOf {
		<-time.After(slice) // the bubble's time: a computation of that length
		each()
		if err := t.Pause(); err != nil {
			return err
		}
	}
	return nil
}

// Between two computations of one tenant another tenant has its turn, however many the first has.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(1, 1)
		var order []string
		var running sync.WaitGroup
		start := func(tenant string, parts int) {
			running.Go(func() {
				turn := l.begin(With(t.Context(), tenant))
				defer turn.End()
				if err := turn.take(); err != nil {
					t.Error(err)
				}
				if err := compute(turn, parts, func() { order = append(order, tenant) }); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for range 20 {
			start("busy", 50)
		}
		start("other", 5)
		running.Wait()
		first, last := slices.Index(order, "other"), len(order)-1
		for order[last] != "other" {
			last--
		}
		if first > 2 || last-first > 8 {
			t.Errorf("the other tenant's five slices were numbers %d to %d", first, last)
		}
		if len(order) != 20*50+5 || l.free != 1 || len(l.waiting)+len(l.next) != 0 {
			t.Errorf("%d slices, %d places are free at the end, %v wait", len(order), l.free, l.next)
		}
	})
}

// At most as many compute at once as there are places, except for the first slice of each.
func TestOnlySomeComputeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(2, 2)
		var running sync.WaitGroup
		for range 10 {
			running.Go(func() {
				turn := l.begin(t.Context())
				defer turn.End()
				if err := compute(turn, 11, func() {}); err != nil {
					t.Error(err)
				}
			})
		}
		begun := time.Now()
		running.Wait()
		// The first slices run together, and then ten of each in two places.
		if took := time.Since(begun); took != slice+50*slice {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWhoGoesAwayLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(1, 1)
		holder := l.begin(t.Context())
		if err := holder.take(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(With(t.Context(), "gone"))
		done := make(chan error)
		go func() {
			turn := l.begin(ctx)
			defer turn.End()
			done <- compute(turn, 3, func() {})
		}()
		<-time.After(10 * slice)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		holder.End()
		if l.free != 1 || len(l.waiting)+len(l.next) != 0 {
			t.Errorf("%d places are free, %v wait", l.free, l.next)
		}
	})
}

func TestATurnThatIsNotNeededNeverWaits(t *testing.T) {
	var none *Turn
	if err := none.Pause(); err != nil {
		t.Error(err)
	}
	none.End()
}

// A tenant leaves a place to the others however many of its calls wait. Calls of no tenant take
// all places.
func TestATenantLeavesAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(3, 2)
		entered := map[string]int{}
		enter := func(ctx context.Context, tenant string) {
			go func() {
				if l.Enter(ctx, tenant) == nil {
					entered[tenant]++
				}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 {
			enter(ctx, "busy")
		}
		enter(t.Context(), "other")
		if entered["busy"] != 2 || entered["other"] != 1 {
			t.Errorf("entered: %v", entered)
		}
		enter(t.Context(), "other")
		l.Leave("busy")
		synctest.Wait()
		if entered["busy"] != 3 || entered["other"] != 1 {
			t.Errorf("in rotation: %v", entered)
		}
		l.Leave("busy")
		synctest.Wait()
		if entered["busy"] != 3 || entered["other"] != 2 {
			t.Errorf("in rotation: %v", entered)
		}
		cancel()
		synctest.Wait()
		for range 2 {
			l.Leave("other")
		}
		l.Leave("busy")
		for range 4 {
			enter(t.Context(), "")
		}
		if entered[""] != 3 || entered["busy"] != 3 {
			t.Errorf("what is no tenant's: %v", entered)
		}
		for range 4 {
			l.Leave("")
		}
		if l.free != 3 || len(l.held)+len(l.waiting)+len(l.next) != 0 {
			t.Errorf("at the end %d places are free, %v held, %v wait", l.free, l.held, l.next)
		}
	})
}
