package documents

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// If many documents of one tenant take their time, another's is read at once, and a third's next.
func TestConcurrencyLimitIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const killer = 2 * time.Second
		p := newConcurrencyLimit(3, 2, 8)
		begun := time.Now()
		read := func(tenant string, took time.Duration) (waited time.Duration) {
			leave, err := p.take(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return 0
			}
			waited = time.Since(begun)
			<-time.After(took)
			leave()
			return waited
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() { read("greedy", killer) })
		}
		synctest.Wait()
		all.Go(func() {
			if waited := read("modest", killer); waited != 0 {
				t.Errorf("the second tenant waited %v", waited)
			}
		})
		synctest.Wait()
		if waited := read("third", 0); waited != killer {
			t.Errorf("the third tenant waited %v", waited)
		}
		all.Wait()
		if p.free != 3 || len(p.tenants) != 0 {
			t.Errorf("%d slots are free at the end, and %d tenants are remembered", p.free, len(p.tenants))
		}
	})
}

// Only so many documents wait for a slot. Others are tried again later, one after another.
func TestConcurrencyLimitSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newConcurrencyLimit(2, 1, 8)
		ctx, cancel := context.WithCancel(t.Context())
		leave, err := p.take(ctx, "greedy")
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range p.maxWaiting {
			waiting.Go(func() {
				if _, err := p.take(ctx, "greedy"); !errors.Is(err, context.Canceled) {
					t.Errorf("a wait that was cancelled ended with %v", err)
				}
			})
		}
		synctest.Wait()
		var last time.Duration
		for i := range 1000 {
			_, err := p.take(ctx, "greedy")
			e, ok := errors.AsType[*forebay.TaskError](err)
			if !ok || !e.Uncalled || e.Class != forebay.ClassThrottled || e.RetryAfter < sentAway || e.RetryAfter > maxSentAway || e.RetryAfter < last {
				t.Fatalf("document %d was sent away with %+v after %v", i, err, last)
			}
			last = e.RetryAfter
		}
		if last != maxSentAway {
			t.Errorf("the last one comes again after %v", last)
		}
		cancel()
		waiting.Wait()
		leave()
		if p.free != 2 || len(p.tenants) != 0 || len(p.waiting) != 0 {
			t.Errorf("left behind: %+v", p)
		}
	})
}
