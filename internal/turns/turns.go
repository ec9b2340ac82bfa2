// Package turns shares the processors between tenants whose requests compute for long.
//
// Go's scheduler preempts a goroutine only after 10 ms. So a few goroutines that compute delay
// everything else by that much at each step: the network, the store's writer, other requests. A
// request takes many such steps.
//
// A long computation begins a [Turn] and calls its Pause again and again. The first milliseconds
// are free. After them it needs one of a few places, half as many as there are processors. Nobody
// keeps a place for more than a slice while others wait for one. Tenants are served in rotation,
// however much each has to compute.
//
// # What takes turns
//
// Go's scheduler takes a processor from a goroutine only after 10 ms, so a few goroutines that
// compute delay all others at each step. Judging rules, counting tokens and parsing large JSON
// therefore take turns (internal/turns). The first two milliseconds are free. What takes longer
// needs one of a few places, half as many as there are processors. It gives the place up after
// 2 ms while others wait. Tenants have them in rotation. JSON over 256 KiB is parsed in a place
// in one go, which takes up to some 50 ms. So is an answer encoded for which as much was read,
// and a page of messages read that is larger. Both have claimed their memory before. Who writes
// an answer lets others run every 16 KiB, for the kernel takes megabytes at once. Tenants have
// the four read connections of the database in rotation as well, and one of them is left to the
// others.
package turns

import (
	"context"
	"math"
	"runtime"
	"time"
)

// slice is how long a turn computes before it needs a place, and then between two rotations.
const slice = 2 * time.Millisecond

type tenantKey struct{}

// With returns a context whose turns belong to a tenant. Turns of other contexts share one
// rotation.
func With(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// Tenant returns the tenant that [With] set, "" if there is none.
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

// Take begins a turn with a place. It is for long computations that cannot pause. Its error is
// that of ctx, if that ends before there is a place. Otherwise the caller must call End.
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

// LargeBytes is the size of JSON that takes about a millisecond to check.
const LargeBytes = 256 << 10

// Parse calls f, which reads so many bytes. If they are many it does so in a turn, as [Run] does.
func Parse(ctx context.Context, bytes int, f func()) error {
	if bytes < LargeBytes {
		f()
		return nil
	}
	return Run(ctx, f)
}

// Pause must be called about every tenth of a millisecond. It waits while it is another's turn.
// Its error is that of the context: nobody needs the result any more, and the turn has no place
// to go on in.
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

// breathe lets other goroutines run. A lone processor polls the network only when nothing else is
// runnable.
func breathe() {
	if runtime.GOMAXPROCS(0) == 1 {
		<-time.After(slice / 10)
		return
	}
	runtime.Gosched()
}
