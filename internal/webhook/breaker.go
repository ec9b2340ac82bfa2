package webhook

import (
	"math/rand/v2"
	"time"
)

// A breaker opens after so many failures in a row, and then lets one delivery at a time through after
// breakerFirst, twice as long after each that fails as well, up to breakerLongest.
const (
	breakerFailures = 5
	breakerFirst    = 15 * time.Second
	breakerLongest  = 10 * time.Minute
)

// breaker keeps deliveries from an endpoint while it fails. It stands in the webhook's row: what it
// says holds in all processes, and its times are the database's.
type breaker struct {
	failures int64 // in a row
	openings int64 // in a row
	until    int64 // nothing is sent before; 0: that has passed
}

// open reports whether only one delivery at a time may be sent, which is the probe.
func (b *breaker) open() bool { return b.failures >= breakerFailures }

// note takes in how a delivery ended. One that began before the breaker opened tells nothing any more of
// whether the endpoint works, but is asked how long to leave it alone.
func (b *breaker) note(o WebhookOutcome, probe bool, now int64) {
	switch late := b.open() && !probe; {
	case late:
	case o.Delivered:
		*b = breaker{until: b.until} // what another one was asked for meanwhile holds
	default:
		if b.failures++; b.open() {
			b.openings++
			b.hold(pause(b.openings), now)
		}
	}
	b.hold(min(o.Hold, breakerLongest), now)
	if b.until <= now {
		b.until = 0
	}
}

func (b *breaker) hold(d time.Duration, now int64) {
	if d > 0 {
		b.until = max(b.until, now+d.Milliseconds())
	}
}

// pause is how long the breaker stays open, up to a tenth longer.
func pause(openings int64) time.Duration {
	d := min(breakerFirst<<min(openings-1, 10), breakerLongest)
	return d + time.Duration(rand.Int64N(int64(d)/10))
}
