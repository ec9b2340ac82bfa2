package limits

import (
	"context"
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

// take takes a token, or tells how long it is until there is one.
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

// bucketOf returns the bucket of a key or an address. Where there are too many it drops half of them.
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

// Request asks whether a request of a tenant may be served. The error is a *forebay.Error with CodeRateLimited, which
// tells when there is room again, or why the limits are not known.
func (m *Meter) Request(ctx context.Context, tenantName, key string) error {
	if m == nil || key == "" { // a server without keys serves its own machine only
		return nil
	}
	t, limits, err := m.of(ctx, tenantName)
	if err != nil {
		return err
	}
	perKey, all, now := limits.Of(forebay.LimitKeyRequests), limits.Of(forebay.LimitRequests), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if perKey > 0 {
		b := bucketOf(t.keys, key)
		if wait := b.take(float64(perKey), now); wait > 0 {
			return forebay.RateLimited(forebay.LimitKeyRequests, perKey, wait)
		}
		if all > 0 {
			if wait := t.requests.take(float64(all), now); wait > 0 {
				b.tokens++ // it was not served
				return forebay.RateLimited(forebay.LimitRequests, all, wait)
			}
		}
		return nil
	}
	if all > 0 {
		if wait := t.requests.take(float64(all), now); wait > 0 {
			return forebay.RateLimited(forebay.LimitRequests, all, wait)
		}
	}
	return nil
}

// strangerRate is how many requests a second one address may send without a key that is known.
const strangerRate = 500

// Stranger asks whether a request without a key that is known may be served. The error is a *forebay.Error with
// CodeRateLimited.
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
