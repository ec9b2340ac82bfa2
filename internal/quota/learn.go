package quota

const (
	throttleEvery = 15 * second // refusals so close together are one
	growAfter     = 20 * second // quiet for so long
	growEvery     = 10 * second
	growFirst     = 10_000 // millionths of the quota
	growMost      = 200_000
	burstCutFor   = 10 * minute
	resetLate     = 50 // after the reset that headers name, for the clocks' sake
	shortWait     = 10 * second
	longWait      = 5 * second // of a refusal that is not one of the last few tokens of a minute

	maxPace     = 125 // percent of the limit
	evenPace    = 100
	minPace     = 95
	paceDown    = 10
	paceUp      = 5
	paceAfter   = minute // doubled by each refusal of a window that was not full
	paceForever = 5      // doublings at most
)

func (s *State) currentPace() int64 {
	if s.pace == 0 {
		return maxPace
	}
	return s.pace
}

// follow sets a dimension's quota to what is configured and what the provider says, whichever is less.
func (s *State) follow(d Dimension, configured int64) {
	m := &s.meters[d]
	if s.clock-m.limitAt > headerKept {
		m.headerLimit = 0
	}
	quota := min(max(configured, 0), maxAmount)
	if m.headerLimit > 0 && (quota == 0 || m.headerLimit < quota) {
		quota = m.headerLimit
	}
	if quota == m.cap {
		return
	}
	before := m.cap
	m.cap = quota
	switch {
	case quota == 0 || quota > before || m.limit == 0:
		m.limit = quota
	default:
		m.limit = min(m.limit, quota)
	}
	if d == Tokens && before > 0 && quota > 0 {
		kind := LimitLowered
		if quota > before {
			kind = LimitRestored
		}
		s.note(Change{Kind: kind, Limit: m.limit})
	}
}

// shrink lowers the limit or the pace after a refusal on tokens that asked to wait for so long. One that
// came before the minute's worth was sent, and does not speak of the next minute, is of a provider that
// counts over a shorter time: calls must come more evenly, not be fewer.
func (s *State) shrink(cost, wait int64) {
	m := &s.meters[Tokens]
	first := s.throttledAt == 0 || s.clock-s.throttledAt > minute
	s.throttledAt = s.clock
	s.step = growFirst
	if s.adjustedAt != 0 && s.clock-s.adjustedAt < throttleEvery {
		return
	}
	s.adjustedAt = s.clock
	over := s.sum[Tokens] + cost // is more than there was
	if m.limit == 0 {            // nothing is known
		if wait <= shortWait {
			if first && wait > 0 {
				return // a moment's refusal, of which no limit follows: the pause will do
			}
			// It speaks of a rate, which a window that is not a minute old yet does not show as its sum.
			over = over * minute / min(max(s.clock-s.slices[0].no*sliceMillis, shortWait/2), minute)
		}
		m.limit = max(over*98/100, 1)
		s.note(Change{Kind: LimitLowered, Limit: m.limit})
		return
	}
	full, even := over >= m.limit*9/10, int64(evenPace)
	if !full {
		even = minPace
	}
	if wait <= shortWait && s.currentPace() > even {
		s.pace = max(s.currentPace()-paceDown, even)
		s.pacedAt = s.clock
		s.paceQuiet = min(s.paceQuiet+1, paceForever)
		if !full {
			return
		}
	}
	m.limit = max(m.cap/5, m.limit*7/10, min(m.limit, over)*98/100, 1)
	s.note(Change{Kind: LimitLowered, Limit: m.limit})
}

// grow raises the limit and the pace again while nothing is refused.
func (s *State) grow(now int64) {
	m := &s.meters[Tokens]
	if s.pace != 0 && now-s.pacedAt >= paceAfter<<s.paceQuiet {
		s.pacedAt = now
		if s.pace += paceUp; s.pace >= maxPace {
			s.pace, s.paceQuiet = 0, 0
		}
	}
	for s.requestCut > 0 && now-s.slowerAt >= requestCutFor {
		s.slowerAt += requestCutFor
		s.requestCut--
	}
	s.short.grow(now)
	for s.margin > 0 && now-s.widenedAt >= marginKept {
		s.widenedAt += marginKept
		s.margin /= 2
	}
	if e := &s.estimate; e.guess > promptAlone && now-max(e.guessAt, s.throttledAt) >= guessKept {
		e.guess, e.guessAt = e.guess-1, now
	}
	if m.limit == 0 || m.cap > 0 && m.limit >= m.cap || now-s.throttledAt < growAfter {
		return
	}
	if m.cap == 0 && now-s.throttledAt > headerKept {
		m.limit = 0 // what was learned long ago where nothing is configured is no longer true
		return
	}
	s.grewAt = max(s.grewAt, s.throttledAt+growAfter-growEvery)
	for now-s.grewAt >= growEvery {
		s.grewAt += growEvery
		s.step = min(max(s.step, growFirst), growMost)
		base := m.cap
		if base == 0 {
			base = m.limit
		}
		m.limit = min(m.limit+max(base/1000*s.step/1000, 1), maxAmount)
		s.step += s.step / 2
		if m.cap > 0 && m.limit >= m.cap {
			m.limit = m.cap
			s.note(Change{Kind: LimitRestored, Limit: m.limit})
			return
		}
	}
}

// sliced reports whether a limit of requests is what Azure admits in 1 or 10 seconds, of which its headers
// have been seen to tell, and not what it admits in a minute. Where no limit is configured nobody knows which, and refusals
// tell of too many requests sooner than a limit that is a sixtieth of the real one is found out.
func (l Limits) sliced(limit int64) bool {
	return l.Accounting == AccountAzureOpenAI && limit > 0 && (l.RequestsPerMinute == 0 || limit <= l.RequestsPerMinute/5)
}

// inSlice reports whether what remains of the requests is of a slice of some seconds, though the limit is told of a minute. That
// is out of date when it is heard of, and the pace sees to slices.
func inSlice(o Outcome, limit, remaining int64) bool {
	reset := o.Headers.Reset[Requests].Milliseconds()
	return reset > 0 && reset <= shortWait && remaining < limit/5
}

// read takes in rate-limit headers. Those of a call made before the one last read say nothing new.
func (s *State) read(l Limits, r Reservation, o Outcome) {
	ofSecond := s.tells(r, o)
	for d := range s.meters {
		m := &s.meters[d]
		limit, remaining := o.Headers.Limit[d], o.Headers.Remaining[d]
		if r.At < m.markAt-second || Dimension(d) == Requests && l.sliced(limit) {
			continue
		}
		if limit > 0 && limit < maxAmount {
			m.headerLimit, m.limitAt = limit, s.clock
			s.follow(Dimension(d), [dimensions]int64{l.TokensPerMinute, l.RequestsPerMinute, l.OutputTokensPerMinute}[d])
		}
		if remaining <= 0 || remaining > maxAmount || limit > 0 && remaining > limit || Dimension(d) == Requests && (ofSecond || inSlice(o, limit, remaining)) {
			continue
		}
		resetAt := int64(0)
		if reset := o.Headers.Reset[d].Milliseconds(); reset > 0 && reset < headerKept {
			resetAt = s.clock + reset + resetLate
			if Dimension(d) == Tokens && o.Kind != Throttled && o.Kind != ThrottledTokens && o.Kind != ThrottledRequests {
				s.slides(r, reset, remaining)
			}
		}
		if Dimension(d) == Tokens && (l.Accounting == AccountAzureOpenAI || l.Accounting == AccountOpenAI) &&
			(o.Kind == HeadersArrived || o.Kind == Succeeded) {
			if refilled := l.Accounting == AccountOpenAI; refilled || s.resets < windowSlides {
				s.estimate.saw(r, remaining, resetAt, m.cap, refilled)
			}
			if !s.rises() {
				s.estimate.fell(r, l.Accounting, limit, remaining, resetAt, s.clock, s.seq+1)
			}
		}
		// As calls overtake each other, each header is read as saying less than there is, so of those of about
		// the same time the one that says most is right.
		if s.headerIsFresh(Dimension(d)) && r.At < m.markAt+second && remaining+r.Spent[d] <= m.remaining+m.mark {
			continue
		}
		m.remaining, m.mark, m.markAt, m.resetAt = remaining, r.Spent[d], r.At, resetAt
		if Dimension(d) == Tokens {
			s.leftMark = r.Left
		}
		if Dimension(d) == Tokens && l.Accounting == AccountAzureOpenAI {
			s.compare()
		}
	}
}

// compare notes by how much the provider has counted more, since it began its minute, than the window holds
// for longer: calls that were made before κ was known, or those of other programs. The word on what is left is
// not believed for long, for elsewhere it may be more by then; that much is certain until the minute is over.
func (s *State) compare() {
	m := &s.meters[Tokens]
	s.unseen, s.unseenUntil = 0, 0
	if m.headerLimit == 0 || m.resetAt == 0 {
		return
	}
	ours := s.sum[Tokens] - (m.spent - m.mark)
	switch {
	case s.resets == windowRolls:
		ours += s.left - s.leftMark
	case s.resets == windowFixed && m.resetAt-s.clock > shortWait: // the provider counts ours since its minute began
		for _, c := range s.slices {
			if c.leaves() <= m.resetAt-resetLate {
				ours -= c.amount[Tokens]
			}
		}
	}
	ours = max(ours, 0)
	s.unseen, s.unseenUntil = max(m.headerLimit-m.remaining-ours, 0), min(m.resetAt, m.markAt+minute)
	s.trend()
}
