package quota

import (
	"cmp"
	"slices"
	"time"
)

// Status is a deployment as people want to see it.
type Status struct {
	Quota        Amount // per minute, as configured and as the provider says; 0: unknown
	Limit        Amount // what is used of it, as learned
	Used         Amount // reserved in the last 60 seconds
	InFlight     int64  // calls begun in the last 60 seconds that are not over
	PacePercent  int64
	PausedUntil  int64 // asked for by the provider; 0: not paused
	Operator     bool  // paused by an operator
	Breaker      BreakerState
	BreakerUntil int64   // of an open one
	Denied       Denial  // for which it is not closed, if that is not for failures
	Kappa        float64 // provider's count of a prompt / our estimate
	Sigma        float64
	// UnnamedOutput is how many tokens are counted for the output of a call that names no max
	// output. 0: they name one.
	UnnamedOutput int64
	Counts        Counts
}

// Status returns the state at now.
func (s *State) Status(now int64, l Limits) Status {
	s.advance(now, l)
	st := Status{Used: s.window.sum, InFlight: s.window.underWay(), PacePercent: s.pacing.tokens.percent(), Operator: s.operator, Breaker: s.breaker.state, Denied: s.Denied(),
		Kappa: s.estimate.kappa(0), UnnamedOutput: s.unnamedOutput(l), Sigma: float64(s.estimate.deviation(1e6)) / 2e6, Counts: s.counts}
	for d := range s.meters {
		st.Quota[d], st.Limit[d] = s.meters[d].cap, s.meters[d].limit
	}
	if now < s.pause.until {
		st.PausedUntil = s.pause.until
	}
	if s.breaker.state == Open {
		st.BreakerUntil = s.breaker.until
	}
	return st
}

// unnamedOutput is what is counted for the output of a call that names no max output.
func (c *capacity) unnamedOutput(l Limits) int64 {
	r := l.fill(Request{})
	// Anthropic's calls always name it.
	if !r.Unnamed || l.Accounting == AccountNone || l.Accounting == AccountAnthropic {
		return 0
	}
	cost, _ := c.cost(l, r)
	return cost[Tokens] + cost[OutputTokens]
}

// Clone returns a copy that shares nothing with the state.
func (s *State) Clone() *State {
	c := *s
	c.window.slices, c.passed, c.changes = slices.Clone(s.window.slices), slices.Clone(s.passed), nil
	c.breaker.outcomes = slices.Clone(s.breaker.outcomes)
	e := &c.estimate
	e.run.calls, e.sources = slices.Clone(e.run.calls), slices.Clone(e.sources)
	for i := range e.sources {
		e.sources[i].factors.list = slices.Clone(e.sources[i].factors.list)
	}
	e.factors.list, e.unnamed.list = slices.Clone(e.factors.list), slices.Clone(e.unnamed.list)
	return &c
}

// Drain estimates how long it takes until so much waiting work has been started, if nothing
// changes and nobody else is served. Tokens are as [State.Estimate] counts them. An operator's
// pause is not part of it.
func (s *State) Drain(now int64, l Limits, tokens, requests int64) time.Duration {
	s.advance(now, l)
	blocked := max(s.pause.until-s.clock, 0)
	if s.breaker.state != Closed {
		blocked = max(blocked, s.breaker.until-s.clock)
	}
	seconds := 0.0
	for d, amount := range map[Dimension]int64{Tokens: tokens, Requests: requests} {
		limit := s.meters[d].limit
		if limit == 0 || amount <= 0 {
			continue
		}
		// What leaves the window before the work can start is room as well.
		room := max(limit-s.window.sum[d], 0) + limit*blocked/minute
		rate := float64(limit) / 60
		if d == Tokens {
			rate = min(rate, s.pacing.rate(&s.capacity, d))
		}
		at := float64(max(amount-room, 0)) / rate
		seconds = max(seconds, at, float64(amount)/s.pacing.rate(&s.capacity, d)-tokenBurst/second)
	}
	return time.Duration(blocked)*time.Millisecond + time.Duration(min(seconds, 1e8)*float64(time.Second))
}

// Estimate is what a call is thought to be charged, in tokens of all kinds: the size of a job to
// Drain.
func (s *State) Estimate(l Limits, r Request) int64 {
	cost, _ := s.cost(l, l.fill(r))
	return cost[Tokens] + cost[OutputTokens]
}

// Size is what a call is thought to take, in tokens of all kinds: the size of a job to fair
// share. Where tokens are not charged it is the prompt and all of the max output. 0: nothing is
// known.
func (s *State) Size(l Limits, r Request) int64 {
	r = l.fill(r)
	cost, _ := s.cost(l, r)
	return size(cost, r)
}

// Size is what [State.Size] said of the call when this was reserved.
func (r *Reservation) Size() int64 { return size(r.Amount, r.Request) }

// Portion is how many minutes of what is scarcest a call is thought to take. It is the size of a
// job to fair share where a deployment does not take all that wait for it.
func (s *State) Portion(l Limits, r Request) float64 {
	r = l.fill(r)
	cost, _ := s.cost(l, r)
	return s.portion(cost, r)
}

// PortionOf is what [State.Portion] says of a call, by what was reserved for it.
func (s *State) PortionOf(r *Reservation) float64 { return s.portion(r.Amount, r.Request) }

func (c *capacity) portion(cost Amount, r Request) float64 {
	// Where no limit is known a deployment has so many tokens a minute. A call without tokens, as
	// of a function, counts as some: what counts nothing would be shared with nobody.
	const unlimited, noTokens = 100_000, 1_000
	portion, most := float64(cmp.Or(size(cost, r), noTokens))/unlimited, -1.0
	for d := range c.meters {
		if limit := float64(c.meters[d].limit); limit > 0 && float64(c.window.sum[d])/limit > most {
			portion, most = float64(cost[d])/limit, float64(c.window.sum[d])/limit
		}
	}
	return portion
}

func size(cost Amount, r Request) int64 {
	if tokens := cost[Tokens] + cost[OutputTokens]; tokens > 0 {
		return tokens
	}
	return r.PromptTokens + r.MaxOutputTokens
}

// Bound is what a call will hardly exceed. That is its prompt as the provider counts, with a
// margin for how far single ones are off, and all its max output.
func (s *State) Bound(l Limits, r Request) Usage {
	r = l.fill(r)
	prompt := s.estimate.prompt(r)
	return Usage{PromptTokens: prompt + s.estimate.deviation(prompt), OutputTokens: r.MaxOutputTokens}
}
