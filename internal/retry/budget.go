package retry

import (
	"sync"
	"time"
)

// bucket is a token bucket.
type bucket struct {
	mu       sync.Mutex
	tokens   float64
	capacity float64
	rate     float64 // tokens a second
	filled   time.Time
}

func newBucket(capacity, rate float64) *bucket {
	return &bucket{tokens: capacity, capacity: capacity, rate: rate}
}

// take takes up to n whole tokens. If there is none, it returns how long it is until there is
// one.
func (b *bucket) take(now time.Time, n int) (taken int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.filled.IsZero() {
		b.tokens = min(b.capacity, b.tokens+b.rate*now.Sub(b.filled).Seconds())
	}
	b.filled = now
	taken = min(n, int(b.tokens))
	if taken <= 0 {
		return 0, max(time.Millisecond, time.Duration((1-b.tokens)/b.rate*float64(time.Second)))
	}
	b.tokens -= float64(taken)
	return taken, 0
}

func (b *bucket) give(tokens float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.capacity, b.tokens+tokens)
}

// Budget bounds what starts in a queue's retry lane. It limits retries that fail to a share of
// all calls, so that an outage cannot multiply load, and all retries to the lane's rate. A retry
// costs a token, and each call outside the retry lane earns the share. A success earns tokens
// back, so that a backlog of retries drains at full speed once the model has recovered. Without
// other traffic a trickle of retries keeps probing. The idea is that of gRPC's retry throttling,
// proposal A6, and Finagle's RetryBudget. It is safe for concurrent use.
type Budget struct {
	stock   *bucket
	rate    *bucket // starts a second; nil: no limit
	perCall float64
}

const (
	trickle   = 1.0 // retries a second that are always allowed
	onSuccess = 2.0 // tokens that a success earns
)

// NewBudget returns the budget of a queue in one process. The policy's share is at least 0 and
// below 1.
func NewBudget(p Policy) *Budget {
	b := &Budget{
		stock:   newBucket(10+2*float64(p.Concurrency), trickle),
		perCall: p.Budget / (1 - p.Budget), // r of m+r calls is the share when r = m·share/(1−share)
	}
	if p.Rate > 0 {
		b.rate = newBucket(max(1, p.Rate), p.Rate)
	}
	return b
}

// Take takes up to n starts in the retry lane. If there is none, it returns how long until there
// may be one.
func (b *Budget) Take(now time.Time, n int) (taken int, wait time.Duration) {
	taken, wait = b.stock.take(now, n)
	if taken > 0 && b.rate != nil {
		granted, later := b.rate.take(now, taken)
		b.stock.give(float64(taken - granted))
		return granted, later
	}
	return taken, wait
}

// Refund gives back starts that found nothing to call.
func (b *Budget) Refund(n int) {
	b.stock.give(float64(n))
	if b.rate != nil {
		b.rate.give(float64(n))
	}
}

// Ended records the end of a call, whether it was in the retry lane and whether it succeeded.
func (b *Budget) Ended(retry, ok bool) {
	switch {
	case !retry:
		b.stock.give(b.perCall)
	case ok:
		b.stock.give(onSuccess)
	}
}

// Pace is how many retries a second a budget without tokens allows; 0 while it has some.
func (b *Budget) Pace(now time.Time) float64 {
	b.stock.mu.Lock()
	defer b.stock.mu.Unlock()
	if b.stock.tokens+b.stock.rate*now.Sub(b.stock.filled).Seconds() >= 1 || b.stock.filled.IsZero() {
		return 0
	}
	return b.stock.rate
}
