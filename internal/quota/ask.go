package quota

const (
	// heardLately is for how long after a call was heard of nobody need ask before others go.
	heardLately = 5 * second
	// askTimeout is how long others wait until the call that asks is heard of.
	askTimeout     = 3 * second
	askTimeoutCold = 3 * second / 2
	// askAgain is for how long nobody need ask after a call that was not heard of in time.
	askAgain = 20 * second
	// askEvery is how often one call finds out whether what others have used is still counted.
	askEvery = 5 * second
	// coldCalls is how many calls go where nothing is known of the last minute.
	coldCalls = 2
)

// asking is about calls that go alone to find out what is left, while others wait.
//
// Calls from the beginning of a full window leave it all at once. As many may then go within an
// instant. It is not certain that they have left the provider's window as well: they may have
// reached it late. So where nothing was heard for a while one call goes first. The others follow
// once it is heard of.
type asking struct {
	// heardAt is when a call was heard of that tells how it is now. 0: none was since the last
	// refusal on tokens.
	heardAt   int64
	askedAt   int64 // when the latest call was made that asks; 0: none was
	hearAfter int64 // calls made before it tell nothing of how it is now
}

// heard notes that a call was heard of.
func (a *asking) heard(now, madeAt int64) {
	if madeAt >= max(a.askedAt, a.hearAfter) {
		a.heardAt = now
	}
}

// unheard has the first call at or after a time ask.
func (a *asking) unheard(after int64) {
	a.heardAt, a.askedAt, a.hearAfter = 0, 0, after
}

// askAt is when the next call may go: now, or when the one that asks is heard of at the latest.
func (c *capacity) askAt() (at int64) {
	m, a := &c.meters[Tokens], &c.asking
	if c.leaps() {
		if end := a.askedAt + askTimeout; a.askedAt > m.markAt && c.clock < end {
			return end
		}
		return c.clock
	}
	stale := c.staleAt(Tokens)
	switch {
	case m.limit == 0 || c.clock < stale:
		return c.clock
	case c.clock-a.heardAt < heardLately && (c.clock-m.markAt > minute || a.heardAt >= a.askedAt && a.askedAt >= stale):
		return c.clock // headers are not told, or no longer
	}
	timeout := int64(askTimeout)
	switch {
	case c.window.sum[Tokens] >= m.limit/2, c.clock-m.markAt <= minute && m.said() < m.headerLimit/2:
	case a.heardAt == 0 || c.clock-a.heardAt > minute:
		if timeout = askTimeoutCold; c.window.sum[Requests] < coldCalls {
			return c.clock
		}
	default:
		return c.clock
	}
	switch end := a.askedAt + timeout; {
	case a.askedAt < stale || c.clock >= a.askedAt+askAgain:
		return c.clock // this is the one that asks
	case a.heardAt < a.askedAt && c.clock < end:
		return end
	}
	return c.clock
}

// asked notes that a call goes that needs so much, and may be one that asks.
func (c *capacity) asked(need int64) {
	a := &c.asking
	if room, bounded := c.room(Tokens); bounded && room < need && need > 0 || c.leaps() && a.askedAt <= c.meters[Tokens].markAt {
		a.askedAt = c.clock
	}
	stale := c.staleAt(Tokens)
	if c.clock >= stale && (a.askedAt == 0 || a.askedAt < stale || c.clock >= a.askedAt+askAgain ||
		a.heardAt >= a.askedAt && c.clock-a.heardAt >= heardLately) {
		a.askedAt = c.clock
	}
}

// mayAsk reports whether a call may find out whether what others have used is still counted. It
// may where nothing else goes because of that.
func (c *capacity) mayAsk(d Dimension, need int64) bool {
	return d == Tokens && c.unseenOf(d) > 0 && c.unseen.until-c.clock > shortWait &&
		c.provider.kind == windowUnknown &&
		c.clock-max(c.meters[d].markAt, c.asking.askedAt) >= askEvery &&
		c.window.sum[d]+need <= c.meters[d].limit
}
