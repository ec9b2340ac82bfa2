package quota

import (
	"encoding/binary"
	"errors"
)

// The first byte of a stored state is its version. A state of an unknown version is read as a
// fresh one: what it knew is learned again within a minute. Older versions lack the last scalars.
// A state where these are 0 is stored as such, so that older processes can read it.
const (
	oldestVersion = 3
	stateVersion  = 10
	// learningVersion is the first with what is learned of single calls and sources.
	learningVersion = 7
)

const (
	maxScalar = 1 << 61
	scalars   = 152 // stored fields that are single numbers
	// goneScalars are places among them of what is no longer stored.
	goneScalars = 13
)

// scalarsOf are how many of them each version has, from oldestVersion on.
var scalarsOf = [...]int{80, 82, 86, 90, 108, 119, 149, scalars}

// ErrCorruptState is returned for bytes that are not a state.
var ErrCorruptState = errors.New("quota: not a stored state, or one of another version")

// MarshalBinary encodes the state. A quiet deployment takes about 200 bytes, one with calls in
// every quarter of a second 2 KB. Candidates that others went ahead of take up to 1 KB more, and
// samples 1 KB.
func (s *State) MarshalBinary() ([]byte, error) { return s.AppendBinary(make([]byte, 0, 512)) }

// AppendBinary appends what MarshalBinary returns.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	fields := s.scalars()
	version := s.version(fields[:])
	b = append(b, version)
	for _, v := range fields[:scalarsOf[version-oldestVersion]] {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	flags := byte(s.breaker.state) << 1
	if s.operator {
		flags |= 1
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(s.window.slices)))
	last := int64(0)
	for i := range s.window.slices {
		c := &s.window.slices[i]
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

// version is the oldest one that holds all that is known. That is each field that is not 0, and
// the lists that learningVersion was the first to store.
func (s *State) version(fields []*int64) byte {
	n := len(fields)
	for n > 0 && *fields[n-1] == 0 {
		n--
	}
	version := oldestVersion
	for scalarsOf[version-oldestVersion] < n {
		version++
	}
	if s.estimate.hasLists() {
		version = max(version, learningVersion)
	}
	return byte(version)
}

// UnmarshalBinary replaces the state by a stored one. After an error the state is a fresh one,
// which works. The caller may report the error and go on.
func (s *State) UnmarshalBinary(data []byte) error {
	slices, seconds, passedOver := s.window.slices[:0], s.breaker.outcomes[:0], s.passed[:0]
	e := &s.estimate
	kept := estimate{run: run{calls: e.run.calls[:0]}, sources: e.sources[:0],
		factors: samples{list: e.factors.list[:0]}, unnamed: samples{list: e.unnamed.list[:0]}}
	*s = State{}
	s.window.slices, s.breaker.outcomes, s.passed, s.estimate = slices, seconds, passedOver, kept
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
		s.window.sum.add(c.amount)
		s.window.slices = append(s.window.slices, c)
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
	e, b, g, c, l, p := &s.estimate, &s.breaker, &s.gone, &s.breaker.recent, &s.learned, &s.pacing
	t, r, o := &s.meters[Tokens], &s.meters[Requests], &s.meters[OutputTokens]
	u, w, a := &s.unseen, &p.short, &s.asking
	return [...]*int64{
		&s.clock, &s.seq, &g[0], &g[1], &s.pause.until, &l.throttledAt, &l.adjustedAt, &s.pause.run,
		&l.grewAt, &l.step, &p.tokens.stored, &p.tokens.changedAt, &p.tokens.quiet, &p.burstCutUntil, &u.tokens, &u.until,
		&s.counts.Calls, &s.counts.Throttled, &s.counts.Oversize, &s.counts.Failed,
		&g[2], &g[3], &g[4], &e.used.charged, &e.used.guessed, &e.used.samples,
		&g[5], &e.sigma, &e.produced, &e.asked, &e.squares, &e.sizes,
		&g[6], &g[7], &g[8], &g[9], &g[10], &g[11], &g[12],
		&b.failures, &c.newest, &c.failed, &c.silent, &b.until, &b.since, &b.openings, &b.closedAt, &b.probe, &b.probeAt, &b.passed,
		&t.cap, &t.limit, &p.tat[Tokens], &t.spent, &t.headerLimit, &t.limitAt, &t.remaining, &t.mark, &t.markAt, &t.resetAt,
		&r.cap, &r.limit, &p.tat[Requests], &r.spent, &r.headerLimit, &r.limitAt, &r.remaining, &r.mark, &r.markAt, &r.resetAt,
		&o.cap, &o.limit, &p.tat[OutputTokens], &o.spent, &o.headerLimit, &o.limitAt, &o.remaining, &o.mark, &o.markAt, &o.resetAt,
		&b.denied, &b.doubts, &b.mixed, &b.freshAt, &c.again, &b.okAt,
		&b.blame.tenant, &b.blame.since, &b.blame.failedAt, &b.blame.othersAt,
		&a.heardAt, &a.askedAt, &a.hearAfter, &s.provider.kind, &s.provider.from, &s.provider.was, &s.margin.tokens, &s.margin.widenedAt,
		&p.requests.cut, &p.requests.step, &p.requests.changedAt,
		&e.answers.value, &e.answers.samples, &e.silent, &e.run.from, &e.run.since, &e.others, &e.othersIn,
		&e.mean, &e.guess, &e.guessAt, &w.length, &w.at, &w.trip, &w.cut, &w.met, &w.cutAt, &w.from, &w.used,
		&w.wide, &w.ahead, &w.before, &w.seenAt, &w.seenLeft, &w.seenMost, &w.seenSeq, &w.wasAt, &w.wasLeft, &w.wasSeq,
		&w.others, &w.over, &w.lag, &w.peak, &u.frees, &u.takes, &u.trendAt, &u.trendWas,
		&s.provider.left, &s.window.left, &s.leftMark,
		&e.excess, &e.base.at, &e.base.left, &e.base.total, &e.base.resetAt, &e.last.at, &e.last.left, &e.last.total, &e.last.resetAt,
		&b.doubter.tenant, &b.doubter.deniedAt, &b.doubter.othersAt,
	}
}

// plausible reports whether the state is one that the package can have made.
func (s *State) plausible() bool {
	ahead := s.clock + 2*oversizeAfter.Milliseconds()
	l := &s.learned
	return max(s.pause.until, l.throttledAt, l.adjustedAt, l.grewAt) <= ahead && l.step <= 2*growMost &&
		s.capacity.plausible(ahead) && s.pacing.plausible(s.seq, ahead) && s.breaker.plausible(s.seq, ahead)
}

func (e *estimate) hasLists() bool {
	return len(e.run.calls)+len(e.factors.list)+len(e.unnamed.list)+len(e.sources) > 0
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
