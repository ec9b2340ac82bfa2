package webhook

import (
	"math/rand/v2"
	"time"
)

// A breaker opens after breakerFailures failures in a row. It then lets one delivery at a time
// through, as a probe. The first probe comes after breakerFirst, and each later one after twice
// the former pause, up to breakerLongest.
const (
	breakerFailures = 5
	breakerFirst    = 15 * time.Second
	breakerLongest  = 10 * time.Minute
)

// breaker keeps deliveries from an endpoint while it fails. It is stored in the webhook's row, so
// it holds for all processes, and its times are the database's.
type breaker struct {
	failures int64 // in a row
	openings int64 // in a row
	until    int64 // nothing is sent before; 0: the time has passed
}

// open reports whether only one delivery at a time may be sent, the probe.
func (b *breaker) open() bool { return b.failures >= breakerFailures }

// note records how a delivery ended. A delivery that began before the breaker opened says nothing
// about the endpoint now, except how long it wants to be left alone.
func (b *breaker) note(o WebhookOutcome, probe bool, now int64) {
	switch late := b.open() && !probe; {
	case late:
	case o.Delivered:
		*b = breaker{until: b.until} // what another delivery was asked for meanwhile holds
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

// pause is how long the breaker stays open. It varies by a tenth.
func pause(openings int64) time.Duration {
	d := min(breakerFirst<<min(openings-1, 10), breakerLongest)
	return d + time.Duration(rand.Int64N(int64(d)/10))
}
