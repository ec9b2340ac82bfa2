package quota

const (
	second = 1000
	minute = 60 * second

	maxAmount = 1 << 45 // no single quantity is larger; sums stay far from overflow
	maxTokens = 1 << 30 // of one prompt or answer
	maxTime   = 1 << 50 // the year 37648
)

// State is all that is known of one deployment. The zero value is one of which nothing is known.
// It is not safe for use from several goroutines.
type State struct {
	capacity
	learned  learnedLimit
	pacing   pacing
	pause    pause
	breaker  breaker
	passed   passedOver
	operator bool // paused by an operator
	counts   Counts
	gone     [goneScalars]int64 // places of what older versions stored; always 0
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
	s.pacing.bySlice = l.Accounting == AccountAzureOpenAI
	if s.provider.kind == windowRolls {
		s.window.expire(now - slideLate) // calls may have reached it late
	} else {
		s.window.expire(now)
	}
	for d, configured := range l.perMinute() {
		s.follow(Dimension(d), configured)
	}
	s.pacing.recover(now)
	s.margin.narrow(now)
	s.estimate.lowerGuess(now, s.learned.throttledAt)
	s.learned.grow(&s.capacity)
}

// rewind moves every time of the state back: the database's clock was set back.
func (s *State) rewind(by int64) {
	now := s.clock - by
	s.capacity.rewind(by, now)
	s.pacing.rewind(by)
	rewind(by, &s.pause.until, &s.learned.throttledAt, &s.learned.adjustedAt, &s.learned.grewAt)
	s.breaker.rewind(by, now)
	for i := range s.passed {
		rewind(by, &s.passed[i].since, &s.passed[i].seen)
	}
}
