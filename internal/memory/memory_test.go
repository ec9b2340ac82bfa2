package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/memory"
)

// One tenant's claims, however many and however large, leave room for another's.
func TestTenantLeavesRoomForOthers(t *testing.T) {
	p := memory.New(64)
	for p.Claim("greedy").TryGrow(4) {
	}
	// The eldest claim is its only one that may go on.
	if held := p.Held(); held > 32 {
		t.Errorf("small claims of one tenant hold %d of 64", held)
	}
	other := p.Claim("modest")
	if !other.TryGrow(10) {
		t.Error("another tenant has no room for 10 of the 32 that are free")
	}
}

// A single payload may have nearly all of the pool, and all of it while nobody else holds any.
func TestLonePayload(t *testing.T) {
	p := memory.New(64)
	c := p.Claim("a")
	if !c.TryGrow(64) {
		t.Fatal("a lone payload cannot have the whole pool")
	}
	c.Release()
	small := p.Claim("b")
	if !small.TryGrow(1) || c.TryGrow(60) || !c.TryGrow(55) {
		t.Errorf("beside another tenant an eldest claim goes up to seven eighths; %d are held", p.Held())
	}
	c.Release()
	small.Release()
	if p.Held() != 0 {
		t.Errorf("%d are held at the end", p.Held())
	}
}

// A younger claim does not take what an elder one still needs.
func TestElderFirst(t *testing.T) {
	p := memory.New(64)
	elder, younger := p.Claim("a"), p.Claim("a")
	elder.Expect(24)
	if !elder.TryGrow(1) || younger.TryGrow(12) || !younger.TryGrow(8) || !elder.TryGrow(23) {
		t.Errorf("%d are held", p.Held())
	}
}

// Uploads of many tenants that grow step by step all come to an end.
func TestNobodyWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New(64)
		var all sync.WaitGroup
		var mu sync.Mutex
		done, refused := 0, 0
		for i := range 40 {
			all.Go(func() {
				for {
					c := p.Claim(fmt.Sprint("tenant-", i%8))
					c.Expect(16)
					var err error
					for range 16 {
						if err = c.Grow(t.Context(), 1); err != nil {
							break
						}
						<-time.After(time.Millisecond) // bytes arrive
					}
					c.Release()
					mu.Lock()
					if err == nil {
						done++
					} else {
						refused++
					}
					mu.Unlock()
					if err == nil {
						return
					}
				}
			})
		}
		all.Wait()
		if done != 40 || p.Held() != 0 {
			t.Errorf("%d of 40 were done, %d refused, %d bytes are held at the end", done, refused, p.Held())
		}
	})
}

// A claim that waits ends with ErrFull in time, and takes no room with it.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New(64)
		first := p.Claim("a")
		if err := first.Grow(t.Context(), 30); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		second := p.Claim("a")
		if err := second.Grow(t.Context(), 10); !errors.Is(err, memory.ErrFull) {
			t.Fatalf("claimed beyond the share: %v", err)
		}
		if took := time.Since(begun); took != memory.Wait/2 {
			t.Errorf("waited %v", took)
		}
		go func() {
			<-time.After(time.Second)
			first.Release()
		}()
		if err := second.Grow(t.Context(), 10); err != nil {
			t.Errorf("after room was made: %v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Claim("a").Grow(cancelled, 30); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait ends with %v", err)
		}
	})
}

// The bytes of waiting claims are bounded too; more are refused at once.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New(64)
		if err := p.Claim("a").Grow(t.Context(), 30); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() { _ = p.Claim("a").Grow(ctx, 28) })
		}
		synctest.Wait()
		begun := time.Now()
		if err := p.Claim("a").Grow(t.Context(), 28); !errors.Is(err, memory.ErrFull) || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		cancel()
		waiting.Wait()
	})
}

// One tenant's claims that wait, however many, let another's wait too.
func TestTenantLetsOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New(64)
		greedy, third := p.Claim("greedy"), p.Claim("third")
		if !greedy.TryGrow(30) || !third.TryGrow(20) {
			t.Fatalf("%d are held", p.Held())
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		moved := p.Claim("")
		all.Go(func() { _ = moved.Grow(ctx, 14) })
		synctest.Wait()
		for range 20 {
			all.Go(func() { _ = p.Claim("greedy").Grow(ctx, 4) })
		}
		synctest.Wait()
		moved.Move("greedy")
		modest := make(chan error, 1)
		go func() { modest <- p.Claim("modest").Grow(t.Context(), 8) }()
		synctest.Wait()
		if len(modest) > 0 {
			t.Errorf("another tenant may not wait: %v", <-modest)
		} else if third.Release(); <-modest != nil {
			t.Error("after room was made there is none")
		}
		cancel()
		all.Wait()
		for _, tenant := range []string{"", "greedy"} { // neither waits any more
			if err := p.Claim(tenant).Grow(ctx, 60); !errors.Is(err, context.Canceled) {
				t.Errorf("%q may not wait for a large payload: %v", tenant, err)
			}
		}
	})
}

func TestContext(t *testing.T) {
	p := memory.New(64)
	c := p.Claim("a")
	ctx := memory.With(t.Context(), c)
	if err := memory.Grow(ctx, 5); err != nil || p.Held() != 5 {
		t.Errorf("%v; %d are held", err, p.Held())
	}
	if err := memory.Grow(t.Context(), 500); err != nil {
		t.Errorf("without a claim: %v", err)
	}
	c.Shrink(2)
	if p.Held() != 2 {
		t.Errorf("%d are held", p.Held())
	}
}

// A claim that moves counts for its new tenant with all that it holds, and goes on growing there.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New(64)
		c, other := p.Claim(""), p.Claim("b")
		if !c.TryGrow(20) || !other.TryGrow(14) {
			t.Fatalf("%d are held", p.Held())
		}
		done := make(chan error, 1)
		go func() { done <- c.Grow(t.Context(), 30) }() // nobody leaves so much
		synctest.Wait()
		c.Move("a")
		if p.Claim("a").TryGrow(6) || !p.Claim("").TryGrow(6) {
			t.Errorf("what has moved counts for its old tenant; %d are held", p.Held())
		}
		other.Release()
		if err := <-done; err != nil || c.Held() != 50 {
			t.Errorf("the claim holds %d (%v)", c.Held(), err)
		}
		c.Release()
		c.Move("b") // while it holds nothing
		if !c.TryGrow(5) || p.Held() != 11 {
			t.Errorf("%d are held at the end", p.Held())
		}
	})
}
