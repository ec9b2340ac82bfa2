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
	"math"
	"runtime"
	"time"
)

// slice is for how long a turn computes before it needs a place, and then between two rotations.
const slice = 2 * time.Millisecond

type tenantKey struct{}

// With returns a context whose turns are those of a tenant. Turns of other contexts share one rotation.
func With(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// Tenant returns the tenant of [With], "" where there is none.
func Tenant(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// Turn is one computation. A nil Turn never waits. A Turn must not be used concurrently.
type Turn struct {
	line   *Line
	ctx    context.Context
	tenant string
	since  time.Time // of the slice
	placed bool
}

// shared is the line of this process.
var shared = NewLine(max(1, runtime.GOMAXPROCS(0)/2), math.MaxInt)

// Begin begins a turn of the context's tenant. It has no place yet. End must be called.
func Begin(ctx context.Context) *Turn { return shared.begin(ctx) }

func (l *Line) begin(ctx context.Context) *Turn {
	return &Turn{line: l, ctx: ctx, tenant: Tenant(ctx), since: time.Now()}
}

// Take begins a turn with a place. It is for what takes long and cannot pause. The error is the context's,
// if that ends before there is a place; otherwise End must be called.
func Take(ctx context.Context) (*Turn, error) {
	t := Begin(ctx)
	if err := t.take(); err != nil {
		return nil, err
	}
	return t, nil
}

// Run calls f in a turn that [Take] begins.
func Run(ctx context.Context, f func()) error {
	t, err := Take(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	f()
	return nil
}

// LargeBytes of JSON take about a millisecond to check.
const LargeBytes = 256 << 10

// Parse calls f, which goes through so many bytes: in a turn as [Run] does if they are many.
func Parse(ctx context.Context, bytes int, f func()) error {
	if bytes < LargeBytes {
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
	if !t.placed {
		return t.take()
	}
	waited, err := t.line.rotate(t.ctx, t.tenant)
	if !waited {
		breathe()
		err = t.ctx.Err()
	} else if err != nil {
		t.placed = false
	}
	t.since = time.Now()
	return err
}

// take waits for a place.
func (t *Turn) take() error {
	if err := t.line.Enter(t.ctx, t.tenant); err != nil {
		return err
	}
	t.placed, t.since = true, time.Now()
	return nil
}

// End gives the place back. It may be called again.
func (t *Turn) End() {
	if t != nil && t.placed {
		t.placed = false
		t.line.Leave(t.tenant)
	}
}

// breathe lets other goroutines run. A lone processor looks at the network only when nothing else is to be done.
func breathe() {
	if runtime.GOMAXPROCS(0) == 1 {
		<-time.After(slice / 10)
		return
	}
	runtime.Gosched()
}
