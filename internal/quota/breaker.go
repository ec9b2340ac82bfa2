package quota

import (
	"math/bits"

	"github.com/forebayhq/forebay"
)

const (
	outcomeSeconds = 20 // the breaker's window
	breakerCalls   = 10 // fewer calls than this do not open it
	// Jobs at fault can open a breaker too, and then its first pause is all that others notice.
	breakerFirst = 2 * second
	// The first pause of an outage is breakerDoubt: many jobs at fault may just have come at once, and a few probes tell.
	breakerDoubt = second / 2
	// By so many must failures outnumber the others among the latest calls. Where 70 % fail it takes 15 calls, where 30 % do
	// it happens once in 1,000, where 20 % do once in 20,000.
	breakerLead = 6
	latestCalls = 60
	// A breaker stays open for at most breakerSoon while the outage is young, so that a short one costs
	// no more than a few seconds when it is over, and for at most breakerLate when it is not.
	breakerSoon   = 10 * second
	breakerLate   = 30 * second
	breakerYoung  = 5 * minute
	breakerMemory = minute // opening again so soon after closing counts as the same outage
	// Once a call has gone well since the outage began, some jobs may be at fault and not the deployment. Then a failed
	// probe keeps the others away for breakerMixed.
	breakerMixed  = 2 * second
	probesToClose = 3
	// breakerDoubts is how often it may open before the deployment alone is blamed.
	breakerDoubts = 2
	// probesMore is how many more may probe for each probe that went well, while the jobs may be at fault.
	probesMore = 1
	// probesAtOnce is how many probe together then, before any went well.
	probesAtOnce = 3
	// breakerNew is for how long an outage may yet turn out to be many jobs at fault that came at once.
	breakerNew = 10 * second
	// mixedLead takes the place of breakerLead while an outage is new in which some calls went well.
	mixedLead  = 20
	closedWell = 10 * second // so long the probes that closed the breaker count as calls that went well
	// firstChance is for how long only jobs that have not failed yet may probe, while any of them wait.
	firstChance = 2 * second
	// repeatsApart is when another may follow a probe by a job that has failed before, where others went well: such jobs
	// are to end soon.
	repeatsApart = second
	// jobsToBlame is how many jobs at least have to fail for the first time for the deployment alone to be blamed.
	jobsToBlame = 3
	// probeTimeout is when a probe that was not heard of is given up: its process died, or the answer takes so long
	// and has no headers to tell of it before.
	probeTimeout = 10 * second
	// A deployment that turns calls away does so until somebody sees to its key or its account. While that is in doubt,
	// deniedFirst is the time between any two tries: each may be another call that is at fault itself, and others wait.
	deniedFirst   = minute
	deniedLongest = 15 * minute
	// doubtsToOpen is how many calls in a row must be denied where none of them is certain to say anything about others.
	doubtsToOpen = 3
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
	newest   int64      // Seq of the last of the latest calls
	failed   int64      // which of the latestCalls up to it have failed: a bit for each, newest has the lowest
	// silent are those of the latest calls that said nothing about the deployment; while half-open, those probes
	// that have counted as passed.
	silent int64

	denied int64 // Denial for which it is open or half-open; 0: it is for failures, or closed
	// doubts are the calls in a row that were denied and may have been at fault themselves; while denied is set, 1 if the latest
	// that was denied may have been, else 0.
	doubts int64

	until    int64 // when an open breaker lets a probe through
	since    int64 // when the outage began
	openings int64 // of this outage
	closedAt int64

	probe   int64 // Seq of the reservation that probes; 0: none
	probeAt int64
	passed  int64 // probes in a row that went well

	// mixed is when a call went well since the outage began; or when the outage began if only jobs that had failed before
	// brought it about, or calls that failed after others which began later had gone well. 0: none of these.
	mixed   int64
	again   int64 // which of those that failed were of jobs that had failed before; while half-open, the probes
	okAt    int64 // when the latest of the calls that went well began
	freshAt int64 // when a job that has not failed yet was last seen to wait, since the breaker opened; 0: none was

	blamed    int64 // the tenant whose call failed last; 0: none has
	blamedAt  int64 // when the first of its failed calls began, with no 20 seconds between two failures
	blamedNow int64 // when it failed last
	othersAt  int64 // when the latest call of another tenant began that went well; 0: none since another failed
}

// admits says whether a call may go, and whether it is a probe.
func (b *breaker) admits(now int64) (v Verdict, probe bool) {
	switch {
	case b.state == Closed:
		return Verdict{}, false
	case now < b.until:
		return Verdict{Reason: forebay.WaitBreaker, RetryAt: b.until}, false
	case b.waitsForProbes() && now < b.probeAt+probeTimeout:
		return Verdict{Reason: forebay.WaitBreaker, RetryAt: b.probeAt + probeTimeout}, false
	}
	return Verdict{}, true
}

// probing notes that a reservation is the probe.
func (s *State) probing(seq int64) {
	b := &s.breaker
	if b.state == HalfOpen && b.doubted() && b.waitsForProbes() {
		b.failed |= b.again &^ b.silent // they were not heard of for too long
	}
	b.probe, b.probeAt = seq, s.clock
	b.again |= b.place(seq)
	if b.state != HalfOpen {
		b.state = HalfOpen
		b.passed = 0
		s.note(Change{Kind: BreakerHalfOpen})
	}
}

// healthy and failing tell the breaker how a call went.
func (s *State) healthy(r Reservation) {
	b := &s.breaker
	b.okAt = max(b.okAt, r.At)
	if b.blamed != 0 && r.Tenant != 0 && r.Tenant != b.blamed {
		b.othersAt = max(b.othersAt, r.At)
	}
	if b.openings > 0 && r.At > b.since && b.denied == 0 && (b.state != Closed || s.clock-b.closedAt < breakerMemory) {
		b.mixed = s.clock
	}
	if s.endsPause(r) {
		return
	}
	switch {
	case b.state == Closed:
		b.failures, b.doubts = 0, 0
		b.count(s.clock, true)
	case b.state == HalfOpen && r.Probe && (r.Seq == b.probe || r.At >= b.until && (r.Again || b.doubted() || s.clock-r.At >= probeTimeout)):
		// One that was given up for it took so long, and another went after it, was well all the same; but once, though
		// its headers told so before.
		if r.Seq == b.probe {
			b.probe = 0
		}
		if r.Seq > s.seq {
			return // of before this state began anew
		}
		bit := b.place(r.Seq)
		if bit == 0 || b.silent&bit != 0 {
			return
		}
		b.silent |= bit
		b.failed &^= bit
		b.passed++
		s.closeBreaker()
	}
}

// endsPause takes in that a call went well which began before the breaker opened. Where calls had gone well and others had failed before,
// and not long ago, it tells that the jobs are at fault: the pause is over, and it counts as a probe. It reports whether it does.
func (s *State) endsPause(r Reservation) bool {
	b := &s.breaker
	if b.state == Closed || r.Probe || b.denied != 0 || b.mixed == 0 || s.clock-b.since >= breakerNew || r.At < max(b.closedAt, b.since) || r.Seq > s.seq {
		return false
	}
	bit := b.place(r.Seq)
	if bit == 0 || b.silent&bit != 0 {
		return false
	}
	b.silent |= bit
	if b.state == Open {
		b.state, b.until, b.passed = HalfOpen, min(b.until, s.clock), 0
		s.note(Change{Kind: BreakerHalfOpen})
	}
	b.passed++
	s.closeBreaker()
	return true
}

// closeBreaker closes it once enough went well.
func (s *State) closeBreaker() {
	b := &s.breaker
	if b.passed >= probesToClose && b.passed > b.probesFailed() || b.denied != 0 {
		b.state, b.closedAt = Closed, s.clock
		b.outcomes, b.failures, b.failed, b.silent, b.passed, b.denied, b.doubts = b.outcomes[:0], 0, 0, 0, 0, 0, 0
		b.freshAt, b.again = 0, 0
		s.note(Change{Kind: BreakerClosed})
	}
}

func (s *State) failing(r Reservation, rnd Random) {
	b := &s.breaker
	s.blame(r)
	switch b.state {
	case Closed:
		if r.At < b.closedAt {
			return // it tells of what was before
		}
		if r.Again && s.wentWell() {
			s.repeated(r)
			return
		}
		b.failures++
		b.count(s.clock, false)
		var opens bool
		switch late := s.clock-r.At > outcomeSeconds*second; {
		case late:
			opens = b.broken()
		case r.Seq > s.seq || !b.fail(r): // of before this state began anew; or too many others have begun since
			opens = b.mostFailed() && s.clock/second-b.outcomes[0].no >= outcomeSeconds/2 || b.failures >= latestCalls
		default:
			opens = b.turned(s.lead())
		}
		if opens && !s.oneTenant() {
			if s.clock-b.closedAt > breakerMemory || b.openings == 0 {
				b.openings, b.since, b.mixed = 0, s.clock, 0
				if r.Again && b.jobs() < jobsToBlame || b.okAt > r.At { // others that began later went well
					b.mixed = s.clock
				}
			}
			s.openBreaker(rnd)
		}
	case HalfOpen:
		if r.Probe && (r.Again && b.mixed != 0 || s.oneTenant()) {
			s.inconclusive(r) // the job is to blame: others went well since it failed before
			return
		}
		// A probe that had been well at its first token may fail in the end.
		if r.Probe && r.At >= b.until {
			if b.doubted() && r.Seq <= s.seq && b.place(r.Seq) != 0 {
				b.failed |= b.place(r.Seq)
				if r.Seq == b.probe {
					b.probe = 0
				}
				if b.probesFailed() < b.chances() {
					return
				}
			}
			s.openBreaker(rnd)
		}
	}
}

// blame notes whose call failed. What one tenant's calls told ends to count once another's fail too, if the others'
// went well until then: ten more have to fail.
func (s *State) blame(r Reservation) {
	b := &s.breaker
	if r.Tenant == 0 {
		return
	}
	switch {
	case r.Tenant != b.blamed:
		if b.state == Closed && s.oneTenant() {
			b.failures, b.failed, b.silent, b.again = 0, 0, 0, 0
		}
		b.blamed, b.blamedAt, b.othersAt = r.Tenant, r.At, 0
	case s.clock-b.blamedNow > outcomeSeconds*second:
		b.blamedAt = r.At
	}
	b.blamedNow = s.clock
}

// oneTenant reports whether only one tenant's calls fail: another's that began after they had begun to fail, and
// not long ago, went well, and none of another's has failed since. Such failures keep nobody else away.
func (s *State) oneTenant() bool {
	b := &s.breaker
	return b.blamed != 0 && b.othersAt > b.blamedAt && s.clock-b.othersAt < outcomeSeconds*second
}

// turnedAway takes in that a call was denied. What is certain to hold for any call opens the breaker at once, and what is not
// when it happens time after time and nothing goes well in between.
func (s *State) turnedAway(r Reservation, o Outcome, rnd Random) {
	b := &s.breaker
	switch {
	case b.state == Open, b.state == Closed && r.At < b.closedAt,
		b.state == HalfOpen && (!r.Probe || r.At < b.until || b.denied != 0 && r.Seq != b.probe):
		return // it tells of what was before
	case !o.Certain && b.denied == 0:
		if b.doubts++; b.doubts < doubtsToOpen {
			s.inconclusive(r)
			return
		}
	}
	if b.denied == 0 || o.Certain && b.doubts != 0 {
		b.openings, b.since, b.mixed = 0, s.clock, 0
	}
	b.denied, b.doubts = int64(o.Denial), 1
	if o.Certain {
		b.doubts = 0
	}
	s.openBreaker(rnd)
}

// Blames reports whether a call that was denied, and may have been at fault itself, is taken to be: not while calls are kept
// away, nor if it began before they last were. What failed then may have turned it away as it would any other.
func (s *State) Blames(r Reservation) bool {
	return s.breaker.state == Closed && r.At >= s.breaker.closedAt
}

// Denied is why the deployment turns calls away, as far as is known.
func (s *State) Denied() Denial { return Denial(s.breaker.denied) }

// Retry has the next call find out whether a deployment that turned calls away still does, and not only when it is time. If so, the
// times between tries grow anew.
func (s *State) Retry(now int64) {
	if b := &s.breaker; b.denied != 0 {
		b.state, b.until, b.probe, b.openings = Open, min(b.until, now), 0, 0
	}
}

// inconclusive takes in that a call said nothing about health: the probe's place is free, and it counts for nothing.
func (s *State) inconclusive(r Reservation) {
	b := &s.breaker
	if r.Probe && r.Seq == b.probe {
		b.probe = 0
	}
	switch {
	case r.Seq > s.seq:
	case b.state == HalfOpen && r.Probe:
		b.again &^= b.place(r.Seq)
	case b.failed != 0:
		b.silent |= b.place(r.Seq)
	}
}

func (s *State) openBreaker(rnd Random) {
	b := &s.breaker
	d, growth, longest := float64(breakerFirst), 1.5, float64(breakerSoon)
	switch {
	case b.denied != 0 && b.doubts != 0:
		d, growth = deniedFirst, 1
		longest = d
	case b.denied != 0:
		d, growth, longest = deniedFirst, 2, deniedLongest
	case b.mixed != 0 && s.clock-b.since < breakerNew:
		d, growth, longest = breakerDoubt, 2, breakerMixed
	case b.mixed != 0 && s.clock-b.mixed < breakerMemory:
		d, growth, longest = breakerMixed, 1, breakerMixed
	case s.clock-b.since > breakerYoung:
		longest = breakerLate
	}
	for range min(b.openings, 16) {
		d *= growth
	}
	if b.openings <= 1 && b.denied == 0 && b.mixed == 0 {
		d = breakerDoubt * float64(1+b.openings)
	}
	d = min(d, longest) * (0.8 + 0.4*rnd())
	b.state, b.until, b.probe, b.passed = Open, s.clock+int64(d), 0, 0
	b.openings = min(b.openings+1, 1<<20)
	b.outcomes = b.outcomes[:0]
	b.failures, b.failed, b.silent, b.again = 0, 0, 0, 0
	if b.denied == 0 {
		b.doubts = 0
	}
	s.note(Change{Kind: BreakerOpened, Until: b.until, Denial: s.Denied()})
}

// doubted reports whether the jobs may be at fault and not the deployment, so that one answer says little: several probe then. It stays
// so until the breaker opens anew, or closes.
func (b *breaker) doubted() bool {
	return b.denied == 0 && b.doubts == 0 && b.until-b.since < breakerNew && b.openings <= breakerDoubts
}

// chances is how many probes may fail, or not be heard of, while the jobs may be at fault. Each that goes well makes room for more, so
// that many calls are soon under way where only some jobs fail, and few are where all do.
func (b *breaker) chances() int64 { return probesAtOnce + probesMore*b.passed }

// waitsForProbes reports whether enough probes are under way.
func (b *breaker) waitsForProbes() bool {
	if b.doubted() {
		return int64(b.underWay())+b.probesFailed() >= b.chances()
	}
	return b.probe != 0 && b.underWay() > 0
}

// underWay is how many probes have not been heard of, while half-open.
func (b *breaker) underWay() int { return bits.OnesCount64(uint64(b.again &^ b.failed &^ b.silent)) }

// probesFailed is how many probes have failed, while half-open.
func (b *breaker) probesFailed() int64 { return int64(bits.OnesCount64(uint64(b.failed))) }
