package servicebus

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Tasks begin in their order, at most so many at once, and idle workers are no goroutines.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		var failed atomic.Int32
		w := &workers{most: 2, group: &group, log: slog.New(slog.DiscardHandler), failed: func() { failed.Add(1) }}
		var begun []int
		var mu sync.Mutex
		gate := make(chan struct{})
		for i := range 5 {
			w.do(func() {
				mu.Lock()
				begun = append(begun, i)
				mu.Unlock()
				<-gate
				if i == 3 {
					panic("a task")
				}
			})
			synctest.Wait()
		}
		if len(begun) != 2 {
			t.Errorf("%v run at once", begun)
		}
		for range 5 {
			gate <- struct{}{}
			synctest.Wait()
		}
		group.Wait()
		if len(begun) != 5 || begun[2] != 2 || begun[4] != 4 || failed.Load() != 1 || w.running != 0 {
			t.Errorf("begun %v, failed %d, running %d", begun, failed.Load(), w.running)
		}
	})
}

// The end of a link waits for the settlements that have begun, and lets none begin afterwards.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if !g.enter() {
			t.Fatal("the gate is closed")
		}
		closed := make(chan struct{})
		go func() { g.close(); close(closed) }()
		synctest.Wait()
		if g.enter() {
			t.Error("something began after the end")
		}
		select {
		case <-closed:
			t.Error("the end has not waited")
		default:
		}
		g.leave()
		<-closed
	})
}

// A tenant that has all its places leaves those of others.
func TestPlaces(t *testing.T) {
	p := ofLinks()
	var leaves []func()
	for range maxTenantLinks {
		leave, err := p.enter("acme")
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := p.enter("acme"); err == nil {
		t.Error("a tenant has more links than it may")
	}
	if _, err := p.enter("other"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	leaves[0]()
	if _, err := p.enter("acme"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}
