package quota

import "time"

// oversizeAfter tells refusals of one request larger than the deployment. Azure answers 86,400 s.
const oversizeAfter = time.Hour

// Feedback takes in what a call told. It is called at most once with HeadersArrived and once with
// how the call ended. Feedback about a call that a lost process made never comes, and need not.
func (s *State) Feedback(now int64, l Limits, r Reservation, o Outcome, rnd Random) {
	if r.Seq <= 0 {
		return
	}
	s.advance(now, l)
	r.At = min(r.At, s.clock) // the clock was set back since
	if o.Kind != HeadersArrived {
		s.window.over(r.At)
	}
	if o.RetryAfter >= oversizeAfter && (o.Kind == Throttled || o.Kind == ThrottledTokens || o.Kind == Oversize) {
		o.Kind = s.longRefusal(l, r, o)
	}
	if o.Kind != NotSent && o.Kind != Transient {
		s.read(l, r, o)
	}
	s.asking.heard(s.clock, r.At)
	switch o.Kind {
	case HeadersArrived:
		s.pause.run = 0
		// An answer of any status has headers, so those of a call that may be denied say nothing yet.
		if r.Probe && s.breaker.denied == 0 {
			s.breaker.healthy(&s.timeline, r)
		}
	case Succeeded:
		s.pause.run = 0
		s.settle(l, r, o.Usage)
		s.breaker.healthy(&s.timeline, r)
	case Throttled, ThrottledTokens, ThrottledRequests:
		s.throttled(l, r, o, rnd)
	case Oversize:
		s.counts.Oversize++
		s.giveBack(r)
		if o.RetryAfter >= oversizeAfter && s.mayFit(l, r, o) {
			s.breaker.turnedAway(&s.timeline, r, Outcome{Denial: Unpaid}, rnd)
		} else {
			s.breaker.inconclusive(&s.timeline, r)
		}
	case Transient:
		s.counts.Failed++
		s.breaker.failing(&s.timeline, r, rnd)
	case Denied:
		s.counts.Failed++
		s.breaker.turnedAway(&s.timeline, r, o, rnd)
	case NotSent:
		s.giveBack(r)
		s.breaker.inconclusive(&s.timeline, r)
	default:
		s.breaker.inconclusive(&s.timeline, r)
	}
}

// settle corrects a reservation where the provider does. Azure's standard deployments and OpenAI
// do not. Giving back there what was not used raised refusals from 4 % to 19 % of the calls.
func (s *State) settle(l Limits, r Reservation, u Usage) {
	if u == (Usage{}) {
		return
	}
	prompt, output := bounded(u.PromptTokens), bounded(u.OutputTokens)
	charged := max(prompt-bounded(u.CachedTokens), 0)
	by := Amount{}
	switch l.Accounting {
	case AccountAzureOpenAI, AccountOpenAI:
		// What was reserved is better known by now.
		if r.Request.Unnamed && s.estimate.guesses() {
			cost, _ := s.cost(l, r.Request)
			by[Tokens] = cost[Tokens] - r.Amount[Tokens]
			s.pacing.correct(&s.capacity, by)
		}
	case AccountAzurePTU:
		by[Tokens] = charged + output - r.Amount[Tokens]
	case AccountAnthropic:
		by[Tokens] = charged - r.Amount[Tokens]
		by[OutputTokens] = output - r.Amount[OutputTokens]
		s.estimate.outputWas(output, r.Request.MaxOutputTokens)
	}
	s.window.correct(r.At, by)
	s.estimate.counted(r.Request, prompt, s.clock)
	m := &s.meters[Tokens]
	s.estimate.answered(r.Request, output, s.clock, m.remaining == 0 || s.clock-m.markAt > headerKept)
}

// longRefusal is what a refusal with a long wait was. The call may be larger than the deployment.
// It is not where nobody counts tokens, nor where headers tell of a limit twice as large. Then
// something else is used up, such as a day's quota, and the next calls would be refused as well.
func (s *State) longRefusal(l Limits, r Reservation, o Outcome) OutcomeKind {
	limit := s.meters[Tokens].told(o.Headers.Limit[Tokens])
	if l.Accounting == AccountNone || limit > 0 && r.Amount[Tokens] <= limit/2 {
		return Throttled
	}
	return Oversize
}

// mayFit reports whether a call that was refused as too large may be no larger than what fits. No
// header tells, and no more than half of what is configured was asked for. If so all calls may be
// refused, such as for a day's quota. While others go well they are not: one tenant's large calls
// shall keep nobody away.
func (s *State) mayFit(l Limits, r Reservation, o Outcome) bool {
	configured := l.TokensPerMinute
	if s.breaker.state == Closed && s.breaker.wentWell(s.clock) {
		return false
	}
	return s.meters[Tokens].told(o.Headers.Limit[Tokens]) == 0 && (configured <= 0 || r.Amount[Tokens] <= configured/2)
}

func bounded(tokens int64) int64 { return min(max(tokens, 0), maxTokens) }

// throttled handles a refusal. All processes pause, and the limit is taken for lower than it was.
// The call was not charged, unless this is a provider that counts refused calls.
func (s *State) throttled(l Limits, r Reservation, o Outcome, rnd Random) {
	s.counts.Throttled++
	s.breaker.inconclusive(&s.timeline, r)
	said := o.RetryAfter.Milliseconds()
	s.pause.refused(&s.timeline, r.At, said, rnd)
	if s.pause.run <= 1 {
		s.giveBack(r)
	}
	kind := o.Kind
	switch {
	case o.RetryAfter >= oversizeAfter: // it says nothing of a minute's limit
		kind = Throttled
		s.asking.unheard(s.pause.until)
	case kind == Throttled:
		kind = s.refusedOn(l)
	}
	switch kind {
	case ThrottledRequests:
		s.pacing.requestRefused(&s.capacity, r, said)
	case ThrottledTokens:
		if reset := o.Headers.Reset[Tokens]; o.RetryAfter > 0 && reset > 0 {
			s.provider.refused((reset - o.RetryAfter).Milliseconds(), reset.Milliseconds())
		}
		switch cost := r.Amount[Tokens]; {
		case s.explains(r, o.Headers):
			s.margin.widen(s.clock, r.At, cost-o.Headers.Remaining[Tokens], s.meters[Tokens].cap)
		case r.Request.Unnamed && s.estimate.guessed(s.clock, s.early(cost, said)):
		default:
			s.learned.shrink(&s.capacity, &s.pacing.tokens, cost, said)
		}
		s.asking.unheard(s.pause.until)
	}
	s.pacing.resumeAt(&s.capacity, s.pause.until)
}

// early reports whether a refusal came long before the provider's minute was over. It did if our
// window was not full, if it asks for a long pause, or if it came again after one.
func (s *State) early(cost, asked int64) bool {
	return s.window.sum[Tokens]+cost < s.meters[Tokens].limit*95/100 || s.pause.run > 1 || asked > longWait
}

// refusedOn says what a refusal was on that does not say so: requests when their window is the
// fuller.
func (c *capacity) refusedOn(l Limits) OutcomeKind {
	switch tokens := c.filled(Tokens); {
	case l.Accounting == AccountNone, c.filled(Requests) >= 0.9 && c.filled(Requests) > tokens:
		return ThrottledRequests
	case c.filled(OutputTokens) >= 0.9 && c.filled(OutputTokens) > tokens:
		return Throttled // the pause will do: output is settled by what is real
	}
	return ThrottledTokens
}
