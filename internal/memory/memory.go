// Package memory shares a bounded amount of memory for large payloads between tenants.
//
// A [Pool] has a capacity in bytes. Whoever holds a payload has a [Claim] of its tenant. It grows
// as bytes arrive and is released as a whole. A tenant may hold as much as it leaves free. So a
// lone tenant gets half of the pool, and each of n busy tenants about 1/(n+1). There is always
// room for one more. (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on
// Networking, 1998.)
//
// Claims of one tenant are served by age. A younger one leaves what its elders may still need.
// The eldest may exceed the tenant's share, up to seven eighths of the pool together with all
// others. So tenants that each hold a part of a payload do not wait for each other.
//
// What waits is bounded as well, since it may be in memory already. A tenant may wait for seven
// times as much as it leaves to others to wait for.
//
// # What claims memory
//
// Requests share limits.memory_bytes, and so do running jobs: their inputs, and the payloads
// that their tasks read besides. Of requests that is what they hold over 64 KiB. These are
// bodies, lines of a bulk submit, payloads read for an answer, and the answer until it is
// written. A body takes memory as it arrives, whatever it announces. A tenant may hold as much as
// it leaves free. So a lone tenant has half, and n busy ones 1/(n+1) each. The eldest request of
// a tenant may go beyond that, up to seven eighths of all together. So tenants that each hold a
// part of a payload do not wait for each other for ever. Who finds no room in ten seconds is told
// 503. A result is streamed from blob storage.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// Wait is how long the eldest claim of a tenant waits for room. Others give up after half of it.
const Wait = 10 * time.Second

// ErrFull says that a claim found no room in time. Its code is CodeTooManyRequests.
var ErrFull = forebay.Errorf(forebay.CodeTooManyRequests, "the server is busy with other large payloads; try again")

// Pool is memory that tenants share. It is safe for concurrent use.
type Pool struct {
	capacity int64

	mu      sync.Mutex
	free    int64
	tenants map[string]*tenant
	waiting int64            // bytes that claims wait for
	waits   map[string]int64 // those by tenant
	freed   chan struct{}    // closed and replaced when memory is released
}

type tenant struct {
	held   int64
	claims []*Claim // by age
}

// New returns a pool of that many bytes.
func New(capacity int64) *Pool {
	return &Pool{capacity: capacity, free: capacity, tenants: map[string]*tenant{}, waits: map[string]int64{}, freed: make(chan struct{})}
}

// Capacity returns the size of the pool in bytes.
func (p *Pool) Capacity() int64 { return p.capacity }

// Held returns how many bytes are claimed.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capacity - p.free
}

// Claim is what one request or job holds of a pool. A nil claim holds nothing and never waits.
type Claim struct {
	pool   *Pool
	tenant string
	most   int64 // that it may come to, as far as is known
	held   int64
	listed bool
	grows  int   // calls of Grow that wait
	waits  int64 // what they wait for, where that is bounded
}

// Claim returns a claim that holds nothing yet.
func (p *Pool) Claim(tenant string) *Claim { return &Claim{pool: p, tenant: tenant} }

// Held returns how many bytes the claim holds.
func (c *Claim) Held() int64 {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return c.held
}

// Expect announces the bytes that the claim may grow to. Younger claims of the tenant leave room
// for them.
func (c *Claim) Expect(size int64) {
	if c == nil {
		return
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.most = min(size, c.pool.capacity)
}

// Grow claims n more bytes. It waits for room, at most for Wait, and then returns ErrFull, or the
// error of ctx. A claim of more than the pool's capacity is one for all of it.
func (c *Claim) Grow(ctx context.Context, n int64) error {
	return c.grow(ctx, n, Wait)
}

// GrowPatiently is Grow that waits for as long as ctx lets it.
func (c *Claim) GrowPatiently(ctx context.Context, n int64) error {
	return c.grow(ctx, n, 0)
}

// TryGrow claims n more bytes and reports whether there was room now.
func (c *Claim) TryGrow(n int64) bool {
	if c == nil {
		return true
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if !c.take(n) {
		c.unlist()
		return false
	}
	return true
}

func (c *Claim) grow(ctx context.Context, n int64, patience time.Duration) error {
	if c == nil || n <= 0 {
		return nil
	}
	p := c.pool
	n = min(n, p.capacity)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.take(n) {
		return nil
	}
	if patience > 0 {
		// Waiting payloads may already be in memory, such as an answer that is to be written.
		if !c.mayWait(n) {
			c.unlist()
			return ErrFull
		}
		c.addWaits(n)
		defer c.addWaits(-n)
	}
	c.grows++
	defer func() { c.grows-- }()
	for begun := time.Now(); ; {
		limit := patience
		if p.tenants[c.tenant].claims[0] != c {
			limit /= 2 // the eldest goes on when all are stuck
		}
		freed := p.freed
		p.mu.Unlock()
		err := await(ctx, freed, patience > 0, limit-time.Since(begun))
		p.mu.Lock()
		if c.take(n) {
			return nil
		}
		if err != nil {
			c.unlist()
			return err
		}
	}
}

// mayWait reports whether the claim may wait for n bytes. All may wait for as much as the pool
// has. One tenant may have seven eighths of that, or a single claim, so that others may wait too.
func (c *Claim) mayWait(n int64) bool {
	p := c.pool
	left, own := p.capacity-p.waiting-n, p.waits[c.tenant]
	return left >= 0 && (own == 0 || own+n <= 7*left)
}

func (c *Claim) addWaits(n int64) {
	p := c.pool
	c.waits += n
	p.waiting += n
	if p.waits[c.tenant] += n; p.waits[c.tenant] == 0 {
		delete(p.waits, c.tenant)
	}
}

// await waits until memory was freed, or returns why it will not be: ErrFull after the limit, if
// there is one.
func await(ctx context.Context, freed <-chan struct{}, limited bool, limit time.Duration) error {
	var over <-chan time.Time
	if limited {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-freed:
		return nil
	case <-over:
		return ErrFull
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take claims n bytes if the tenant may have them now. A claim that is refused stays in line.
func (c *Claim) take(n int64) bool {
	p := c.pool
	n = min(n, p.capacity-c.held)
	t := p.join(c)
	var elders int64 // what they may still need
	for _, elder := range t.claims {
		if elder == c {
			break
		}
		elders += max(0, elder.most-elder.held)
	}
	left := p.free - n
	switch {
	case left < 0:
		return false
	case t.held+n+elders <= left-elders: // its share
	case t.claims[0] == c && (left >= p.capacity/8 || p.free+c.held == p.capacity): // the eldest
	default:
		return false
	}
	p.free = left
	t.held += n
	c.held += n
	return true
}

// Move makes the claim one of another tenant, its youngest, with all that it holds. It may be
// called while Grow waits.
func (c *Claim) Move(tenant string) {
	if c == nil {
		return
	}
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	defer c.addWaits(c.waits)
	c.addWaits(-c.waits)
	if !c.listed {
		c.tenant = tenant
		return
	}
	p.tenants[c.tenant].held -= c.held
	c.leave(p.tenants[c.tenant])
	c.tenant = tenant
	t := p.join(c)
	t.held += c.held
}

// join puts the claim at the end of its tenant's line.
func (p *Pool) join(c *Claim) *tenant {
	t := p.tenants[c.tenant]
	if t == nil {
		t = &tenant{}
		p.tenants[c.tenant] = t
	}
	if !c.listed {
		c.listed = true
		t.claims = append(t.claims, c)
	}
	return t
}

// Release gives everything back. The claim can be used again.
func (c *Claim) Release() {
	if c == nil {
		return
	}
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.listed {
		return
	}
	t := p.tenants[c.tenant]
	p.free += c.held
	t.held -= c.held
	c.held = 0
	c.leave(t)
}

// Shrink gives back all but n bytes.
func (c *Claim) Shrink(n int64) {
	if c == nil {
		return
	}
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if extra := c.held - n; extra > 0 {
		p.free += extra
		p.tenants[c.tenant].held -= extra
		c.held = n
		c.most = min(c.most, n)
		p.wake()
	}
}

// Free gives back n bytes. It may be called while Grow waits.
func (c *Claim) Free(n int64) {
	if c == nil || n <= 0 {
		return
	}
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = min(n, c.held); n == 0 {
		return
	}
	p.free += n
	p.tenants[c.tenant].held -= n
	c.held -= n
	if c.grows == 0 {
		c.unlist()
	}
	p.wake()
}

// unlist removes a claim that holds nothing from its tenant's line.
func (c *Claim) unlist() {
	if c.listed && c.held == 0 {
		c.leave(c.pool.tenants[c.tenant])
	}
}

// leave takes the claim out of its tenant's line and lets the others look again.
func (c *Claim) leave(t *tenant) {
	for i, other := range t.claims {
		if other == c {
			t.claims = append(t.claims[:i], t.claims[i+1:]...)
			break
		}
	}
	c.listed = false
	if len(t.claims) == 0 {
		delete(c.pool.tenants, c.tenant)
	}
	c.pool.wake()
}

func (p *Pool) wake() {
	close(p.freed)
	p.freed = make(chan struct{})
}

type claimKey struct{}

// With returns a context whose payloads are counted in the claim.
func With(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// Expect announces what the claim of ctx may grow to, if it has one.
func Expect(ctx context.Context, size int64) {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	c.Expect(size)
}

// Grow counts n bytes of a payload that is about to be read in the claim of ctx, if it has one.
// They are released with the rest of the claim.
func Grow(ctx context.Context, n int64) error {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	return c.Grow(ctx, n)
}
