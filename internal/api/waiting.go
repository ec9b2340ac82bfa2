package api

import (
	"context"
	"sync"

	"github.com/forebayhq/forebay"
)

const (
	// maxWaiters limits event streams and long polls at one time. Each holds a connection and a
	// goroutine for long.
	maxWaiters = 4096
	// maxTenantWaiters is the limit of one tenant.
	maxTenantWaiters = 512
)

var errTooManyWaiters = forebay.Errorf(forebay.CodeTooManyRequests, "too many requests are waiting already (event streams, long polls); try again")

// waiters counts waiting requests.
type waiters struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int
}

// enter counts one more until leave is called. leave may be called once.
func (w *waiters) enter(tenant string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= maxWaiters || w.tenants[tenant] >= maxTenantWaiters {
		return nil, errTooManyWaiters
	}
	w.all++
	w.tenants[tenant]++
	return func() { w.leave(tenant) }, nil
}

func (w *waiters) leave(tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.tenants[tenant]--; w.tenants[tenant] == 0 {
		delete(w.tenants, tenant)
	}
}

// waiting counts a call as a waiting request of its tenant until leave. The returned context also
// ends when the API drains.
func (a *API) waiting(ctx context.Context, c *call) (waiting context.Context, leave func(), err error) {
	left, err := a.waiters.enter(c.home)
	if err != nil {
		return nil, nil, err
	}
	c.waited = true
	waiting, cancel := a.untilDrain(ctx)
	return waiting, func() { cancel(); left() }, nil
}
