package quota

import "sort"

const (
	second = 1000
	minute = 60 * second

	// sliceMillis is the resolution of the window. A slice leaves when the youngest reservation in it can
	// be 60 seconds old, so the window is exact and a slice too long at most.
	sliceMillis = 250

	maxSlices   = minute/sliceMillis + 2
	maxOutcomes = outcomeSeconds + 1
	maxPassed   = Backfill // those that one round lets others go ahead of, at most
	maxAmount   = 1 << 45  // no single quantity is larger; sums stay far from overflow
	maxTime     = 1 << 50  // the year 37648
)

// State is all that is known of one deployment. The zero value is one of which nothing is known. It
// is not safe for use from several goroutines.
type State struct {
	clock  int64   // the latest time seen
	slices []slice // of the last 60 seconds, oldest first
	sum    Amount  // of slices
	meters [dimensions]meter

	seq  int64              // reservations ever made
	gone [goneScalars]int64 // places of what older versions stored; always 0

	pauseUntil    int64 // asked for by the provider
	throttledAt   int64 // the latest refusal
	adjustedAt    int64 // the latest refusal that changed the limit
	throttleRun   int64 // refusals in a row that did not say for how long
	grewAt        int64 // the latest growth of the limit
	step          int64 // the next growth, in millionths of the quota
	pace          int64 // of tokens, in percent of the limit; 0: maxPace
	pacedAt       int64 // the latest change of pace
	paceQuiet     int64 // doublings of the time after which pace recovers
	burstCutUntil int64 // until when requests go one by one
	unseen        int64 // tokens that the provider has counted and the window has not
	unseenUntil   int64 // when it begins to count anew
	frees, takes  int64 // by how many tokens a minute that falls or rises lately, where the window slides
	trendAt       int64 // when the call was made whose headers others are compared with
	trendWas      int64 // unseen then
	left          int64 // tokens that have left the window ever
	leftMark      int64 // left when the call was made whose headers tell what is left
	heardAt       int64 // when a call was heard of that tells how it is now; 0: none was since the last refusal on tokens
	askedAt       int64 // when the call was made for the word of which others wait, or waited; 0: none was
	hearAfter     int64 // calls made before it tell nothing of how it is now
	resets        int64 // how the resets that headers name behave, as far as is known: windowUnknown and others
	resetFrom     int64 // when the call was made whose reset others are compared with
	resetWas      int64 // and that reset
	resetLeft     int64 // and what it said is left
	margin        int64 // tokens by which what headers say is left has been too much
	widenedAt     int64 // when that was found, or became less
	requestCut    int64 // percent by which requests come slower than their limit
	requestStep   int64 // by how much that was raised last
	slowerAt      int64 // when it was raised or lowered
	short         shortWindow
	operator      bool // paused by an operator

	estimate estimate
	breaker  breaker
	passed   []passed // by whom others went ahead, oldest first
	counts   Counts

	changes []Change // not stored
	bySlice bool     // the provider documents that it counts requests by the second or by ten; of the configuration, not stored
}

// slice is what was reserved in one sliceMillis.
type slice struct {
	no     int64 // time / sliceMillis
	amount Amount
	open   int64 // calls that are not over
}

// meter is one dimension of the quota.
type meter struct {
	cap   int64 // the quota per minute as configured and as the provider says; 0: unknown
	limit int64 // what is used of it; 0: unknown
	tat   int64 // GCRA's theoretical arrival time, in microseconds
	spent int64 // reserved ever

	// What the newest call that had headers said.
	headerLimit int64 // 0: not said
	limitAt     int64 // when that was heard
	remaining   int64 // 0: not said
	mark        int64 // spent when that call was made
	markAt      int64 // when that call was made
	resetAt     int64 // when remaining is renewed; 0: not said
}

// Counts are totals since the state began.
type Counts struct{ Calls, Throttled, Oversize, Failed int64 }

// Changes returns what has happened since it was last asked, oldest first. Changes are not stored:
// ask before the state is.
func (s *State) Changes() []Change {
	changes := s.changes
	s.changes = nil
	return changes
}

func (s *State) note(c Change) {
	c.At = s.clock
	s.changes = append(s.changes, c)
}

// Pause keeps every call away until Resume, on an operator's word.
func (s *State) Pause() { s.operator = true }

// Paused reports whether an operator keeps every call away.
func (s *State) Paused() bool { return s.operator }

// Resume ends an operator's pause.
func (s *State) Resume() { s.operator = false }

// advance brings the state to now.
func (s *State) advance(now int64, l Limits) {
	now = min(max(now, 0), maxTime)
	if now < s.clock {
		s.rewind(s.clock - now)
	}
	s.clock = now
	s.bySlice = l.Accounting == AccountAzureOpenAI
	s.expire(now)
	for d, configured := range [dimensions]int64{l.TokensPerMinute, l.RequestsPerMinute, l.OutputTokensPerMinute} {
		s.follow(Dimension(d), configured)
	}
	s.grow(now)
}

// rewind moves every time of the state back: the database's clock was.
func (s *State) rewind(by int64) {
	back := func(times ...*int64) {
		for _, t := range times {
			*t = max(*t-by, 0)
		}
	}
	back(&s.estimate.base.at, &s.estimate.base.resetAt, &s.estimate.last.at, &s.estimate.last.resetAt, &s.trendAt, &s.pauseUntil, &s.throttledAt, &s.adjustedAt, &s.grewAt, &s.pacedAt, &s.burstCutUntil, &s.unseenUntil,
		&s.heardAt, &s.askedAt, &s.hearAfter, &s.resetFrom, &s.resetWas, &s.widenedAt, &s.slowerAt, &s.estimate.run.since, &s.estimate.guessAt, &s.short.at, &s.short.cutAt, &s.short.from, &s.short.seenAt, &s.short.wasAt, &s.breaker.until, &s.breaker.since, &s.breaker.closedAt, &s.breaker.probeAt,
		&s.breaker.mixed, &s.breaker.freshAt, &s.breaker.okAt, &s.breaker.blamedAt, &s.breaker.blamedNow, &s.breaker.othersAt)
	for d := range s.meters {
		m := &s.meters[d]
		back(&m.limitAt, &m.markAt, &m.resetAt)
		m.tat = max(m.tat-by*1000, 0)
	}
	for i := range s.estimate.run.calls {
		back(&s.estimate.run.calls[i].at, &s.estimate.run.calls[i].resetAt)
	}
	for i := range s.estimate.sources {
		back(&s.estimate.sources[i].at)
	}
	// Slices and seconds stay in order and apart, and the last is not in the future.
	if n := len(s.slices); n > 0 {
		shift := max(by/sliceMillis, s.slices[n-1].no-(s.clock-by)/sliceMillis)
		for i := range s.slices {
			s.slices[i].no = max(s.slices[i].no-shift, int64(i))
		}
	}
	if o := s.breaker.outcomes; len(o) > 0 {
		shift := max(by/second, o[len(o)-1].no-(s.clock-by)/second)
		for i := range o {
			o[i].no = max(o[i].no-shift, int64(i))
		}
	}
	for i := range s.passed {
		back(&s.passed[i].since, &s.passed[i].seen)
	}
}

// expire drops the slices in which nothing is younger than a minute.
func (s *State) expire(now int64) {
	n := 0
	if s.resets == windowRolls {
		now -= slideLate // calls may have reached it late
	}
	for n < len(s.slices) && s.slices[n].leaves() <= now {
		s.sum.sub(s.slices[n].amount)
		s.left += s.slices[n].amount[Tokens]
		n++
	}
	if n > 0 {
		s.slices = s.slices[:copy(s.slices, s.slices[n:])]
	}
}

// leaves is when a slice is out of the window.
func (c slice) leaves() int64 { return (c.no+1)*sliceMillis + minute }

// reserve enters an amount into the window and the pace.
func (s *State) reserve(a Amount) {
	no := s.clock / sliceMillis
	if n := len(s.slices); n == 0 || s.slices[n-1].no < no {
		s.slices = append(s.slices, slice{no: no})
	}
	last := &s.slices[len(s.slices)-1]
	last.amount.add(a)
	last.open++
	s.sum.add(a)
	if s.short.length != 0 {
		s.short.count(s.clock, a[Requests], s.underWay())
	}
	for d := range s.meters {
		m := &s.meters[d]
		m.spent += a[d]
		if rate := s.rate(Dimension(d)); rate > 0 {
			// After a minute the window has its say; a call larger than the quota blocks nobody for longer.
			m.tat = min(max(m.tat, s.clock*1000)+int64(float64(a[d])/rate*1e6), (s.clock+minute)*1000)
		}
	}
}

// correct changes what a reservation still in the window counts for, and never below nothing.
func (s *State) correct(r Reservation, by Amount) {
	c := s.find(r.At)
	if c == nil {
		return
	}
	for d := range by {
		change := max(by[d], -c.amount[d])
		c.amount[d] += change
		s.sum[d] += change
	}
}

// giveBack undoes a reservation. What the running totals count stays: a header is then read as if the
// call had been charged, until the next one says better.
func (s *State) giveBack(r Reservation) {
	back := Amount{}
	back.sub(r.Amount)
	s.correct(r, back)
	s.repace(back)
}

// repace changes what the pace has counted.
func (s *State) repace(by Amount) {
	for d := range s.meters {
		if rate := s.rate(Dimension(d)); rate > 0 {
			s.meters[d].tat = min(max(s.meters[d].tat+int64(float64(by[d])/rate*1e6), 0), (s.clock+minute)*1000)
		}
	}
}

// find returns the slice of a time, nil when it is out of the window.
func (s *State) find(at int64) *slice {
	no := at / sliceMillis
	i := sort.Search(len(s.slices), func(i int) bool { return s.slices[i].no >= no })
	if i == len(s.slices) || s.slices[i].no != no {
		return nil
	}
	return &s.slices[i]
}

func (a *Amount) add(b Amount) {
	for d := range a {
		a[d] += b[d]
	}
}

func (a *Amount) sub(b Amount) {
	for d := range a {
		a[d] -= b[d]
	}
}
