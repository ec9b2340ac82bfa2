// Package places shares the places for work items of a process among tenants. What is executed is
// not preempted, and may take long. So each tenant leaves places for others. No I/O.
package places

import (
	"context"
	"errors"
	"sync"
)

// share bounds the places of a tenant by the free ones beside them. A single tenant gets three
// quarters of all, and each of two gets three sevenths. A work item of another tenant finds a
// free place.
const share = 3

// Places are the places for work items of a kind.
type Places struct {
	free chan struct{} // one value for each free place that nobody has taken

	mu       sync.Mutex
	held     int
	byTenant map[int64]int
	restart  func() // starts the claim again that has found no room; nil: there is none
}

// New returns so many places.
func New(n int) *Places {
	p := &Places{free: make(chan struct{}, n), byTenant: map[int64]int{}}
	p.GiveBack(n)
	return p
}

// Take waits for a free place, and takes all that are free. It returns 0 once ctx ends.
func (p *Places) Take(ctx context.Context) (n int) {
	select {
	case <-p.free:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for {
		select {
		case <-p.free:
			n++
		default:
			return n
		}
	}
}

// GiveBack gives back places that were taken and are not held.
func (p *Places) GiveBack(n int) {
	for range n {
		p.free <- struct{}{}
	}
}

// Hold notes that a work item of a tenant has a place that was taken.
func (p *Places) Hold(tenant int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	p.byTenant[tenant]++
}

// Release frees the place of a work item.
func (p *Places) Release(tenant int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	if p.byTenant[tenant]--; p.byTenant[tenant] == 0 {
		delete(p.byTenant, tenant)
	}
	p.free <- struct{}{}
	if p.restart != nil {
		p.restart()
		p.restart = nil
	}
}

// Room says how many more work items of a tenant are claimed, beside what the claim has got
// already: of the tenant, and in all.
type Room = func(tenant int64, got, all int) int

var errMoreRoom = errors.New("there is more room")

// Claim calls f, which claims work items while it may. A work item that ends later makes room
// that f does not know of. So if f found no room for a tenant it is cut short then, without an
// error.
func (p *Places) Claim(ctx context.Context, f func(ctx context.Context, room Room) error) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := f(waiting, func(tenant int64, got, all int) int {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.room(tenant, got, all)
		if n <= 0 && waiting.Err() == nil { // who asks may still look at a claim that is over
			p.restart = func() { cancel(errMoreRoom) }
		}
		return n
	})
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errMoreRoom) {
		return nil
	}
	return err
}

func (p *Places) room(tenant int64, got, all int) int {
	got += p.byTenant[tenant]
	left := cap(p.free) - p.held - all
	// The largest n with got+n <= share*(left-n).
	n := (share*left - got) / (share + 1)
	if got == 0 {
		n = max(n, min(left, 1))
	}
	return n
}
