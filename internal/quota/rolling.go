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
	// slidesFor is how long a header tells what is left where only its trend is known.
	slidesFor = 10 * second
)

// slides reports whether the provider's window has no end at which it is empty.
func (c *capacity) slides() bool { return c.provider.kind >= windowSlides }

// evolves reports whether it is known how what headers said is left changes with time.
func (c *capacity) evolves() bool {
	m := &c.meters[Tokens]
	if m.remaining <= 0 || c.clock >= m.markAt+minute {
		return false
	}
	known := c.provider.kind == windowSlides && m.resetAt-m.markAt >= fixedReset && c.unseen.much(m.cap)
	return c.provider.kind == windowRolls || known && c.clock < m.markAt+slidesFor
}

// headerHolds reports whether what headers said is left tells what is left now. Where a window
// slides it does as long as what leaves it is known.
func (c *capacity) headerHolds(d Dimension) bool {
	return d == Tokens && c.evolves() || c.headerIsFresh(d)
}

// leftSince is how many tokens have left the window since the call was made whose headers tell
// what is left.
func (c *capacity) leftSince() int64 { return c.window.left - c.leftMark }

// rises reports whether calls are leaving a window that rolls. What is left after a call then
// says nothing of what it was charged.
func (c *capacity) rises() bool {
	first := c.window.slices
	return c.provider.kind == windowRolls && len(first) > 0 && first[0].leaves() <= c.clock+runPatience
}

// leaps reports whether a burst of calls has left the window since headers were heard of.
func (c *capacity) leaps() bool {
	return c.provider.kind == windowRolls && c.headerHolds(Tokens) && c.leftSince() > c.meters[Tokens].limit/leapPart
}

// mayTry reports whether a call may find out how far what others have used is forgotten by now.
// It may where others seem to have stopped, or where nothing is known of that. There may be less
// room, so it is one call.
func (c *capacity) mayTry(d Dimension, need int64) bool {
	m, u := &c.meters[d], &c.unseen
	since := c.clock - m.markAt
	if d != Tokens || !c.evolves() || u.tokens < m.cap/2 || c.clock-max(m.markAt, c.asking.askedAt) < askTimeoutCold ||
		u.hasTrend() && u.frees-u.takes < u.tokens/4 {
		return false
	}
	room := m.remaining + c.leftSince() + u.freed(since, m.cap)
	for _, s := range c.window.slices {
		if s.no > m.markAt/sliceMillis {
			room -= s.amount[d]
		}
	}
	return need <= room
}
