package quota

const (
	headerFresh  = 5 * second // how long after a call its headers say what is left
	headerSlides = 3 * second // the same where what was used is forgotten by and by
	coldFor      = 3 * second // so long after the first call in a minute others may overtake it
	resetLate    = 50         // milliseconds after the reset that headers name, for the clocks' sake
	shortWait    = 10 * second
	longWait     = 5 * second // of a refusal that is not one of the last few tokens of a minute
)

// capacity is how much of the quota is left, as far as the window, headers and refusals tell.
type capacity struct {
	timeline
	meters   [dimensions]meter
	window   window
	leftMark int64 // window.left when the call was made whose headers tell what is left
	provider providerWindow
	unseen   unseen
	margin   margin
	asking   asking
	estimate estimate
}

// follow sets a dimension's quota to what is configured or what the provider says, whichever is
// less.
func (c *capacity) follow(d Dimension, configured int64) {
	m := &c.meters[d]
	before := m.follow(c.clock, configured)
	if d != Tokens || before <= 0 || m.cap <= 0 || m.cap == before {
		return
	}
	kind := LimitLowered
	if m.cap > before {
		kind = LimitRestored
	}
	c.note(Change{Kind: kind, Limit: m.limit})
}

// room is what may be reserved now; unbounded when nothing is known.
func (c *capacity) room(d Dimension) (room int64, bounded bool) {
	m := &c.meters[d]
	window := m.limit - c.window.sum[d] - c.doubt(d) - c.unseenOf(d)
	if !c.headerHolds(d) {
		return window, m.limit > 0
	}
	said := c.saidRoom(d)
	// Headers count for more than the window, which does not know where the provider's minute
	// begins. Not so while the provider refuses less than they say, or has less to give than us.
	if d == Requests || m.limit > 0 && m.limit < m.headerLimit {
		if m.limit > 0 {
			said = min(said, window)
		}
	}
	return said, true
}

// saidRoom is what may be reserved by what headers said is left.
func (c *capacity) saidRoom(d Dimension) int64 {
	m := &c.meters[d]
	said := m.said()
	if d != Tokens {
		return said
	}
	since := max(c.clock-m.markAt, 0)
	counted := m.spent - m.mark
	if c.provider.kind == windowRolls {
		left := c.leftSince()
		said += left
		counted += left
	}
	if c.evolves() {
		said += c.unseen.freed(since, m.cap)
	}
	said -= c.estimate.deviationOf(counted) + c.margin.tokens
	return said - c.othersWithin(since+underway)
}

// othersWithin is what others may take within so many milliseconds. Where what they used is
// forgotten by and by, what is left no longer says what they take. But it says what they have used
// of a minute.
func (c *capacity) othersWithin(ms int64) int64 {
	perMinute := c.meters[Tokens].cap
	switch {
	case c.evolves():
		return c.estimate.varies(c.unseen.rate(), minute, ms, perMinute)
	case c.slides() && c.clock < c.unseen.until:
		return c.estimate.atRate(c.unseen.tokens, minute, ms, perMinute)
	}
	return c.estimate.atRate(c.estimate.others, c.estimate.othersIn, ms, perMinute)
}

// othersCall reports whether others are known to call.
func (c *capacity) othersCall() bool { return c.othersWithin(second) > 0 }

// unseenOf is what the provider counts that the window does not, as far as it takes from our
// quota. Where less is configured than the provider has, the rest is for others.
func (c *capacity) unseenOf(d Dimension) int64 {
	if d != Tokens {
		return 0
	}
	m := &c.meters[d]
	return max(c.unseen.counted(c.clock, c.slides())-max(m.headerLimit-m.cap, 0), 0)
}

// doubt is what the window may be wrong by. Where headers will tell soon, it is better to wait for
// them than to be refused.
func (c *capacity) doubt(d Dimension) int64 {
	if m := &c.meters[d]; d != Tokens || m.remaining == 0 || c.clock-m.markAt > minute {
		return 0
	}
	return c.estimate.deviationOf(c.window.sum[d])
}

func (c *capacity) headerIsFresh(d Dimension) bool { return c.clock < c.staleAt(d) }

// staleAt is when what headers said is left is no longer true. Where others use the same quota the
// window does not know how much they take. What headers said then holds until the reset, if the
// provider has shown that its minute has an end.
func (c *capacity) staleAt(d Dimension) int64 {
	m := &c.meters[d]
	if m.remaining == 0 {
		return 0
	}
	if d == Tokens && c.slides() { // there is more by and by
		return m.markAt + headerSlides + 1
	}
	at := m.markAt + headerFresh + 1
	if m.resetAt > 0 && m.resetAt <= at+shortWait {
		return m.resetAt
	}
	if d == Tokens && m.resetAt > at && m.resetAt-m.markAt < fixedReset && c.othersCall() {
		return m.resetAt
	}
	return at
}

// roomAt is when there will be room for need, as far as can be said: now, or later.
func (c *capacity) roomAt(d Dimension, need int64) int64 {
	room, bounded := c.room(d)
	if !bounded || need <= room {
		return c.clock
	}
	if c.mayAsk(d, need) || c.mayTry(d, need) {
		return c.clock
	}
	m := &c.meters[d]
	at := c.clock
	if d == Tokens && c.evolves() {
		again := c.clock + second/4
		if c.unseen.freed(second, m.cap) > 0 { // others may leave some sooner
			return again
		}
		return max(again, c.window.fitsAt(c.clock, d, need, c.window.sum[d]+room))
	}
	if c.headerIsFresh(d) && c.saidRoom(d) < need { // else the window alone has no room
		at = c.staleAt(d)
	}
	if m.limit == 0 {
		return at
	}
	limit, unseen := m.limit-c.doubt(d), c.unseenOf(d)
	at = max(at, c.window.fitsAt(c.clock, d, need, limit-unseen))
	if unseen > 0 {
		again := max(c.unseen.until, c.window.fitsAt(c.clock, d, need, limit))
		if c.provider.kind != windowFixed && c.unseen.until-c.clock > shortWait {
			again = min(again, c.clock+second/2) // less of it is counted soon, or one call may ask
		}
		at = min(at, again)
	}
	return at
}

// compare learns how much more the provider has counted than the window holds. That much is
// certain to count until the provider's minute is over. What headers say is left is not believed
// for so long, for others may have used some by then.
func (c *capacity) compare() {
	m, u := &c.meters[Tokens], &c.unseen
	u.tokens, u.until = 0, 0
	if m.headerLimit == 0 || m.resetAt == 0 {
		return
	}
	ours := c.window.sum[Tokens] - (m.spent - m.mark)
	switch {
	case c.provider.kind == windowRolls:
		ours += c.leftSince()
	case c.provider.kind == windowFixed && m.resetAt-c.clock > shortWait:
		// The provider counts our calls since its minute began.
		for _, s := range c.window.slices {
			if s.leaves() <= m.resetAt-resetLate {
				ours -= s.amount[Tokens]
			}
		}
	}
	ours = max(ours, 0)
	u.tokens, u.until = max(m.headerLimit-m.remaining-ours, 0), min(m.resetAt, m.markAt+minute)
	u.learnTrend(m.markAt, m.cap, c.slides())
}

// filled is the share of a limit that the window holds; 0 where the limit is unknown.
func (c *capacity) filled(d Dimension) float64 {
	if c.meters[d].limit == 0 {
		return 0
	}
	return float64(c.window.sum[d]) / float64(c.meters[d].limit)
}

// explains reports whether the headers of a refusal on tokens explain it: less was left than the
// call needed, because others have used it. Then the limit is what it was thought to be.
func (c *capacity) explains(r Reservation, h Headers) bool {
	m := &c.meters[Tokens]
	remaining := h.Remaining[Tokens]
	// 0 may be what is not said.
	told := remaining > 0 || remaining == 0 && m.remaining > 0 && c.clock-m.markAt <= minute
	return told && h.Limit[Tokens] > 0 && h.Limit[Tokens] < maxAmount && remaining < r.Amount[Tokens]
}

func (c *capacity) rewind(by, now int64) {
	rewind(by, &c.provider.from, &c.provider.was, &c.unseen.until, &c.unseen.trendAt, &c.margin.widenedAt,
		&c.asking.heardAt, &c.asking.askedAt, &c.asking.hearAfter)
	for d := range c.meters {
		m := &c.meters[d]
		rewind(by, &m.limitAt, &m.markAt, &m.resetAt)
	}
	c.estimate.rewind(by)
	c.window.rewind(by, now)
}

// plausible reports whether the package can have made this; ahead is the latest time that can be.
func (c *capacity) plausible(ahead int64) bool {
	for d := range c.meters {
		if !c.meters[d].plausible(c.clock, ahead) {
			return false
		}
	}
	if n := len(c.window.slices); n > 0 && c.window.slices[n-1].no > c.clock/sliceMillis+1 {
		return false
	}
	w, u, a := &c.provider, &c.unseen, &c.asking
	latest := max(w.from, w.was, u.until, u.trendAt, c.margin.widenedAt, a.heardAt, a.askedAt, a.hearAfter)
	return c.clock <= maxTime && latest <= ahead &&
		w.kind <= windowRolls && w.left <= maxAmount &&
		max(u.tokens, u.frees, u.takes, u.trendWas, c.margin.tokens) <= maxAmount &&
		c.estimate.plausible(c.seq, ahead)
}
