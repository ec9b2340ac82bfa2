package quota

// A rolling window has no end at which it is empty. What was used leaves it after a minute: call
// by call (windowRolls), or steadily as from a bucket (windowSlides). So what a header said was
// left changes with time. Of our own calls the state knows when they leave. Of what others have
// used, the trend between two headers tells how fast that becomes less or more.

const (
	// slideLate is for how many milliseconds after a minute a call still counts, for it may have
	// arrived late.
	slideLate = 100
	// leapPart is the part of the quota that leaves a window at once if calls were made in a
	// burst.
	leapPart = 30
	// trendFor is how long a trend is trusted to go on.
	trendFor = 3 * second
	// slidesFor is how long a header tells what is left where only its trend is known.
	slidesFor = 10 * second
	// trendOver is the time over which trends are averaged.
	trendOver = 4 * second
	// trendApart is the least time between two headers that are compared.
	trendApart = second
	// trendLeast is the percentage of the quota that others must have used. Less may be calls on
	// their way.
	trendLeast = 5
)

// evolves reports whether it is known how what headers said is left changes with time.
func (s *State) evolves() bool {
	m := &s.meters[Tokens]
	if m.remaining <= 0 || s.clock >= m.markAt+minute {
		return false
	}
	known := s.resets == windowSlides && m.resetAt-m.markAt >= fixedReset && s.unseen >= m.cap*trendLeast/100
	return s.resets == windowRolls || known && s.clock < m.markAt+slidesFor
}

// headerHolds reports whether what headers said is left tells what is left now. Where a window
// slides it does as long as what leaves it is known.
func (s *State) headerHolds(d Dimension) bool {
	return d == Tokens && s.evolves() || s.headerIsFresh(d)
}

// freed is by how much less others are counted for than headers said so many milliseconds ago;
// below 0: more. What is not known to go on is a quarter of what an even use would leave, for
// those who used it may go on doing so.
func (s *State) freed(ms int64) int64 {
	if s.unseen < s.meters[Tokens].cap*trendLeast/100 {
		return 0
	}
	known := int64(0)
	if s.frees|s.takes != 0 {
		known = min(ms, trendFor)
	}
	return (s.frees-s.takes)*known/minute + s.unseen/4*(ms-known)/minute
}

// active is how many tokens a minute others are thought to take where the window slides.
func (s *State) active() int64 {
	if s.frees|s.takes == 0 {
		return s.unseen * 3 / 4
	}
	return max(s.unseen-s.frees+s.takes, 0)
}

// trend takes in how fast what others are counted for changes, where the window slides.
func (s *State) trend() {
	m := &s.meters[Tokens]
	if s.resets < windowSlides || s.unseen < m.cap*trendLeast/100 {
		s.frees, s.takes, s.trendAt = 0, 0, 0
		return
	}
	apart := m.markAt - s.trendAt
	if s.trendAt != 0 && apart < trendApart {
		return
	}
	if s.trendAt != 0 {
		rate, trend := float64(s.trendWas-s.unseen)*minute/float64(apart), float64(s.frees-s.takes)
		if trend == 0 {
			trend = rate
		}
		trend += (rate - trend) * float64(apart) / float64(apart+trendOver)
		s.frees, s.takes = min(max(int64(trend), 0), m.cap), min(max(int64(-trend), 0), m.cap)
	}
	s.trendAt, s.trendWas = m.markAt, s.unseen
}

// rises reports whether calls leave the window of a provider that rolls, so that what is left
// after one says nothing of what it was charged.
func (s *State) rises() bool {
	return s.resets == windowRolls && len(s.slices) > 0 && s.slices[0].leaves() <= s.clock+runPatience
}

// leftBy is what has left the window, and what will have at the provider by a time, where some of
// a slice leaves sooner.
func (s *State) leftBy(at int64) int64 {
	left := s.left
	for i := 0; i < len(s.slices) && s.slices[i].no*sliceMillis+minute <= at; i++ {
		left += s.slices[i].amount[Tokens]
	}
	return left
}

// leaps reports whether so many calls have left the window since headers were heard of that they
// came as a burst.
func (s *State) leaps() bool {
	return s.resets == windowRolls && s.headerHolds(Tokens) && s.left-s.leftMark > s.meters[Tokens].limit/leapPart
}

// mayTry reports whether a call that needs so much may find out how far what others have used is
// forgotten by now, where they seem to have stopped or nothing is known of that. There may be less
// room, so it is one call.
func (s *State) mayTry(d Dimension, need int64) bool {
	m := &s.meters[d]
	since := s.clock - m.markAt
	if d != Tokens || !s.evolves() || s.unseen < m.cap/2 || s.clock-max(m.markAt, s.askedAt) < askTimeoutCold ||
		s.frees|s.takes != 0 && s.frees-s.takes < s.unseen/4 {
		return false
	}
	room := m.remaining + s.left - s.leftMark + s.freed(since)
	for _, c := range s.slices {
		if c.no > m.markAt/sliceMillis {
			room -= c.amount[d]
		}
	}
	return need <= room
}
