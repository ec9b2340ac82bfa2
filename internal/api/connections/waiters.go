package connections

import (
	"context"
	"sync"

	"github.com/forebayhq/forebay"
)

const (
	// MaxWaiters limits event streams, long polls and WebSockets at one time. Each holds a
	// connection and a goroutine for long.
	MaxWaiters = 4096
	// MaxTenantWaiters is the limit of one tenant.
	MaxTenantWaiters = 512
)

var errTooManyWaiters = forebay.Errorf(forebay.CodeTooManyRequests, "too many requests are waiting already (event streams, long polls, WebSockets); try again")

// Waiters counts waiting requests. The zero value counts none.
type Waiters struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int

	upgraded sync.WaitGroup
}

// Enter counts one more until leave is called. leave may be called once.
func (w *Waiters) Enter(tenant string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= MaxWaiters || w.tenants[tenant] >= MaxTenantWaiters {
		return nil, errTooManyWaiters
	}
	if w.tenants == nil {
		w.tenants = map[string]int{}
	}
	w.all++
	w.tenants[tenant]++
	return func() { w.leave(tenant) }, nil
}

func (w *Waiters) leave(tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	countDown(w.tenants, tenant)
}

// EnterUpgraded is Enter for a connection that speaks another protocol than HTTP from now on.
func (w *Waiters) EnterUpgraded(tenant string) (leave func(), err error) {
	left, err := w.Enter(tenant)
	if err != nil {
		return nil, err
	}
	w.upgraded.Add(1)
	return func() { left(); w.upgraded.Done() }, nil
}

// AwaitUpgraded waits until no such connection is left, or ctx ends. The shutdown of an HTTP
// server does not wait for them.
func (w *Waiters) AwaitUpgraded(ctx context.Context) error {
	done := make(chan struct{})
	go func() { w.upgraded.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Counted returns how many wait, and of how many tenants.
func (w *Waiters) Counted() (all, tenants int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, len(w.tenants)
}
