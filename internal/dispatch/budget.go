package dispatch

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

// take takes up to n whole tokens; when there is not one, it says how long until there is.
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

// budget bounds retries that fail to a share of all calls, so that an outage cannot multiply load: a
// retry costs a token, and each call outside the retry lane earns the share. A success earns tokens
// back, so that a backlog of retries drains at full speed once the model has recovered. A trickle
// keeps probing when there is no other traffic. (The idea is gRPC's retry throttling, proposal A6,
// and Finagle's RetryBudget.)
type budget struct {
	bucket
	perCall float64
}

const (
	trickle   = 1.0 // retries a second that are always allowed
	onSuccess = 2.0 // tokens that a success earns
)

// newBudget allows failing retries to be the given share of all calls, 0 to below 1.
func newBudget(share float64, concurrency int) *budget {
	capacity := 10 + 2*float64(concurrency)
	return &budget{
		bucket:  bucket{tokens: capacity, capacity: capacity, rate: trickle},
		perCall: share / (1 - share), // r of m+r calls is the share when r = m·share/(1−share)
	}
}

// called notes a failed call outside the retry lane.
func (b *budget) called() { b.give(b.perCall) }

// succeeded notes a call that went well.
func (b *budget) succeeded(retry bool) {
	if retry {
		b.give(onSuccess)
		return
	}
	b.give(b.perCall)
}

// pace is how many retries a second the budget allows while it is used up; 0: it is not.
func (b *budget) pace(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens+b.rate*now.Sub(b.filled).Seconds() >= 1 || b.filled.IsZero() {
		return 0
	}
	return b.rate
}
