package quota

import "github.com/forebayhq/forebay"

const (
	// breakerFirst is the first pause after breakerDoubts. Jobs at fault can open a breaker too, and
	// then its first pause is all that others notice.
	breakerFirst = 2 * second
	// breakerDoubt is the first pause of an outage. Many jobs at fault may just have come at once,
	// and a few probes tell.
	breakerDoubt = second / 2
	// breakerLead is by how many failures must outnumber the others among the latest calls. Where
	// 70 % fail it takes 15 calls. Where 30 % do it happens once in 1,000, where 20 % do once in
	// 20,000.
	breakerLead = 6
	// breakerSoon is the longest pause while the outage is young: a short outage then costs no more
	// than a few seconds when it is over. breakerLate is the longest one later.
	breakerSoon   = 10 * second
	breakerLate   = 30 * second
	breakerYoung  = 5 * minute
	breakerMemory = minute // opening again so soon after closing counts as the same outage
	// breakerMixed is the pause after a failed probe once a call has gone well since the outage
	// began. Then some jobs may be at fault and not the deployment.
	breakerMixed  = 2 * second
	probesToClose = 3
	// breakerDoubts is how often it may open before the deployment alone is blamed.
	breakerDoubts = 2
	// probesMore is how many more may probe for each probe that went well, while the jobs may be at
	// fault.
	probesMore = 1
	// probesAtOnce is how many probe together then, before any went well.
	probesAtOnce = 3
	// breakerNew is for how long an outage may yet turn out to be many jobs at fault that came at
	// once.
	breakerNew = 10 * second
	// mixedLead takes the place of breakerLead while an outage is new in which some calls went well.
	mixedLead = 20
	// closedWell is for how long the probes that closed the breaker count as calls that went well.
	closedWell = 10 * second
	// firstChance is for how long only jobs that have not failed yet may probe, while any of them
	// wait.
	firstChance = 2 * second
	// repeatsApart is when another may follow a probe by a job that has failed before, where others
	// went well: such jobs are to end soon.
	repeatsApart = second
	// jobsToBlame is how many jobs at least have to fail for the first time for the deployment alone
	// to be blamed.
	jobsToBlame = 3
	// probeTimeout is when a probe that was not heard of is given up. Its process died, or the answer
	// takes so long and has no headers to tell of it before.
	probeTimeout = 10 * second
	// deniedFirst is the time between tries where a deployment turns calls away. It does so until
	// somebody sees to its key or its account. While that is in doubt the time does not grow: each
	// try may be a call that is at fault itself, and others wait.
	deniedFirst   = minute
	deniedLongest = 15 * minute
	// doubtsToOpen is how many calls in a row must be denied where none of them is certain to say
	// anything about others.
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
	outcomes outcomeWindow // while closed
	failures int64         // in a row while closed, however slowly they came
	recent   recentCalls
	blame    blame
	doubter  doubter

	denied int64 // Denial for which it is open or half-open; 0: it is for failures, or closed
	// doubts are the calls in a row that were denied and may have been at fault themselves. While
	// denied is set it is 1 if that holds for the latest that was denied, else 0.
	doubts int64

	until    int64 // when an open breaker lets a probe through
	since    int64 // when the outage began
	openings int64 // of this outage
	closedAt int64

	probe   int64 // Seq of the reservation that probes; 0: none
	probeAt int64
	passed  int64 // probes in a row that went well

	// mixed is when a call went well since the outage began. It is when the outage began if only
	// jobs that had failed before brought it about. The same holds for calls that failed after others
	// which began later had gone well. 0: none of these.
	mixed int64
	okAt  int64 // when the latest of the calls that went well began
	// freshAt is when a job that has not failed yet was last seen to wait, since the breaker
	// opened. 0: none was.
	freshAt int64
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
func (b *breaker) probing(t *timeline, seq int64) {
	if b.state == HalfOpen && b.doubted() && b.waitsForProbes() {
		b.recent.failed |= b.recent.again &^ b.recent.silent // they were not heard of for too long
	}
	b.probe, b.probeAt = seq, t.clock
	bit := b.recent.place(seq)
	b.recent.again |= bit
	if b.state != HalfOpen {
		b.state = HalfOpen
		b.passed = 0
		t.note(Change{Kind: BreakerHalfOpen})
	}
}

// repeats notes that the probe is by a job that has failed before. Where others went well, another
// may follow soon.
func (b *breaker) repeats() {
	if b.mixed != 0 {
		b.probeAt -= probeTimeout - repeatsApart
	}
}

// fresh notes that a job waits which has not failed yet, while the breaker is not closed.
func (b *breaker) fresh(now int64) {
	if b.state != Closed {
		b.freshAt = now
	}
}

// healthy takes in that a call went well.
func (b *breaker) healthy(t *timeline, r Reservation) {
	b.okAt = max(b.okAt, r.At)
	b.blame.wentWell(r)
	b.doubter.wentWell(t.clock, r)
	if b.openings > 0 && r.At > b.since && b.denied == 0 && (b.state != Closed || t.clock-b.closedAt < breakerMemory) {
		b.mixed = t.clock
	}
	if b.endsPause(t, r) {
		return
	}
	switch {
	case b.state == Closed:
		b.failures, b.doubts = 0, 0
		b.outcomes.count(t.clock, true)
	case b.state == HalfOpen && r.Probe && (r.Seq == b.probe || r.At >= b.until && (r.Again || b.doubted() || t.clock-r.At >= probeTimeout)):
		// A probe may have been given up because it took long, and another went after it. It went
		// well all the same. It counts once, though its headers told so before.
		if r.Seq == b.probe {
			b.probe = 0
		}
		if r.Seq <= t.seq && b.passes(r) { // else it is of before this state began anew
			b.closeIfWell(t)
		}
	}
}

// endsPause takes in that a call went well which began before the breaker opened. Calls may have
// gone well and others failed just before that. Then the jobs are at fault: the pause is over,
// and the call counts as a probe. It reports whether it does.
func (b *breaker) endsPause(t *timeline, r Reservation) bool {
	if b.state == Closed || r.Probe || b.denied != 0 || b.mixed == 0 || t.clock-b.since >= breakerNew || r.At < max(b.closedAt, b.since) || r.Seq > t.seq {
		return false
	}
	bit := b.recent.place(r.Seq)
	if bit == 0 || b.recent.silent&bit != 0 {
		return false
	}
	b.recent.silent |= bit
	if b.state == Open {
		b.state, b.until, b.passed = HalfOpen, min(b.until, t.clock), 0
		t.note(Change{Kind: BreakerHalfOpen})
	}
	b.passed++
	b.closeIfWell(t)
	return true
}

// passes counts a probe that went well, but once. It reports whether it did.
func (b *breaker) passes(r Reservation) bool {
	bit := b.recent.place(r.Seq)
	if bit == 0 || b.recent.silent&bit != 0 {
		return false
	}
	b.recent.silent |= bit
	b.recent.failed &^= bit
	b.passed++
	return true
}

// closeIfWell closes the breaker once enough went well.
func (b *breaker) closeIfWell(t *timeline) {
	if b.passed >= probesToClose && b.passed > b.recent.probesFailed() || b.denied != 0 {
		b.state, b.closedAt = Closed, t.clock
		b.outcomes, b.failures, b.passed, b.denied, b.doubts, b.freshAt = b.outcomes[:0], 0, 0, 0, 0, 0
		b.recent.clear()
		t.note(Change{Kind: BreakerClosed})
	}
}

// failing takes in that a call failed.
func (b *breaker) failing(t *timeline, r Reservation, rnd Random) {
	b.blames(t.clock, r)
	switch b.state {
	case Closed:
		b.failsClosed(t, r, rnd)
	case HalfOpen:
		if r.Probe {
			b.failsProbe(t, r, rnd)
		}
	}
}

// failsClosed takes in that a call failed while the breaker is closed.
func (b *breaker) failsClosed(t *timeline, r Reservation, rnd Random) {
	if r.At < b.closedAt {
		return // it tells of what was before
	}
	if r.Again && b.wentWell(t.clock) {
		if r.Seq <= t.seq {
			b.recent.repeated(r)
		}
		return
	}
	b.failures++
	b.outcomes.count(t.clock, false)
	var opens bool
	switch late := t.clock-r.At > outcomeSeconds*second; {
	case late: // as timeouts are; calls may be too rare for the window to hold ten
		opens = b.outcomes.mostFailed() || b.failures >= breakerCalls
	case r.Seq > t.seq || !b.recent.fail(r):
		// It is of before this state began anew, or too many others have begun since.
		opens = b.outcomes.mostFailed() && t.clock/second-b.outcomes[0].no >= outcomeSeconds/2 || b.failures >= latestCalls
	default:
		most, _ := b.recent.leads()
		opens = most >= b.lead(t.clock)
	}
	if !opens || b.blame.oneTenant(t.clock) {
		return
	}
	if t.clock-b.closedAt > breakerMemory || b.openings == 0 {
		b.openings, b.since, b.mixed = 0, t.clock, 0
		laterWentWell := b.okAt > r.At
		if r.Again && b.recent.jobs() < jobsToBlame || laterWentWell {
			b.mixed = t.clock
		}
	}
	b.open(t, rnd)
}

// failsProbe takes in that a probe failed.
func (b *breaker) failsProbe(t *timeline, r Reservation, rnd Random) {
	if r.Again && b.mixed != 0 || b.blame.oneTenant(t.clock) {
		b.inconclusive(t, r) // the job is to blame: others went well since it failed before
		return
	}
	// A probe that had been well at its first token may fail in the end.
	if r.At < b.until {
		return
	}
	if b.doubted() && r.Seq <= t.seq && b.recent.place(r.Seq) != 0 {
		b.recent.failed |= b.recent.place(r.Seq)
		if r.Seq == b.probe {
			b.probe = 0
		}
		if b.recent.probesFailed() < b.chances() {
			return
		}
	}
	b.open(t, rnd)
}

// blames notes whose call failed. What one tenant's calls told may have been its own fault, as
// long as the others' went well. That ends to count once another's fail too: ten more have to
// fail.
func (b *breaker) blames(now int64, r Reservation) {
	if r.Tenant == 0 {
		return
	}
	if r.Tenant != b.blame.tenant && b.state == Closed && b.blame.oneTenant(now) {
		b.failures = 0
		b.recent.clear()
	}
	b.blame.failed(now, r)
}

// turnedAway takes in that a call was denied. What is certain to hold for any call opens the
// breaker at once. What is not does so when it happens time after time and nothing goes well in
// between.
func (b *breaker) turnedAway(t *timeline, r Reservation, o Outcome, rnd Random) {
	switch {
	case b.state == Open, b.state == Closed && r.At < b.closedAt,
		b.state == HalfOpen && (!r.Probe || r.At < b.until || b.denied != 0 && r.Seq != b.probe):
		return // it tells of what was before
	case o.Certain:
		b.doubter = doubter{}
	default:
		b.doubter.denied(t.clock, r)
	}
	if !o.Certain && b.denied == 0 {
		if b.doubts++; b.doubts < doubtsToOpen {
			b.inconclusive(t, r)
			return
		}
	}
	if b.denied == 0 || o.Certain && b.doubts != 0 {
		b.openings, b.since, b.mixed = 0, t.clock, 0
	}
	b.denied, b.doubts = int64(o.Denial), 1
	if o.Certain {
		b.doubts = 0
	}
	b.open(t, rnd)
}

// retry lets a probe through now.
func (b *breaker) retry(now int64) {
	b.state, b.until, b.probe, b.openings = Open, min(b.until, now), 0, 0
}

// inconclusive takes in that a call said nothing about health. The probe's place is free, and the
// call counts for nothing.
func (b *breaker) inconclusive(t *timeline, r Reservation) {
	if r.Probe && r.Seq == b.probe {
		b.probe = 0
	}
	switch {
	case r.Seq > t.seq:
	case b.state == HalfOpen && r.Probe:
		bit := b.recent.place(r.Seq)
		b.recent.again &^= bit
	case b.recent.failed != 0:
		bit := b.recent.place(r.Seq)
		b.recent.silent |= bit
	}
}

// open keeps calls away for a while.
func (b *breaker) open(t *timeline, rnd Random) {
	d := b.pause(t.clock) * (0.8 + 0.4*rnd())
	b.state, b.until, b.probe, b.passed = Open, t.clock+int64(d), 0, 0
	b.openings = min(b.openings+1, 1<<20)
	b.outcomes = b.outcomes[:0]
	b.failures = 0
	b.recent.clear()
	if b.denied == 0 {
		b.doubts = 0
	}
	t.note(Change{Kind: BreakerOpened, Until: b.until, Denial: Denial(b.denied)})
}

// pause is for how many milliseconds it opens, on average. That grows with each opening.
func (b *breaker) pause(now int64) float64 {
	d, growth, longest := float64(breakerFirst), 1.5, float64(breakerSoon)
	switch {
	case b.denied != 0 && b.doubts != 0 && b.doubter.alone(now):
		growth, longest = 2, deniedFirst
	case b.denied != 0 && b.doubts != 0:
		d, growth = deniedFirst, 1
		longest = d
	case b.denied != 0:
		d, growth, longest = deniedFirst, 2, deniedLongest
	case b.mixed != 0 && now-b.since < breakerNew:
		d, growth, longest = breakerDoubt, 2, breakerMixed
	case b.mixed != 0 && now-b.mixed < breakerMemory:
		d, growth, longest = breakerMixed, 1, breakerMixed
	case now-b.since > breakerYoung:
		longest = breakerLate
	}
	for range min(b.openings, 16) {
		d *= growth
	}
	if b.openings <= 1 && b.denied == 0 && b.mixed == 0 {
		d = breakerDoubt * float64(1+b.openings)
	}
	return min(d, longest)
}

// lead is by how many failures must outnumber the others. Right after some calls had gone well and
// others had failed, the jobs at fault may still be many. They fail so much sooner than others go
// well that many of them begin in a row.
func (b *breaker) lead(now int64) int {
	if b.mixed != 0 && now-b.since < breakerNew {
		return mixedLead
	}
	return breakerLead
}

// suspected reports whether the failures outnumber the others up to the latest call of all. Then
// the deployment may have broken.
func (b *breaker) suspected(t *timeline) bool {
	since := t.seq - b.recent.newest
	if b.recent.failed == 0 || since >= latestCalls || b.blame.oneTenant(t.clock) {
		return false
	}
	_, last := b.recent.leads()
	return last > int(since)
}

// wentWell reports whether a call went well lately. The probes that closed the breaker did: until
// others are heard of, jobs that failed before shall not open it again.
func (b *breaker) wentWell(now int64) bool {
	return b.closedAt != 0 && now-b.closedAt < closedWell || b.outcomes.anyWentWell(now)
}

// unwell reports whether as many calls failed lately as can open the breaker, though others went
// well between them. Where too many calls begin until a failure is heard of, the window tells,
// and a sixth must have failed. An outage may not be over as soon as the breaker closes.
func (b *breaker) unwell(t *timeline) bool {
	return b.closedAt > 0 && t.clock-b.closedAt < breakerMemory ||
		b.recent.failures(t.seq) >= breakerCalls || b.outcomes.unwell(t.clock)
}

// scatters reports whether jobs go in no order. That is shortly after an outage in which some
// calls went well and others failed. Jobs at fault then do not come all at once.
func (b *breaker) scatters(now int64) bool { return b.mixed != 0 && now-b.closedAt < breakerMemory }

// doubted reports whether the jobs may be at fault and not the deployment. Then one answer says
// little, and several probe. It stays so until the breaker opens anew, or closes.
func (b *breaker) doubted() bool {
	return b.denied == 0 && b.doubts == 0 && b.until-b.since < breakerNew && b.openings <= breakerDoubts
}

// chances is how many probes may fail, or not be heard of, while the jobs may be at fault. Each
// that goes well makes room for more. So many calls are soon under way where only some jobs fail,
// and few are where all do.
func (b *breaker) chances() int64 { return probesAtOnce + probesMore*b.passed }

// waitsForProbes reports whether enough probes are under way.
func (b *breaker) waitsForProbes() bool {
	if b.doubted() {
		return int64(b.recent.underWay())+b.recent.probesFailed() >= b.chances()
	}
	return b.probe != 0 && b.recent.underWay() > 0
}

func (b *breaker) rewind(by, now int64) {
	rewind(by, &b.until, &b.since, &b.closedAt, &b.probeAt, &b.mixed, &b.freshAt, &b.okAt,
		&b.blame.since, &b.blame.failedAt, &b.blame.othersAt, &b.doubter.deniedAt, &b.doubter.othersAt)
	b.outcomes.rewind(by, now)
}

func (b *breaker) plausible(seq, ahead int64) bool {
	latest := max(b.until, b.since, b.closedAt, b.probeAt, b.mixed, b.freshAt, b.okAt,
		b.blame.since, b.blame.failedAt, b.blame.othersAt, b.doubter.deniedAt, b.doubter.othersAt)
	c := &b.recent
	return latest <= ahead && b.state <= HalfOpen && c.newest <= seq &&
		c.failed|c.silent|c.again < 1<<latestCalls && b.denied < int64(denials) &&
		b.doubts < doubtsToOpen && (b.denied == 0 || b.state != Closed)
}

// Blames reports whether a call that was denied, and may have been at fault itself, is taken to
// be. It is not while calls are kept away, nor if it began before they last were. What failed
// then may have turned it away as it would any other.
func (s *State) Blames(r Reservation) bool {
	return s.breaker.state == Closed && r.At >= s.breaker.closedAt
}

// Denied is why the deployment turns calls away, as far as is known.
func (s *State) Denied() Denial { return Denial(s.breaker.denied) }

// Retry has the next call find out whether a deployment that turned calls away still does, and not
// only when it is time. If so, the times between tries grow anew.
func (s *State) Retry(now int64) {
	if s.breaker.denied != 0 {
		s.breaker.retry(now)
	}
}
