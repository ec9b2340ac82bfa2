package webhook

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A breaker opens after so many failures in a row, and then lets one delivery through after
// breakerFirst, twice as long after each that fails as well, up to breakerLongest.
const (
	breakerFailures = 5
	breakerFirst    = 15 * time.Second
	breakerLongest  = 10 * time.Minute
)

// breaker holds deliveries to an endpoint back while it fails.
type breaker struct {
	mu       sync.Mutex
	failures int           // in a row
	openings int           // in a row
	until    time.Time     // nothing may be sent before
	probing  bool          // half-open, and one delivery is finding out
	changed  chan struct{} // closed at the next change; nil: nobody waits for it
}

// permit allows its holder to receive and send one message.
type permit struct{ probe bool }

// enter waits until a message may be sent. The permit must be given back with leave.
func (b *breaker) enter(ctx context.Context) (permit, error) {
	for {
		p, ok, wait, changed := b.tryEnter()
		if ok {
			return p, ctx.Err()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return permit{}, err
		}
	}
}

func (b *breaker) tryEnter() (p permit, ok bool, wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = time.Until(b.until)
	switch {
	case wait > 0:
	case b.failures < breakerFailures:
		return permit{}, true, 0, nil
	case !b.probing:
		b.probing = true
		return permit{probe: true}, true, 0, nil
	default:
		wait = breakerLongest // the probe tells
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return permit{}, false, wait, b.changed
}

// valid reports whether a message may still be sent: waiting for one can take long.
func (b *breaker) valid(p permit) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.probe || b.failures < breakerFailures && time.Until(b.until) <= 0
}

// verdict is what a permit was used for.
type verdict int

const (
	notSent verdict = iota
	sendFailed
	sendWorked
)

// leave ends a permit. hold is how long the endpoint wants to be left alone.
func (b *breaker) leave(p permit, v verdict, hold time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
	}
	switch v {
	case sendWorked:
		b.failures, b.openings, b.until = 0, 0, time.Time{}
	case sendFailed:
		b.failures++
		if p.probe || b.failures == breakerFailures {
			b.openings++
			b.holdFor(pause(b.openings))
		}
	}
	b.holdFor(min(hold, breakerLongest))
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// reset forgets everything: the endpoint is another one now.
func (b *breaker) reset() {
	b.mu.Lock()
	b.failures, b.openings, b.until = 0, 0, time.Time{}
	b.mu.Unlock()
	b.leave(permit{}, notSent, 0)
}

func (b *breaker) holdFor(d time.Duration) {
	if until := time.Now().Add(d); d > 0 && until.After(b.until) {
		b.until = until
	}
}

// pause is how long the breaker stays open, up to a tenth longer.
func pause(openings int) time.Duration {
	d := min(breakerFirst<<min(openings-1, 10), breakerLongest)
	return d + time.Duration(rand.Int64N(int64(d)/10))
}
