package api

import (
	"context"
	"sync"

	"github.com/forebayhq/forebay"
)

const (
	// maxWaiters is how many event streams and long polls there may be at once: each holds a
	// connection and a goroutine for as long as it likes.
	maxWaiters = 4096
	// maxTenantWaiters is how many of them one tenant may have.
	maxTenantWaiters = 512
)

var errTooManyWaiters = forebay.Errorf(forebay.CodeTooManyRequests, "too many requests are waiting already (event streams, long polls); try again")

// waiters counts the requests that wait for something to happen.
type waiters struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int
}

// enter admits one more, until leave, which may be called once.
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

// waiting admits a call as one of its tenant's that wait, until leave, and returns a context that also ends when
// the API drains.
func (a *API) waiting(ctx context.Context, c *call) (waiting context.Context, leave func(), err error) {
	left, err := a.waiters.enter(c.caller.Tenant)
	if err != nil {
		return nil, nil, err
	}
	c.waited = true
	waiting, cancel := a.untilDrain(ctx)
	return waiting, func() { cancel(); left() }, nil
}
