// Package turns shares the processor between tenants where requests compute for long.
//
// Go's scheduler takes a processor from a goroutine only after 10 ms. So a few goroutines that compute make
// everything else wait for that long at each step: the network, the store's writer, other requests. A request
// takes many such steps.
//
// Who computes for long begins a [Turn] and calls its Pause again and again. The first milliseconds are free.
// What needs longer goes on in one of a few places, half as many as there are processors. Nobody keeps a place
// for more than a slice while others wait for one. Tenants are served in rotation, whoever has the most to
// compute.
package turns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// slice is for how long a turn computes before it needs a place, and then between two rotations.
const slice = 2 * time.Millisecond

type tenantKey struct{}

// With returns a context whose turns are those of a tenant. Turns of other contexts share one rotation.
func With(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// Turn is one computation. A nil Turn never waits. A Turn must not be used concurrently.
type Turn struct {
	line   *line
	ctx    context.Context
	tenant string
	since  time.Time // of the slice
	placed bool
}

// shared is the line of this process.
var shared = newLine(max(1, runtime.GOMAXPROCS(0)/2))

// Begin begins a turn of the context's tenant. It has no place yet. End must be called.
func Begin(ctx context.Context) *Turn { return shared.begin(ctx) }

// Run begins a turn with a place, calls f and ends it. It is for what takes long and cannot pause. The error
// is the context's, if that ends before there is a place.
func Run(ctx context.Context, f func()) error {
	t := Begin(ctx)
	defer t.End()
	if err := t.line.take(t); err != nil {
		return err
	}
	f()
	return nil
}

// largeBytes of JSON take about a millisecond to check.
const largeBytes = 256 << 10

// Parse calls f, which goes through so many bytes: in a turn as [Run] does if they are many.
func Parse(ctx context.Context, bytes int, f func()) error {
	if bytes < largeBytes {
		f()
		return nil
	}
	return Run(ctx, f)
}

// Pause is to be called about every tenth of a millisecond. It waits if it is somebody else's turn. The error
// is the context's: nobody wants what is computed any more, and to go on would be to compute without a place.
func (t *Turn) Pause() error {
	if t == nil || time.Since(t.since) < slice {
		return nil
	}
	return t.line.rotate(t)
}

// End gives the place back.
func (t *Turn) End() {
	if t != nil && t.placed {
		t.line.leave(t)
	}
}

// line is a number of places and those who wait for one.
type line struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]*waiter // by tenant, in the order in which they came
	next    []string             // the tenants that wait, in rotation
}

type waiter struct{ ready chan struct{} }

func newLine(places int) *line { return &line{free: places, waiting: map[string][]*waiter{}} }

func (l *line) begin(ctx context.Context) *Turn {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return &Turn{line: l, ctx: ctx, tenant: tenant, since: time.Now()}
}

// rotate ends a slice. Others who wait come first.
func (l *line) rotate(t *Turn) error {
	if !t.placed {
		return l.take(t)
	}
	l.mu.Lock()
	if len(l.next) == 0 {
		l.mu.Unlock()
		breathe()
		t.since = time.Now()
		return t.ctx.Err()
	}
	w := l.enter(t.tenant)
	t.placed = false
	l.free++
	l.serve()
	l.mu.Unlock()
	return l.wait(t, w)
}

// breathe lets other goroutines run. A lone processor looks at the network only when nothing else is to be done.
func breathe() {
	if runtime.GOMAXPROCS(0) == 1 {
		<-time.After(slice / 10)
		return
	}
	runtime.Gosched()
}

// take waits for a place.
func (l *line) take(t *Turn) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	w := l.enter(t.tenant)
	l.serve()
	l.mu.Unlock()
	return l.wait(t, w)
}

func (l *line) enter(tenant string) *waiter {
	w := &waiter{make(chan struct{})}
	if len(l.waiting[tenant]) == 0 {
		l.next = append(l.next, tenant)
	}
	l.waiting[tenant] = append(l.waiting[tenant], w)
	return w
}

// serve gives free places to those who are next.
func (l *line) serve() {
	for l.free > 0 && len(l.next) > 0 {
		tenant := l.next[0]
		l.next = l.next[1:]
		w := l.waiting[tenant][0]
		l.remove(tenant, 0)
		if len(l.waiting[tenant]) > 0 {
			l.next = append(l.next, tenant)
		}
		l.free--
		close(w.ready)
	}
}

func (l *line) remove(tenant string, i int) {
	if l.waiting[tenant] = slices.Delete(l.waiting[tenant], i, i+1); len(l.waiting[tenant]) == 0 {
		delete(l.waiting, tenant)
	}
}

func (l *line) wait(t *Turn, w *waiter) error {
	select {
	case <-w.ready:
		t.placed, t.since = true, time.Now()
		return nil
	case <-t.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting[t.tenant], w); i >= 0 {
		if l.remove(t.tenant, i); len(l.waiting[t.tenant]) == 0 {
			l.next = slices.DeleteFunc(l.next, func(tenant string) bool { return tenant == t.tenant })
		}
	} else { // both at once
		l.free++
		l.serve()
	}
	return t.ctx.Err()
}

func (l *line) leave(t *Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.placed = false
	l.free++
	l.serve()
}
