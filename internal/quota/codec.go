package quota

import (
	"encoding/binary"
	"errors"
)

// The first byte of a stored state is its version. A state of another version is read as a fresh one
// would be: what it knew is learned again within a minute. Versions before lack the last scalars; a state where these are 0
// is stored as such, so that processes that know no other can read it.
const (
	oldestVersion = 3
	stateVersion  = 9
	// learningVersion is the first with what is learned of single calls and sources.
	learningVersion = 7
)

const (
	maxScalar = 1 << 61
	scalars   = 149 // stored fields that are single numbers
	// goneScalars are places among them of what is no longer stored.
	goneScalars = 13
)

// scalarsOf are how many of them each version has, from oldestVersion on.
var scalarsOf = [...]int{80, 82, 86, 90, 108, 119, scalars}

// ErrCorruptState is returned for bytes that are not a state.
var ErrCorruptState = errors.New("quota: not a stored state, or one of another version")

// MarshalBinary encodes the state: about 200 bytes for a quiet deployment, 2 KB for one with calls in
// every quarter of a second, 1 KB more where others go ahead of as many as may be, and 1 KB more of samples.
func (s *State) MarshalBinary() ([]byte, error) { return s.AppendBinary(make([]byte, 0, 512)) }

// AppendBinary appends what MarshalBinary returns.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	version := byte(oldestVersion)
	switch bk, e := &s.breaker, &s.estimate; {
	case s.short.wide|s.short.ahead|s.short.before|s.short.seenAt|s.short.others|s.short.over|s.short.lag|s.short.peak|s.frees|s.takes|s.trendAt|s.leftMark|s.resetLeft|e.excess|e.base.at|e.last.at != 0:
		version = stateVersion
	case s.estimate.mean|s.estimate.guess|s.estimate.guessAt|s.short.length != 0:
		version = 8
	case s.estimate.learning() || s.heardAt|s.askedAt|s.hearAfter|s.resets|s.resetFrom|s.margin|s.requestCut != 0:
		version = learningVersion
	case bk.blamed != 0:
		version = 6
	case bk.mixed != 0 || bk.freshAt != 0 || bk.again != 0 || bk.okAt != 0:
		version = 5
	case bk.denied != 0 || bk.doubts != 0:
		version++
	}
	b = append(b, version)
	fields := s.scalars()
	for _, v := range fields[:scalarsOf[version-oldestVersion]] {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	flags := byte(s.breaker.state) << 1
	if s.operator {
		flags |= 1
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(s.slices)))
	last := int64(0)
	for i := range s.slices {
		c := &s.slices[i]
		b = binary.AppendUvarint(b, uint64(c.no-last))
		for _, a := range c.amount {
			b = binary.AppendUvarint(b, uint64(a))
		}
		b = binary.AppendUvarint(b, uint64(c.open))
		last = c.no
	}
	b = binary.AppendUvarint(b, uint64(len(s.breaker.outcomes)))
	last = 0
	for _, o := range s.breaker.outcomes {
		b = binary.AppendUvarint(b, uint64(o.no-last))
		b = binary.AppendUvarint(b, uint64(o.ok))
		b = binary.AppendUvarint(b, uint64(o.failed))
		last = o.no
	}
	b = binary.AppendUvarint(b, uint64(len(s.passed)))
	for _, p := range s.passed {
		b = binary.AppendUvarint(b, uint64(p.id))
		b = binary.AppendUvarint(b, uint64(p.since))
		b = binary.AppendUvarint(b, uint64(p.seen))
	}
	if version >= learningVersion {
		b = s.estimate.append(b)
	}
	return b, nil
}

// UnmarshalBinary replaces the state by a stored one. After an error the state is a fresh one, which
// works: the caller may report the error and go on.
func (s *State) UnmarshalBinary(data []byte) error {
	slices, seconds, line := s.slices[:0], s.breaker.outcomes[:0], s.passed[:0]
	e := &s.estimate
	kept := estimate{run: run{calls: e.run.calls[:0]}, sources: e.sources[:0],
		factors: samples{list: e.factors.list[:0]}, unnamed: samples{list: e.unnamed.list[:0]}}
	*s = State{slices: slices, estimate: kept}
	s.breaker.outcomes, s.passed = seconds, line
	r := reader{data: data}
	version := r.byte()
	if version < oldestVersion || version > stateVersion {
		r.bad = true
	} else {
		fields := s.scalars()
		for _, v := range fields[:scalarsOf[version-oldestVersion]] {
			*v = r.value(maxScalar)
		}
		s.gone = [goneScalars]int64{}
	}
	flags := r.byte()
	s.operator = flags&1 != 0
	s.breaker.state = BreakerState(flags >> 1)
	last := int64(-1)
	for range r.value(maxSlices + 8) {
		c := slice{no: r.after(&last)}
		for d := range c.amount {
			c.amount[d] = r.value(maxAmount)
		}
		c.open = r.value(maxAmount)
		s.sum.add(c.amount)
		s.slices = append(s.slices, c)
	}
	last = -1
	for range r.value(maxOutcomes) {
		o := outcomes{no: r.after(&last), ok: r.value(maxAmount), failed: r.value(maxAmount)}
		s.breaker.outcomes = append(s.breaker.outcomes, o)
	}
	for range r.value(maxPassed) {
		s.passed = append(s.passed, passed{id: r.id(), since: r.value(maxTime), seen: r.value(maxTime)})
	}
	if version >= learningVersion {
		s.estimate.read(&r)
	}
	if r.bad || r.at < len(r.data) || !s.plausible() {
		*s = State{}
		return ErrCorruptState
	}
	return nil
}

// scalars are the fields that are stored as they are, in their order.
func (s *State) scalars() [scalars]*int64 {
	e, b, g := &s.estimate, &s.breaker, &s.gone
	t, r, o := &s.meters[Tokens], &s.meters[Requests], &s.meters[OutputTokens]
	return [...]*int64{
		&s.clock, &s.seq, &g[0], &g[1], &s.pauseUntil, &s.throttledAt, &s.adjustedAt, &s.throttleRun,
		&s.grewAt, &s.step, &s.pace, &s.pacedAt, &s.paceQuiet, &s.burstCutUntil, &s.unseen, &s.unseenUntil,
		&s.counts.Calls, &s.counts.Throttled, &s.counts.Oversize, &s.counts.Failed,
		&g[2], &g[3], &g[4], &e.used.charged, &e.used.guessed, &e.used.samples,
		&g[5], &e.sigma, &e.produced, &e.asked, &e.squares, &e.sizes,
		&g[6], &g[7], &g[8], &g[9], &g[10], &g[11], &g[12],
		&b.failures, &b.newest, &b.failed, &b.silent, &b.until, &b.since, &b.openings, &b.closedAt, &b.probe, &b.probeAt, &b.passed,
		&t.cap, &t.limit, &t.tat, &t.spent, &t.headerLimit, &t.limitAt, &t.remaining, &t.mark, &t.markAt, &t.resetAt,
		&r.cap, &r.limit, &r.tat, &r.spent, &r.headerLimit, &r.limitAt, &r.remaining, &r.mark, &r.markAt, &r.resetAt,
		&o.cap, &o.limit, &o.tat, &o.spent, &o.headerLimit, &o.limitAt, &o.remaining, &o.mark, &o.markAt, &o.resetAt,
		&b.denied, &b.doubts, &b.mixed, &b.freshAt, &b.again, &b.okAt,
		&b.blamed, &b.blamedAt, &b.blamedNow, &b.othersAt,
		&s.heardAt, &s.askedAt, &s.hearAfter, &s.resets, &s.resetFrom, &s.resetWas, &s.margin, &s.widenedAt,
		&s.requestCut, &s.requestStep, &s.slowerAt,
		&e.answers.value, &e.answers.samples, &e.silent, &e.run.from, &e.run.since, &e.others, &e.othersIn,
		&e.mean, &e.guess, &e.guessAt, &s.short.length, &s.short.at, &s.short.trip, &s.short.cut, &s.short.met, &s.short.cutAt, &s.short.from, &s.short.used,
		&s.short.wide, &s.short.ahead, &s.short.before, &s.short.seenAt, &s.short.seenLeft, &s.short.seenMost, &s.short.seenSeq, &s.short.wasAt, &s.short.wasLeft, &s.short.wasSeq, &s.short.others, &s.short.over, &s.short.lag, &s.short.peak, &s.frees, &s.takes, &s.trendAt, &s.trendWas, &s.resetLeft, &s.left, &s.leftMark,
		&e.excess, &e.base.at, &e.base.left, &e.base.total, &e.base.resetAt, &e.last.at, &e.last.left, &e.last.total, &e.last.resetAt,
	}
}

// plausible reports whether the state is one that the package can have made.
func (s *State) plausible() bool {
	ahead := s.clock + 2*oversizeAfter.Milliseconds()
	for d := range s.meters {
		m := &s.meters[d]
		if m.cap > maxAmount || m.limit > maxAmount || m.remaining > maxAmount || m.headerLimit > maxAmount ||
			m.markAt > s.clock+minute || m.resetAt > ahead || m.limitAt > s.clock+minute || m.tat > (ahead+minute)*1000 {
			return false
		}
	}
	for _, at := range []int64{s.pauseUntil, s.throttledAt, s.adjustedAt, s.grewAt, s.pacedAt, s.burstCutUntil, s.unseenUntil,
		s.heardAt, s.askedAt, s.hearAfter, s.resetFrom, s.resetWas, s.widenedAt, s.slowerAt,
		s.breaker.until, s.breaker.since, s.breaker.closedAt, s.breaker.probeAt, s.breaker.mixed, s.breaker.freshAt, s.breaker.okAt, s.breaker.blamedAt, s.breaker.blamedNow,
		s.breaker.othersAt, s.estimate.run.since, s.estimate.guessAt, s.short.at, s.short.cutAt, s.short.from, s.short.seenAt, s.short.wasAt} {
		if at > ahead {
			return false
		}
	}
	if n := len(s.slices); n > 0 && s.slices[n-1].no > s.clock/sliceMillis+1 {
		return false
	}
	e, b := &s.estimate, &s.breaker
	return s.clock <= maxTime && s.unseen <= maxAmount && s.frees <= maxAmount && s.takes <= maxAmount && s.trendAt <= ahead && s.trendWas <= maxAmount && s.resets <= windowRolls && s.resetLeft <= maxAmount && s.margin <= maxAmount && s.requestCut <= requestMost && s.requestStep <= requestSteps && b.state <= HalfOpen && b.newest <= s.seq && b.failed|b.silent|b.again < 1<<latestCalls && b.denied < int64(denials) && b.doubts < doubtsToOpen &&
		(b.denied == 0 || b.state != Closed) &&
		s.pace <= maxPace && (s.pace == 0 || s.pace >= minPace) && s.paceQuiet <= paceForever &&
		s.step <= 2*growMost && e.sigma <= 100_000 && e.used.charged <= maxAmount && e.used.guessed <= maxAmount && e.answers.value <= maxSample*quantilePart &&
		e.mean <= maxSample*quantilePart && e.guess <= longestAnswer && s.short.length <= 10*second && s.short.cut <= maxAmount && s.short.met <= shortMost && s.short.used <= maxAmount && s.short.wide <= s.short.length && s.short.ahead <= maxAmount && s.short.before <= maxAmount &&
		s.short.seenLeft <= maxAmount && s.short.seenSeq <= s.seq && s.short.wasSeq <= s.seq && s.short.wasLeft <= maxAmount && s.short.seenMost <= maxAmount && s.short.others <= maxAmount && s.short.over <= maxAmount && s.short.lag <= maxTime && s.short.peak <= maxAmount &&
		e.run.from <= s.seq+1 && e.excess <= maxAmount && e.base.at <= ahead && e.base.left <= maxAmount && e.base.resetAt <= ahead && e.last.at <= ahead && e.last.left <= maxAmount && e.last.resetAt <= ahead && e.others <= maxAmount && e.othersIn <= 2*othersKept
}

// learning reports whether there is anything that version 7 was the first to store.
func (e *estimate) learning() bool {
	return len(e.run.calls)+len(e.factors.list)+len(e.unnamed.list)+len(e.sources) > 0 ||
		e.answers != quantile{} || e.silent != 0 || e.run.from != 0 || e.run.since != 0 || e.others != 0 || e.othersIn != 0
}

func (e *estimate) append(b []byte) []byte {
	number := func(values ...int64) {
		for _, v := range values {
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	number(int64(len(e.run.calls)))
	for _, c := range e.run.calls {
		number(c.seq-e.run.from, c.at, c.remaining, c.resetAt, c.limit, c.prompt, c.output+1, c.source)
	}
	for _, list := range [][]int64{e.factors.list, e.unnamed.list} {
		number(int64(len(list)))
		number(list...)
	}
	number(int64(len(e.sources)))
	for _, c := range e.sources {
		number(c.key, c.at, c.used.charged, c.used.guessed, c.used.samples, c.answers.value, c.answers.samples)
		number(int64(len(c.factors.list)))
		number(c.factors.list...)
	}
	return b
}

func (e *estimate) read(r *reader) {
	for range r.value(maxRun) {
		e.run.calls = append(e.run.calls, runCall{seq: e.run.from + r.value(maxRun), at: r.value(maxTime), remaining: r.value(maxAmount),
			resetAt: r.value(maxTime), limit: r.value(maxAmount), prompt: r.value(maxAmount), output: r.value(maxAmount) - 1, source: r.id()})
	}
	for _, list := range []*[]int64{&e.factors.list, &e.unnamed.list} {
		for range r.value(maxSamples) {
			*list = append(*list, r.value(maxSample))
		}
	}
	for range r.value(maxSources) {
		c := source{key: r.id(), at: r.value(maxTime),
			used:    ratio{r.value(maxAmount), r.value(maxAmount), r.value(1 << 30)},
			answers: quantile{r.value(maxSample * quantilePart), r.value(1 << 30)}}
		for range r.value(maxSourceSamples) {
			c.factors.list = append(c.factors.list, r.value(maxSample))
		}
		e.sources = append(e.sources, c)
	}
}

// reader takes values from the front of data; after the first that is not there it yields zeros.
type reader struct {
	data []byte
	at   int
	bad  bool
}

func (r *reader) byte() byte {
	if r.at >= len(r.data) {
		r.bad = true
		return 0
	}
	c := r.data[r.at]
	r.at++
	return c
}

func (r *reader) uvarint() uint64 {
	if r.at < len(r.data) && r.data[r.at] < 0x80 && !r.bad { // most are small
		r.at++
		return uint64(r.data[r.at-1])
	}
	v, n := binary.Uvarint(r.data[r.at:])
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.at += n
	return v
}

// value reads a number from 0 to most.
func (r *reader) value(most int64) int64 {
	v := r.uvarint()
	if v > uint64(most) {
		r.bad = true
		return 0
	}
	return int64(v)
}

// id reads any number.
func (r *reader) id() int64 { return int64(r.uvarint()) }

// after reads a number that is larger than the last one.
func (r *reader) after(last *int64) int64 {
	first := *last < 0
	step := r.value(maxTime)
	if first {
		*last = 0
	} else if step == 0 {
		r.bad = true
	}
	*last += step
	if *last > maxTime {
		r.bad = true
	}
	return *last
}
