package postgres

import "time"

// latency is how long it takes to the server and back, without what the server does meanwhile. It
// is the least of some recent round trips: a machine that is busy delays single ones.
type latency struct {
	least, before time.Duration // of the round trips since a window began, and of the window before
	seen          int           // round trips since it began
}

// latencyWindow is how many round trips a window has.
const latencyWindow = 4

// note takes in how long the way of a round trip took.
func (l *latency) note(took time.Duration) {
	if took = max(took, 0); l.seen == latencyWindow {
		l.before, l.seen = l.least, 0
	}
	if l.seen++; l.seen == 1 || took < l.least {
		l.least = took
	}
	if l.before == 0 {
		l.before = took
	}
}

// Latency is how long a round trip takes at least, about; 0: it is not known.
func (l *latency) Latency() time.Duration { return min(l.least, l.before) }
