package limits

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// bucket is a token bucket. The zero bucket is full.
type bucket struct {
	tokens float64
	at     time.Time
}

// burstSeconds is how many seconds' worth of requests may come at once.
const burstSeconds = 2

// take takes a token, or returns how long it is until there is one.
func (b *bucket) take(rate float64, now time.Time) (wait time.Duration) {
	b.fill(rate, now)
	if b.tokens < 1 {
		return max(time.Millisecond, time.Duration((1-b.tokens)/rate*float64(time.Second)))
	}
	b.tokens--
	return 0
}

func (b *bucket) fill(rate float64, now time.Time) {
	most := max(1, burstSeconds*rate)
	if b.at.IsZero() {
		b.tokens = most
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens += passed.Seconds() * rate
	}
	b.tokens, b.at = min(b.tokens, most), now
}

// maxBuckets bounds the keys of a tenant, and the addresses, whose requests are remembered.
const maxBuckets = 10_000

// bucketOf returns the bucket of a key or an address. If there are too many it drops half of
// them.
func bucketOf(of map[string]*bucket, name string) *bucket {
	b := of[name]
	if b == nil {
		if len(of) >= maxBuckets {
			for other := range of {
				if delete(of, other); len(of) <= maxBuckets/2 {
					break
				}
			}
		}
		b = &bucket{}
		of[name] = b
	}
	return b
}

// Request asks whether a tenant's request may be served. The error is a *forebay.Error with
// CodeRateLimited that says when to try again, or why the limits are unknown.
func (m *Meter) Request(ctx context.Context, tenantName, key string) error {
	if m == nil || key == "" { // a server without keys serves its own machine only
		return nil
	}
	t, limits, err := m.of(ctx, tenantName)
	if err != nil {
		return err
	}
	perKey, all := limits.Of(forebay.LimitKeyRequests), limits.Of(forebay.LimitRequests)
	if perKey == 0 && all == 0 {
		return nil
	}
	processes, now := m.processes(ctx), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var ofKey *bucket
	if perKey > 0 {
		ofKey = bucketOf(t.keys, key)
		if wait := ofKey.take(float64(perKey)/float64(processes), now); wait > 0 {
			return forebay.RateLimited(forebay.LimitKeyRequests, perKey, processes, wait)
		}
	}
	if all > 0 {
		if wait := t.requests.take(float64(all)/float64(processes), now); wait > 0 {
			if ofKey != nil {
				ofKey.tokens++ // the request is not served
			}
			return forebay.RateLimited(forebay.LimitRequests, all, processes, wait)
		}
	}
	return nil
}

// answering is what is known of how many processes answer requests.
type answering struct {
	mu      sync.Mutex
	n       int64     // 0: not read yet
	read    time.Time // when the latest read began
	reading bool
}

// processes returns how many processes share a rate. Only the first request waits for that.
func (m *Meter) processes(ctx context.Context) int64 {
	if !m.source.Shared() {
		return 1
	}
	a := &m.answering
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.n == 0 && time.Since(a.read) >= limitsFor:
		a.read = time.Now()
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if n, err := m.source.CountServers(limited); err == nil {
			a.n = n
		}
	case time.Since(a.read) >= limitsFor && !a.reading:
		a.read = time.Now()
		a.reading = m.background(func() {
			n, err := m.source.CountServers(m.ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.reading = false; err == nil {
				a.n = n
			}
		})
	}
	return max(a.n, 1)
}

// strangerRate is how many requests a second one address may send without a valid key.
const strangerRate = 500

// Stranger asks whether a request without a valid key may be served. The error is a
// *forebay.Error with CodeRateLimited.
func (m *Meter) Stranger(address string) error {
	if m == nil {
		return nil
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if wait := bucketOf(m.addresses, address).take(strangerRate, now); wait > 0 {
		e := forebay.Errorf(forebay.CodeRateLimited, "more than %d requests a second came from this address without a key; send fewer, or an API key", strangerRate)
		e.RetryAfter = wait
		return e
	}
	return nil
}
