package quota

import "github.com/forebayhq/forebay"

const (
	headerFresh  = 5 * second  // how long after a call its headers say what is left
	headerSlides = 3 * second  // the same where what was used is forgotten by and by
	coldFor      = 3 * second  // so long after the first call in a minute others may overtake it
	headerKept   = 10 * minute // how long a limit that the provider said is believed
	tokenBurst   = 5 * second
	requestBurst = second
	requestSlice = second // in which a provider may count requests: half of its worth goes at once
	// requestLate is by how much calls may make up for having gone late, where bursts of requests are refused.
	requestLate = 20
	fixedReset  = 50 * second // a rolling window is said to be renewed in a minute, whenever
)

// AssumedOutputTokens stands for a max output that nobody set, until more is known.
const AssumedOutputTokens = 4096

// Reserve sets aside what a call needs and admits it, or says why not and changes nothing.
func (s *State) Reserve(now int64, l Limits, r Request) (Reservation, Verdict) {
	s.advance(now, l)
	v, probe := s.open()
	if !v.Admitted() {
		return Reservation{}, v
	}
	r = l.fill(r)
	cost, need := s.cost(l, r)
	if v := s.fits(need); !v.Admitted() {
		return Reservation{}, v
	}
	return s.take(r, cost, need, probe), Verdict{}
}

// Holds reports whether a call is no larger than what the deployment admits in a minute. One that is larger goes when
// nothing went for a minute, for estimates can be wrong; where it can go elsewhere it need not try.
func (s *State) Holds(now int64, l Limits, r Request) bool {
	s.advance(now, l)
	cost, _ := s.cost(l, l.fill(r))
	for d := range s.meters {
		if limit := s.meters[d].cap; limit > 0 && cost[d] > limit {
			return false
		}
	}
	return true
}

// Stopped reports whether nothing goes, for who knows how long: an operator has paused the deployment, it fails, or it
// turns calls away.
func (s *State) Stopped() bool {
	return s.operator || s.breaker.state == Open || s.Denied() != NotDenied
}

// open says whether any call may go, and whether it would be a probe.
func (s *State) open() (v Verdict, probe bool) {
	if s.operator {
		return Verdict{Reason: forebay.WaitPaused}, false
	}
	v, probe = s.breaker.admits(s.clock)
	if v.Admitted() && s.clock < s.pauseUntil {
		v = Verdict{Reason: forebay.WaitQuota, RetryAt: s.pauseUntil}
	}
	return v, probe
}

func (s *State) take(r Request, cost, need Amount, probe bool) Reservation {
	s.seq++
	s.counts.Calls++
	s.asked(need[Tokens])
	s.reserve(cost)
	s.estimate.sized(r.PromptTokens, cost[Tokens])
	res := Reservation{At: s.clock, Seq: s.seq, Amount: cost, Request: r, Probe: probe, Unwell: s.unwell(), Mixed: s.breaker.mixed != 0, Left: s.leftBy(s.clock + sliceMillis), Total: s.meters[Tokens].spent}
	underWay := s.justSent()
	for d := range s.meters {
		// What was settled upwards is in the window and not in the total.
		res.Spent[d] = max(s.meters[d].spent-max(underWay[d]-cost[d], 0), 0)
	}
	if probe {
		s.probing(res.Seq)
	}
	return res
}

// justSent is what was reserved so recently that it may reach the provider after a call that is made
// now: calls overtake each other.
func (s *State) justSent() (a Amount) {
	since := s.clock/sliceMillis - 1
	if len(s.slices) > 0 && s.slices[0].no >= (s.clock-coldFor)/sliceMillis {
		since = 0 // connections are new, and some take long
	}
	for i := len(s.slices) - 1; i >= 0 && s.slices[i].no >= since; i-- {
		a.add(s.slices[i].amount)
	}
	return a
}

// fill applies the default for the output and bounds what can be asked for.
func (l Limits) fill(r Request) Request {
	if r.MaxOutputTokens == 0 {
		r.MaxOutputTokens = l.DefaultMaxOutputTokens
		if r.MaxOutputTokens <= 0 {
			r.MaxOutputTokens, r.Unnamed = AssumedOutputTokens, true
		}
	}
	r.MaxOutputTokens = min(max(r.MaxOutputTokens, 0), maxAmount/8)
	r.PromptTokens = min(max(r.PromptTokens, 0), maxAmount/8)
	return r
}

// cost is what the provider is expected to charge for a call at admission; need adds a margin for what
// the estimate may be wrong by.
func (s *State) cost(l Limits, r Request) (cost, need Amount) {
	cost[Requests] = 1
	prompt, output := s.estimate.prompt(r), s.estimate.countedOutput(r)
	margin := s.estimate.deviation(r.PromptTokens)
	switch l.Accounting {
	case AccountNone:
		return cost, cost
	case AccountOpenAI:
		cost[Tokens] = max(prompt, output)
		margin = min(margin, max(prompt+margin-output, 0))
	case AccountAnthropic:
		cost[Tokens] = prompt
		cost[OutputTokens] = s.estimate.output(r.MaxOutputTokens)
	case AccountAzurePTU:
		// It is corrected at completion, so what the answer will take is a better estimate than any default.
		if r.Unnamed {
			output = min(s.estimate.answer(r), r.MaxOutputTokens)
		}
		cost[Tokens] = prompt + output
	default:
		cost[Tokens] = prompt + output
	}
	need = cost
	need[Tokens] += margin + s.meters[Tokens].cap/500
	return cost, need
}

// fits says whether every dimension has room for need.
func (s *State) fits(need Amount) Verdict {
	v := Verdict{}
	if at := s.asking(); at > s.clock && need[Tokens] > 0 {
		return Verdict{Reason: forebay.WaitQuota, RetryAt: at}
	}
	for d := range dimensions {
		if need[d] == 0 {
			continue
		}
		if at := s.paced(d); at > s.clock {
			return Verdict{Reason: forebay.WaitQuota, RetryAt: at}
		}
		if at := s.roomAt(d, need[d]); at > s.clock {
			v = Verdict{Reason: forebay.WaitQuota, RetryAt: max(v.RetryAt, at), Smaller: d != Requests}
			if d == Requests {
				return v
			}
		}
	}
	return v
}

// room is what may be reserved now; unbounded when nothing is known.
func (s *State) room(d Dimension) (room int64, bounded bool) {
	m := &s.meters[d]
	window := m.limit - s.sum[d] - s.doubt(d) - s.unseenOf(d)
	if !s.headerHolds(d) {
		return window, m.limit > 0
	}
	said := m.remaining - (m.spent - m.mark)
	if d == Tokens {
		since := max(s.clock-m.markAt, 0)
		counted := m.spent - m.mark
		if s.resets == windowRolls {
			left := s.left - s.leftMark
			said += left
			counted += left
		}
		if s.evolves() {
			said += s.freed(since)
		}
		said -= s.estimate.deviationOf(counted) + s.margin
		said -= s.othersWithin(since + underway)
	}
	// The provider's own word counts for more than the window, which does not know where the
	// provider's minute begins. Not so while it refuses less than it says, or has less to give than us.
	if d == Requests || m.limit > 0 && m.limit < m.headerLimit {
		if m.limit > 0 {
			said = min(said, window)
		}
	}
	return said, true
}

// othersWithin is what others may take within so many milliseconds. Where what they used is forgotten by and by, what is
// left says no longer what they take, but they have used of a minute what is not ours.
func (s *State) othersWithin(ms int64) int64 {
	perMinute := s.meters[Tokens].cap
	switch {
	case s.evolves():
		return s.estimate.varies(s.active(), minute, ms, perMinute)
	case s.resets >= windowSlides && s.clock < s.unseenUntil:
		return s.estimate.atRate(s.unseen, minute, ms, perMinute)
	}
	return s.estimate.atRate(s.estimate.others, s.estimate.othersIn, ms, perMinute)
}

// unseenOf is what the provider counts that the window does not.
func (s *State) unseenOf(d Dimension) int64 {
	if d != Tokens || s.clock >= s.unseenUntil {
		return 0
	}
	if s.resets >= windowSlides {
		// Those who used it may go on doing so: three quarters of what they do would then be new.
		return s.unseen - s.unseen*min(max(minute-(s.unseenUntil-s.clock), 0), minute)/(4*minute)
	}
	return s.unseen
}

// doubt is what the window may be wrong by. Where headers will tell soon, it is better to wait for them
// than to be refused.
func (s *State) doubt(d Dimension) int64 {
	if m := &s.meters[d]; d != Tokens || m.remaining == 0 || s.clock-m.markAt > minute {
		return 0
	}
	return s.estimate.deviationOf(s.sum[d])
}

func (s *State) headerIsFresh(d Dimension) bool { return s.clock < s.staleAt(d) }

// staleAt is when what the headers said is left is no longer true. Where others take of the same quota, the window
// does not know how much, so the word holds until the reset, if the provider has shown that its minute has an end.
func (s *State) staleAt(d Dimension) int64 {
	m := &s.meters[d]
	if m.remaining == 0 {
		return 0
	}
	if d == Tokens && s.resets >= windowSlides { // there is more by and by
		return m.markAt + headerSlides + 1
	}
	at := m.markAt + headerFresh + 1
	if m.resetAt > 0 && m.resetAt <= at+shortWait {
		return m.resetAt
	}
	if d == Tokens && m.resetAt > at && m.resetAt-m.markAt < fixedReset && s.othersWithin(second) > 0 {
		return m.resetAt
	}
	return at
}

// roomAt is when there will be room for need, as far as can be said: now, or later.
func (s *State) roomAt(d Dimension, need int64) int64 {
	room, bounded := s.room(d)
	if !bounded || need <= room {
		return s.clock
	}
	if s.mayAsk(d, need) || s.mayTry(d, need) {
		return s.clock
	}
	m := &s.meters[d]
	at := s.clock
	if d == Tokens && s.evolves() {
		again := s.clock + second/4
		if s.freed(second) > 0 { // others may leave some sooner
			return again
		}
		return max(again, s.leftAt(d, need, s.sum[d]+room))
	}
	if s.headerIsFresh(d) {
		at = s.staleAt(d)
	}
	if m.limit == 0 {
		return at
	}
	limit, unseen := m.limit-s.doubt(d), s.unseenOf(d)
	at = max(at, s.leftAt(d, need, limit-unseen))
	if unseen > 0 {
		again := max(s.unseenUntil, s.leftAt(d, need, limit))
		if s.resets != windowFixed && s.unseenUntil-s.clock > shortWait { // less of it is counted soon, or one call may ask
			again = min(again, s.clock+second/2)
		}
		at = min(at, again)
	}
	return at
}

// leftAt is when so much has left the window that need is within the limit. When nothing is in it a call
// larger than the limit would never find more room than then.
func (s *State) leftAt(d Dimension, need, limit int64) int64 {
	at, left := s.clock, s.sum[d]
	for i := range s.slices {
		if left == 0 || left+need <= limit {
			break
		}
		left -= s.slices[i].amount[d]
		at = max(at, s.slices[i].leaves())
	}
	return at
}

// delays reports whether a call that goes now takes from what is set aside: it is still in the window when that is
// needed, or the pace has not caught up by then.
func (s *State) delays(l Limits, r Request, h hold) bool {
	cost, _ := s.cost(l, l.fill(r))
	left := s.sum
	for i := 0; i < len(s.slices) && s.slices[i].leaves() <= h.at; i++ {
		left.sub(s.slices[i].amount)
	}
	for d := range dimensions {
		m := &s.meters[d]
		if h.need[d] == 0 || m.limit == 0 {
			continue
		}
		limit := m.limit - s.doubt(d)
		if h.at < s.unseenUntil {
			limit -= s.unseenOf(d)
		}
		if left[d]+cost[d]+h.need[d] > limit {
			return true
		}
		if rate := s.rate(d); rate > 0 {
			tat := max(m.tat, s.clock*1000) + int64(float64(cost[d])/rate*1e6)
			if (tat+999)/1000-s.burst(d) > h.at {
				return true
			}
		}
	}
	return false
}

// paced is when the pace allows the next call, whatever its size: were size looked at, small calls
// would always be ahead of large ones.
func (s *State) paced(d Dimension) int64 {
	if d == Requests && s.shortWindows() {
		return s.inShortWindow()
	}
	if s.rate(d) == 0 {
		return s.clock
	}
	return (s.meters[d].tat+999)/1000 - s.burst(d)
}

// burst is by how many milliseconds calls may be ahead of the pace.
func (s *State) burst(d Dimension) int64 {
	switch {
	case d != Requests:
		return tokenBurst * (s.currentPace() - minPace + 5) / (maxPace - minPace + 5)
	case s.clock < s.burstCutUntil:
		return min(requestLate, 30*second/max(s.meters[d].limit, 1))
	case s.bySlice:
		return max(requestSlice/2-minute/max(s.meters[d].limit, 1), requestLate)
	}
	return requestBurst
}

// rate is the pace of a dimension in units per second; 0: none.
func (s *State) rate(d Dimension) float64 {
	rate := float64(s.meters[d].limit) / 60
	if d != Requests {
		rate *= float64(s.currentPace()) / 100
	} else {
		rate *= float64(100-s.requestCut) / 100
		if needed := s.requestsNeeded(); needed > 0 {
			rate = min(rate, max(rate/4, needed))
		}
	}
	return rate
}

// requestsNeeded is how many requests a second, at twice the mean rate, use the tokens up, where bursts of requests are
// refused: they need not come faster. 0: not known.
func (s *State) requestsNeeded() float64 {
	t := s.meters[Tokens].limit
	if t == 0 || s.clock >= s.burstCutUntil || s.sum[Requests] < breakerCalls || s.sum[Tokens] == 0 {
		return 0
	}
	return 2 * float64(t) / 60 * float64(s.sum[Requests]) / float64(s.sum[Tokens])
}
