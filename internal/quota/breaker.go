package quota

import (
	"time"

	"github.com/forebayhq/forebay"
)

const (
	outcomeSeconds = 20 // the breaker's window
	breakerCalls   = 10 // fewer calls than this do not open it
	breakerFirst   = 5 * second
	// A breaker stays open for at most breakerSoon while the outage is young, so that a short one costs
	// no more than a few seconds when it is over, and for at most breakerLate when it is not.
	breakerSoon   = 10 * second
	breakerLate   = 30 * second
	breakerYoung  = 5 * minute
	breakerMemory = minute // opening again so soon after closing counts as the same outage
	probesToClose = 3
	// probeTimeout is when a probe that was not heard of is given up: its process died. A process that
	// lives hears a first token or gives the call up before that.
	probeTimeout = minute
)

// BreakerState is the state of a circuit breaker.
type BreakerState uint8

const (
	Closed BreakerState = iota
	Open
	HalfOpen
)

func (b BreakerState) String() string { return [...]string{"closed", "open", "half-open"}[b%3] }

// breaker keeps calls away from a deployment that fails.
type breaker struct {
	state    BreakerState
	outcomes []outcomes // of the last 20 seconds while closed, oldest first
	failures int64      // in a row while closed, however slowly they came

	until    int64 // when an open breaker lets a probe through
	since    int64 // when the outage began
	openings int64 // of this outage
	closedAt int64

	probe   int64 // Seq of the reservation that probes; 0: none
	probeAt int64
	passed  int64 // probes in a row that went well
}

type outcomes struct{ no, ok, failed int64 } // of one second

// admits says whether a call may go, and whether it is a probe.
func (b *breaker) admits(now int64) (v Verdict, probe bool) {
	switch {
	case b.state == Closed:
		return Verdict{}, false
	case now < b.until:
		return Verdict{Reason: forebay.WaitBreaker, RetryAt: b.until}, false
	case b.probe != 0 && now < b.probeAt+probeTimeout:
		return Verdict{Reason: forebay.WaitBreaker, RetryAt: b.probeAt + probeTimeout}, false
	}
	return Verdict{}, true
}

// probing notes that a reservation is the probe.
func (s *State) probing(seq int64) {
	b := &s.breaker
	b.probe, b.probeAt = seq, s.clock
	if b.state != HalfOpen {
		b.state = HalfOpen
		b.passed = 0
		s.note(Change{Kind: BreakerHalfOpen})
	}
}

// healthy and failing tell the breaker how a call went.
func (s *State) healthy(r Reservation) {
	b := &s.breaker
	switch {
	case b.state == Closed:
		b.failures = 0
		b.count(s.clock, true)
	case b.state == HalfOpen && r.Probe && r.Seq == b.probe:
		b.probe = 0
		if b.passed++; b.passed >= probesToClose {
			b.state, b.closedAt = Closed, s.clock
			b.outcomes, b.failures, b.passed = b.outcomes[:0], 0, 0
			s.note(Change{Kind: BreakerClosed})
		}
	}
}

func (s *State) failing(r Reservation, rnd Random) {
	b := &s.breaker
	switch b.state {
	case Closed:
		b.failures++
		b.count(s.clock, false)
		if b.broken() {
			if s.clock-b.closedAt > breakerMemory || b.openings == 0 {
				b.openings, b.since = 0, s.clock
			}
			s.openBreaker(rnd)
		}
	case HalfOpen:
		// A probe that had been well at its first token may fail in the end.
		if r.Probe && r.At >= b.until {
			s.openBreaker(rnd)
		}
	}
}

// inconclusive frees the probe's place when its call said nothing about health.
func (s *State) inconclusive(r Reservation) {
	if r.Probe && r.Seq == s.breaker.probe {
		s.breaker.probe = 0
	}
}

func (s *State) openBreaker(rnd Random) {
	b := &s.breaker
	longest := float64(breakerSoon)
	if s.clock-b.since > breakerYoung {
		longest = breakerLate
	}
	d := float64(breakerFirst)
	for range min(b.openings, 16) {
		d *= 1.5
	}
	d = min(d, longest) * (0.8 + 0.4*rnd())
	b.state, b.until, b.probe, b.passed = Open, s.clock+int64(d), 0, 0
	b.openings = min(b.openings+1, 1<<20)
	b.outcomes = b.outcomes[:0]
	b.failures = 0
	s.note(Change{Kind: BreakerOpened, Until: b.until})
}

func (b *breaker) count(now int64, ok bool) {
	no := now / second
	n := 0
	for n < len(b.outcomes) && b.outcomes[n].no <= no-outcomeSeconds {
		n++
	}
	b.outcomes = b.outcomes[:copy(b.outcomes, b.outcomes[n:])]
	if n := len(b.outcomes); n == 0 || b.outcomes[n-1].no < no {
		b.outcomes = append(b.outcomes, outcomes{no: no})
	}
	last := &b.outcomes[len(b.outcomes)-1]
	if ok {
		last.ok++
	} else {
		last.failed++
	}
}

// broken is a window of at least ten calls of which less than half went well, or ten failures in a row
// where calls are too rare for a window to hold ten.
func (b *breaker) broken() bool {
	var ok, failed int64
	for _, o := range b.outcomes {
		ok += o.ok
		failed += o.failed
	}
	return ok+failed >= breakerCalls && ok < failed || b.failures >= breakerCalls
}

// RetryDelay is how long a job whose call failed waits before it is tried again: U(0, min(60 s, 2·2ⁿ s))
// after n failures, so that the jobs of one outage do not come back together.
func RetryDelay(failures int, rnd Random) time.Duration {
	longest := time.Minute
	if failures < 5 {
		longest = min(longest, 2*time.Second<<max(failures, 0))
	}
	return time.Duration(rnd() * float64(longest))
}
