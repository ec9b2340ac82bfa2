package quota

const (
	heardLately    = 5 * second // so long nobody need ask before others go
	askTimeout     = 3 * second // how long others wait for the word of the call that asks
	askTimeoutCold = 3 * second / 2
	askAgain       = 20 * second // after one that was not heard of in time, how long nobody need ask
	askEvery       = 5 * second  // how often one call finds out whether what others have used is still counted
	coldCalls      = 2           // so many calls go where nothing is known of the last minute

	// slideAfter is how far apart two headers must be made to tell whether what they name as the
	// reset moves with time.
	slideAfter  = 4 * second
	rollsWithin = second / 2     // by so much at most the reset of a window that rolls differs
	rollsAfter  = second * 6 / 5 // when the worth of so much time was used or forgotten
	slideLeast  = 3 * second     // by so much at least a reset that moves has moved, beyond rounding and delays
)

// How the resets that headers name behave.
const (
	windowUnknown = iota
	windowFixed   // they stay: the counter begins anew at that time
	windowSlides  // they move with time: what was used is forgotten by and by
	windowRolls   // the same, and each call is forgotten a minute after it was made
)

// Calls of the beginning of a full window leave it all at once, and so as many may go within an
// instant. That they have left the provider's window as well is not certain: they may have reached
// it late. So where nothing was heard for a while one call goes first, and the others once it was
// heard of.

// asking is when the next call may go that needs so much of the window: now, or when the one that
// asks is heard of at the latest.
func (s *State) asking() (at int64) {
	m := &s.meters[Tokens]
	if s.leaps() {
		if end := s.askedAt + askTimeout; s.askedAt > m.markAt && s.clock < end {
			return end
		}
		return s.clock
	}
	stale := s.staleAt(Tokens)
	switch {
	case m.limit == 0 || s.headerIsFresh(Tokens):
		return s.clock
	case s.clock-s.heardAt < heardLately && (s.clock-m.markAt > minute || s.heardAt >= s.askedAt && s.askedAt >= stale):
		return s.clock // headers are not told, or no longer
	}
	timeout := int64(askTimeout)
	switch {
	case s.sum[Tokens] >= m.limit/2, s.clock-m.markAt <= minute && m.remaining-(m.spent-m.mark) < m.headerLimit/2:
	case s.heardAt == 0 || s.clock-s.heardAt > minute:
		if timeout = askTimeoutCold; s.sum[Requests] < coldCalls {
			return s.clock
		}
	default:
		return s.clock
	}
	switch end := s.askedAt + timeout; {
	case s.askedAt < stale || s.clock >= s.askedAt+askAgain:
		return s.clock // this is the one that asks
	case s.heardAt < s.askedAt && s.clock < end:
		return end
	}
	return s.clock
}

// asked notes that a call goes that needs so much, and may be one that asks.
func (s *State) asked(need int64) {
	if room, bounded := s.room(Tokens); bounded && room < need && need > 0 || s.leaps() && s.askedAt <= s.meters[Tokens].markAt {
		s.askedAt = s.clock
	}
	if !s.headerIsFresh(Tokens) && (s.askedAt == 0 || s.askedAt < s.staleAt(Tokens) || s.clock >= s.askedAt+askAgain || s.heardAt >= s.askedAt && s.clock-s.heardAt >= heardLately) {
		s.askedAt = s.clock
	}
}

// heard notes that a call was heard of.
func (s *State) heard(r Reservation) {
	if r.At >= max(s.askedAt, s.hearAfter) {
		s.heardAt = s.clock
	}
}

// unheard has the first call at or after a time ask.
func (s *State) unheard(after int64) {
	s.heardAt, s.askedAt, s.hearAfter = 0, 0, after
}

// slides learns from the reset that a header of tokens names whether it moves with time. A call is
// heard of after it was made by a time that varies less from the time at which it was made.
func (s *State) slides(r Reservation, reset, remaining int64) {
	at, before := r.At+reset, s.resetWas-s.resetFrom
	switch since := r.At - s.resetFrom; {
	case s.resetFrom == 0 || since >= minute || r.At >= s.resetWas-slideLeast: // there is nothing to compare it with
	case since < slideAfter:
		return
	case at-s.resetWas >= max(slideLeast, since/2):
		s.resets = max(s.resets, windowSlides)
		// Where what was used is forgotten steadily, it takes as long as there is to forget.
		switch differs := max(reset-before, before-reset); {
		case differs > slideLeast:
			s.resets = windowSlides
		case reset >= fixedReset && differs < rollsWithin && max(remaining-s.resetLeft, s.resetLeft-remaining)*minute >= rollsAfter*s.meters[Tokens].cap:
			s.resets = windowRolls
		case differs < rollsWithin:
			return // it is compared with what is left later
		}
	case at-s.resetWas < slideLeast && since >= 2*slideAfter:
		s.resets = windowFixed
	}
	s.resetFrom, s.resetWas, s.resetLeft = r.At, at, remaining
}

// mayAsk reports whether a call may find out whether what others have used is still counted, for
// want of which nothing goes.
func (s *State) mayAsk(d Dimension, need int64) bool {
	m := &s.meters[d]
	return d == Tokens && s.unseenOf(d) > 0 && s.unseenUntil-s.clock > shortWait && s.resets == windowUnknown && s.clock-max(m.markAt, s.askedAt) >= askEvery &&
		s.sum[d]+need <= m.limit
}
