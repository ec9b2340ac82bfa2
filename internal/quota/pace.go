package quota

const (
	tokenBurst   = 5 * second
	requestBurst = second
	requestSlice = second // in which a provider may count requests: half of its worth goes at once
	// requestLate is by how many milliseconds calls may make up for having gone late, where bursts
	// of requests are refused.
	requestLate = 20
	burstCutFor = 10 * minute

	maxPace     = 125 // percent of the limit
	evenPace    = 100
	minPace     = 95
	paceDown    = 10
	paceUp      = 5
	paceAfter   = minute // doubled by each refusal of a window that was not full
	paceForever = 5      // doublings at most

	requestStep  = 2 // percent of the pace of requests that a refusal on them takes
	requestSteps = 12
	requestMost  = 50
	requestSoon  = 15 * second
	// requestCutFor is after how long without a refusal requests come a percent faster again.
	requestCutFor = 30 * second
)

// pacing spreads calls over the minute.
type pacing struct {
	tat           [dimensions]int64 // GCRA's theoretical arrival times, in microseconds
	tokens        tokenPace
	requests      requestPace
	burstCutUntil int64 // until when requests go one by one
	short         shortWindow
	// bySlice: the provider documents that it counts requests by the second or by ten. That follows
	// from the configuration and is not stored.
	bySlice bool
}

// tokenPace is how fast tokens may be used.
type tokenPace struct {
	stored    int64 // in percent of the limit; 0: maxPace
	changedAt int64
	quiet     int64 // doublings of the time after which the pace recovers
}

func (p *tokenPace) percent() int64 {
	if p.stored == 0 {
		return maxPace
	}
	return p.stored
}

// slow lowers the pace, but not below least. It reports whether the pace was above that.
func (p *tokenPace) slow(now, least int64) bool {
	if p.percent() <= least {
		return false
	}
	p.stored = max(p.percent()-paceDown, least)
	p.changedAt = now
	p.quiet = min(p.quiet+1, paceForever)
	return true
}

// recover raises the pace after some time without a refusal.
func (p *tokenPace) recover(now int64) {
	if p.stored == 0 || now-p.changedAt < paceAfter<<p.quiet {
		return
	}
	p.changedAt = now
	if p.stored += paceUp; p.stored >= maxPace {
		p.stored, p.quiet = 0, 0
	}
}

// requestPace is by how much requests come slower than their limit.
type requestPace struct {
	cut       int64 // percent
	step      int64 // by how much that was raised last
	changedAt int64
}

// slow takes in a refusal, and whether bursts were refused lately. The pace falls faster where
// others make requests too.
func (p *requestPace) slow(now int64, others, burstsRefused bool) {
	step := int64(requestStep)
	if others {
		step *= 3
	}
	if !burstsRefused {
		step /= 2 // less of a burst will mostly do
	} else if others && now-p.changedAt < requestSoon {
		step = min(2*max(p.step, step), requestSteps)
	}
	p.step = step
	p.cut = min(p.cut+step, requestMost)
	p.changedAt = now
}

// recover raises the pace by a percent for each requestCutFor without a refusal.
func (p *requestPace) recover(now int64) {
	for p.cut > 0 && now-p.changedAt >= requestCutFor {
		p.changedAt += requestCutFor
		p.cut--
	}
}

// nextAt is when the pace allows the next call, whatever its size. If size counted, small calls
// would always be ahead of large ones.
func (p *pacing) nextAt(c *capacity, d Dimension) int64 {
	if d == Requests && p.keepsShort(c) {
		return p.nextInShort(c)
	}
	if p.rate(c, d) == 0 {
		return c.clock
	}
	return (p.tat[d]+999)/1000 - p.burst(c, d)
}

// nextAfter is the same once a call of some cost has gone now; 0: at any time.
func (p *pacing) nextAfter(c *capacity, d Dimension, cost int64) int64 {
	rate := p.rate(c, d)
	if rate <= 0 {
		return 0
	}
	tat := max(p.tat[d], c.clock*1000) + int64(float64(cost)/rate*1e6)
	return (tat+999)/1000 - p.burst(c, d)
}

// add enters a call that is made now, and that the window holds already.
func (p *pacing) add(c *capacity, a Amount) {
	if p.short.length != 0 {
		p.short.count(c.clock, a[Requests], c.window.underWay())
	}
	for d := range a {
		if rate := p.rate(c, Dimension(d)); rate > 0 {
			// A call larger than the quota blocks nobody for longer than a minute. Then the window
			// has its say.
			p.tat[d] = min(max(p.tat[d], c.clock*1000)+int64(float64(a[d])/rate*1e6), (c.clock+minute)*1000)
		}
	}
}

// correct changes what the pace has counted.
func (p *pacing) correct(c *capacity, by Amount) {
	for d := range by {
		if rate := p.rate(c, Dimension(d)); rate > 0 {
			p.tat[d] = min(max(p.tat[d]+int64(float64(by[d])/rate*1e6), 0), (c.clock+minute)*1000)
		}
	}
}

// resumeAt has calls go one by one after a pause and not in a burst. So one refusal is heard of
// before many are earned.
func (p *pacing) resumeAt(c *capacity, at int64) {
	p.tat[Tokens] = max(p.tat[Tokens], (at+p.burst(c, Tokens))*1000)
}

// burst is by how many milliseconds calls may be ahead of the pace.
func (p *pacing) burst(c *capacity, d Dimension) int64 {
	switch {
	case d != Requests:
		return tokenBurst * (p.tokens.percent() - minPace + 5) / (maxPace - minPace + 5)
	case c.clock < p.burstCutUntil:
		return min(requestLate, 30*second/max(c.meters[d].limit, 1))
	case p.bySlice:
		return max(requestSlice/2-minute/max(c.meters[d].limit, 1), requestLate)
	}
	return requestBurst
}

// rate is the pace of a dimension in units per second; 0: none.
func (p *pacing) rate(c *capacity, d Dimension) float64 {
	rate := float64(c.meters[d].limit) / 60
	if d != Requests {
		rate *= float64(p.tokens.percent()) / 100
	} else {
		rate *= float64(100-p.requests.cut) / 100
		if needed := p.requestsNeeded(c); needed > 0 {
			rate = min(rate, max(rate/4, needed))
		}
	}
	return rate
}

// requestsNeeded is how many requests a second use the tokens up, at twice the mean rate. Where
// bursts of requests are refused they need not come faster. 0: not known.
func (p *pacing) requestsNeeded(c *capacity) float64 {
	t, used := c.meters[Tokens].limit, &c.window.sum
	if t == 0 || c.clock >= p.burstCutUntil || used[Requests] < breakerCalls || used[Tokens] == 0 {
		return 0
	}
	return 2 * float64(t) / 60 * float64(used[Requests]) / float64(used[Tokens])
}

// requestRefused has requests come more evenly. They come the slower the more often they are
// refused all the same: others make some too, or the network brings some together.
func (p *pacing) requestRefused(c *capacity, r Reservation, wait int64) {
	kept := p.keepsShort(c)
	p.short.refused(r, c.clock, wait, c.othersCall())
	if !kept && r.At >= p.requests.changedAt {
		others := c.unseen.tokens > c.meters[Tokens].cap/50
		p.requests.slow(c.clock, others, c.clock < p.burstCutUntil)
	}
	p.burstCutUntil = c.clock + burstCutFor
}

// recover has calls come faster again after some time without a refusal.
func (p *pacing) recover(now int64) {
	p.tokens.recover(now)
	p.requests.recover(now)
	p.short.grow(now)
}

func (p *pacing) rewind(by int64) {
	w := &p.short
	rewind(by, &p.tokens.changedAt, &p.requests.changedAt, &p.burstCutUntil,
		&w.at, &w.cutAt, &w.from, &w.seenAt, &w.wasAt)
	rewind(by*1000, &p.tat[Tokens], &p.tat[Requests], &p.tat[OutputTokens])
}

func (p *pacing) plausible(seq, ahead int64) bool {
	latest := max(p.tokens.changedAt, p.requests.changedAt, p.burstCutUntil)
	return latest <= ahead && max(p.tat[Tokens], p.tat[Requests], p.tat[OutputTokens]) <= (ahead+minute)*1000 &&
		p.tokens.stored <= maxPace && (p.tokens.stored == 0 || p.tokens.stored >= minPace) && p.tokens.quiet <= paceForever &&
		p.requests.cut <= requestMost && p.requests.step <= requestSteps &&
		p.short.plausible(seq, ahead)
}
