package turns

import (
	"context"
	"slices"
	"sync"
)

// Line is a number of places and the calls that wait for one. It serves tenants in rotation, and
// each tenant's calls in order of arrival. It is safe for concurrent use.
type Line struct {
	most int // places of one tenant

	mu      sync.Mutex
	free    int
	held    map[string]int       // by tenant
	waiting map[string][]*waiter // by tenant, in the order in which they came
	next    []string             // the tenants that wait, in rotation
}

type waiter struct{ ready chan struct{} }

// NewLine returns a line with that many places, of which one tenant holds at most so many at
// once. Calls of no tenant, "", may hold all of them.
func NewLine(places, most int) *Line {
	return &Line{most: most, free: places, held: map[string]int{}, waiting: map[string][]*waiter{}}
}

// Enter waits for a place. Its error is that of ctx, if that ends first. Otherwise the caller
// must call Leave.
func (l *Line) Enter(ctx context.Context, tenant string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.free > 0 && len(l.next) == 0 && l.may(tenant) {
		l.hold(tenant)
		l.mu.Unlock()
		return nil
	}
	w := l.enqueue(tenant)
	l.serve()
	l.mu.Unlock()
	return l.wait(ctx, tenant, w)
}

// rotate gives the tenant's place back if another call waits, and waits for the next free one
// after those.
func (l *Line) rotate(ctx context.Context, tenant string) (waited bool, err error) {
	l.mu.Lock()
	if len(l.next) == 0 {
		l.mu.Unlock()
		return false, nil
	}
	w := l.enqueue(tenant)
	l.release(tenant)
	l.mu.Unlock()
	return true, l.wait(ctx, tenant, w)
}

func (l *Line) enqueue(tenant string) *waiter {
	w := &waiter{make(chan struct{})}
	if len(l.waiting[tenant]) == 0 {
		l.next = append(l.next, tenant)
	}
	l.waiting[tenant] = append(l.waiting[tenant], w)
	return w
}

func (l *Line) wait(ctx context.Context, tenant string, w *waiter) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting[tenant], w); i < 0 { // both at once
		l.release(tenant)
	} else if l.remove(tenant, i); len(l.waiting[tenant]) == 0 {
		l.next = slices.DeleteFunc(l.next, func(other string) bool { return other == tenant })
	}
	return ctx.Err()
}

// Leave gives a place of the tenant back.
func (l *Line) Leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(tenant)
}

// Full reports whether the tenant holds as many places as it may.
func (l *Line) Full(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.may(tenant)
}

func (l *Line) may(tenant string) bool { return tenant == "" || l.held[tenant] < l.most }

func (l *Line) hold(tenant string) {
	l.free--
	l.held[tenant]++
}

func (l *Line) release(tenant string) {
	l.free++
	if l.held[tenant]--; l.held[tenant] == 0 {
		delete(l.held, tenant)
	}
	l.serve()
}

// serve gives free places to the next waiting calls.
func (l *Line) serve() {
	for i := 0; l.free > 0 && i < len(l.next); {
		tenant := l.next[i]
		if !l.may(tenant) {
			i++
			continue
		}
		l.next = slices.Delete(l.next, i, i+1)
		w := l.waiting[tenant][0]
		if l.remove(tenant, 0); len(l.waiting[tenant]) > 0 {
			l.next = append(l.next, tenant)
		}
		l.hold(tenant)
		close(w.ready)
	}
}

func (l *Line) remove(tenant string, i int) {
	if l.waiting[tenant] = slices.Delete(l.waiting[tenant], i, i+1); len(l.waiting[tenant]) == 0 {
		delete(l.waiting, tenant)
	}
}
