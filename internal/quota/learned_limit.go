package quota

const (
	throttleEvery = 15 * second // refusals so close together are one
	growAfter     = 20 * second // quiet for so long
	growEvery     = 10 * second
	growFirst     = 10_000 // millionths of the quota
	growMost      = 200_000
)

// learnedLimit is how the limit of tokens falls by refusals and grows again without.
type learnedLimit struct {
	throttledAt int64 // the latest refusal on tokens
	adjustedAt  int64 // the latest refusal that changed the limit
	grewAt      int64 // the latest growth of the limit
	step        int64 // the next growth, in millionths of the quota
}

// shrink lowers the limit or the pace after a refusal on tokens that asked to wait for so long.
//
// A refusal may come before the minute's worth was sent and not speak of the next minute. Then the
// provider counts over a shorter time: calls must come more evenly, not be fewer.
func (g *learnedLimit) shrink(c *capacity, p *tokenPace, cost, wait int64) {
	m := &c.meters[Tokens]
	first := g.throttledAt == 0 || c.clock-g.throttledAt > minute
	g.throttledAt = c.clock
	g.step = growFirst
	if g.adjustedAt != 0 && c.clock-g.adjustedAt < throttleEvery {
		return
	}
	g.adjustedAt = c.clock
	over := c.window.sum[Tokens] + cost // is more than there was
	if m.limit == 0 {                   // nothing is known
		if len(c.window.slices) == 0 {
			return // what was used when the call was made is forgotten: the pause will do
		}
		if wait <= shortWait {
			if first && wait > 0 {
				return // a moment's refusal, of which no limit follows: the pause will do
			}
			// It speaks of a rate. The sum of a window that is not a minute old does not show that.
			age := c.clock - c.window.slices[0].no*sliceMillis
			over = over * minute / min(max(age, shortWait/2), minute)
		}
		m.limit = max(over*98/100, 1)
		c.note(Change{Kind: LimitLowered, Limit: m.limit})
		return
	}
	full, even := over >= m.limit*9/10, int64(evenPace)
	if !full {
		even = minPace
	}
	if wait <= shortWait && p.slow(c.clock, even) && !full {
		return
	}
	m.limit = max(m.cap/5, m.limit*7/10, min(m.limit, over)*98/100, 1)
	c.note(Change{Kind: LimitLowered, Limit: m.limit})
}

// grow raises the limit again while nothing is refused.
func (g *learnedLimit) grow(c *capacity) {
	m := &c.meters[Tokens]
	if m.limit == 0 || m.cap > 0 && m.limit >= m.cap || c.clock-g.throttledAt < growAfter {
		return
	}
	if m.cap == 0 && c.clock-g.throttledAt > headerKept {
		m.limit = 0 // what was learned long ago where nothing is configured is no longer true
		return
	}
	g.grewAt = max(g.grewAt, g.throttledAt+growAfter-growEvery)
	for c.clock-g.grewAt >= growEvery {
		g.grewAt += growEvery
		g.step = min(max(g.step, growFirst), growMost)
		base := m.cap
		if base == 0 {
			base = m.limit
		}
		m.limit = min(m.limit+max(base/1000*g.step/1000, 1), maxAmount)
		g.step += g.step / 2
		if m.cap > 0 && m.limit >= m.cap {
			m.limit = m.cap
			c.note(Change{Kind: LimitRestored, Limit: m.limit})
			return
		}
	}
}
