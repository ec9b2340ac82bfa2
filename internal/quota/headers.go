package quota

// sliced reports whether a limit of requests in headers is what Azure admits in 1 or 10 seconds,
// and not in a minute. Its headers have been seen to tell of both. Where no limit is configured
// nobody knows which. Then refusals tell of too many requests sooner than it is found out that a
// limit is a sixtieth of the real one.
func (l Limits) sliced(limit int64) bool {
	return l.Accounting == AccountAzureOpenAI && limit > 0 && (l.RequestsPerMinute == 0 || limit <= l.RequestsPerMinute/5)
}

// inSlice reports whether what remains of the requests is of a slice of some seconds, though the
// limit is of a minute. That is out of date when it is heard of, and the pace sees to slices.
func inSlice(o Outcome, limit, remaining int64) bool {
	reset := o.Headers.Reset[Requests].Milliseconds()
	return reset > 0 && reset <= shortWait && remaining < limit/5
}

// read takes in rate-limit headers. Those of a call made before the one last read say nothing new.
func (s *State) read(l Limits, r Reservation, o Outcome) {
	ofSecond := s.pacing.readRequests(&s.capacity, r, o)
	configured := l.perMinute()
	for d := range dimensions {
		m := &s.meters[d]
		limit, remaining := o.Headers.Limit[d], o.Headers.Remaining[d]
		if r.At < m.markAt-second || d == Requests && l.sliced(limit) {
			continue
		}
		if limit > 0 && limit < maxAmount {
			m.headerLimit, m.limitAt = limit, s.clock
			s.follow(d, configured[d])
		}
		if limit <= 0 && configured[d] > 0 && remaining > configured[d] && remaining < maxAmount {
			m.hasAtLeast(s.clock, remaining)
		}
		if remaining <= 0 || remaining > maxAmount || limit > 0 && remaining > limit || d == Requests && (ofSecond || inSlice(o, limit, remaining)) {
			continue
		}
		resetAt := int64(0)
		if reset := o.Headers.Reset[d].Milliseconds(); reset > 0 && reset < headerKept {
			resetAt = s.clock + reset + resetLate
			if d == Tokens && o.Kind != Throttled && o.Kind != ThrottledTokens && o.Kind != ThrottledRequests {
				s.provider.learn(r, reset, remaining, m.cap)
			}
		}
		if d == Tokens && (l.Accounting == AccountAzureOpenAI || l.Accounting == AccountOpenAI) &&
			(o.Kind == HeadersArrived || o.Kind == Succeeded) {
			if refilled := l.Accounting == AccountOpenAI; refilled || !s.slides() {
				s.estimate.saw(r, remaining, resetAt, m.cap, refilled)
			}
			if !s.rises() {
				s.estimate.fell(r, l.Accounting, limit, remaining, resetAt, s.clock, s.seq+1)
			}
		}
		// As calls overtake each other, each header is read as saying less than there is. So of
		// those of about the same time the one that says most is right.
		if s.headerIsFresh(d) && r.At < m.markAt+second && remaining+r.Spent[d] <= m.remaining+m.mark {
			continue
		}
		m.remaining, m.mark, m.markAt, m.resetAt = remaining, r.Spent[d], r.At, resetAt
		if d == Tokens {
			s.leftMark = r.Left
		}
		if d == Tokens && l.Accounting == AccountAzureOpenAI {
			s.compare()
		}
	}
}
