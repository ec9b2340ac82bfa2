package quota

import "time"

const (
	oversizeAfter = time.Hour // what Azure answers (86,400 s) to one request larger than the deployment
	pauseLeast    = 50        // after the time the provider named, for the clocks' sake
	pauseJitter   = 500
	pauseDefault  = 2 * second // when it named none; doubled while that goes on
	pauseLongest  = 30 * second
	marginMost    = 100 // the margin of what headers say is left is at most this part of the quota
	marginKept    = 5 * minute

	requestStep  = 2 // percent of the pace of requests that a refusal on them takes
	requestSteps = 12
	requestMost  = 50
	requestSoon  = 15 * second
	// requestCutFor is after how long without a refusal requests come a percent faster again.
	requestCutFor = 30 * second
)

// Feedback takes in what a call told. It is called at most once with HeadersArrived and once with how
// the call ended; feedback about a call that a lost process made never comes, and need not.
func (s *State) Feedback(now int64, l Limits, r Reservation, o Outcome, rnd Random) {
	if r.Seq <= 0 {
		return
	}
	s.advance(now, l)
	if o.Kind != HeadersArrived {
		if c := s.find(r.At); c != nil && c.open > 0 {
			c.open--
		}
	}
	if o.RetryAfter >= oversizeAfter && (o.Kind == Throttled || o.Kind == ThrottledTokens) {
		o.Kind = Oversize
	}
	if o.Kind != NotSent && o.Kind != Transient {
		s.read(l, r, o)
	}
	s.heard(r)
	switch o.Kind {
	case HeadersArrived:
		s.throttleRun = 0
		// An answer of any status has headers, so those of a call that may be denied say nothing yet.
		if r.Probe && s.breaker.denied == 0 {
			s.healthy(r)
		}
	case Succeeded:
		s.throttleRun = 0
		s.settle(l, r, o.Usage)
		s.healthy(r)
	case Throttled, ThrottledTokens, ThrottledRequests:
		s.throttled(l, r, o, rnd)
	case Oversize:
		s.counts.Oversize++
		s.giveBack(r)
		s.inconclusive(r)
	case Transient:
		s.counts.Failed++
		s.failing(r, rnd)
	case Denied:
		s.counts.Failed++
		s.turnedAway(r, o, rnd)
	case NotSent:
		s.giveBack(r)
		s.inconclusive(r)
	default:
		s.inconclusive(r)
	}
}

// settle corrects a reservation where the provider does. Azure's standard deployments and OpenAI do
// not: giving back there what was not used raised refusals from 4 % to 19 % of the calls.
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
			s.repace(by)
		}
	case AccountAzurePTU:
		by[Tokens] = charged + output - r.Amount[Tokens]
	case AccountAnthropic:
		by[Tokens] = charged - r.Amount[Tokens]
		by[OutputTokens] = output - r.Amount[OutputTokens]
		s.estimate.outputWas(output, r.Request.MaxOutputTokens)
	}
	s.correct(r, by)
	s.estimate.counted(r.Request, prompt, s.clock)
	m := &s.meters[Tokens]
	s.estimate.answered(r.Request, output, s.clock, m.remaining == 0 || s.clock-m.markAt > headerKept)
}

func bounded(tokens int64) int64 { return min(max(tokens, 0), maxAmount/8) }

// throttled handles a refusal: all processes pause, and the limit is taken for lower than it was. The
// reservation was not charged, unless this is a provider that counts refused calls.
func (s *State) throttled(l Limits, r Reservation, o Outcome, rnd Random) {
	s.counts.Throttled++
	s.inconclusive(r)
	said := o.RetryAfter.Milliseconds()
	// A refusal of the first call after a pause says that the pause was too short, or that refused calls
	// are counted as well: then only waiting longer gets out of it.
	if r.At >= s.pauseUntil {
		s.throttleRun = min(s.throttleRun+1, 8)
	}
	if s.throttleRun <= 1 {
		s.giveBack(r)
	}
	wait := said
	if own := min(int64(pauseDefault)<<max(s.throttleRun-1, 0), pauseLongest); said <= 0 || s.throttleRun > 1 && said < own {
		wait = own
	}
	until := s.clock + wait + pauseLeast + int64(rnd()*float64(min(pauseJitter, max(wait/4, pauseLeast))))
	if s.clock >= s.pauseUntil {
		s.note(Change{Kind: Paused, Until: until})
	}
	s.pauseUntil = max(s.pauseUntil, until)
	kind := o.Kind
	if kind == Throttled {
		kind = s.guess(l)
	}
	switch kind {
	case ThrottledRequests:
		s.slower(r, said)
	case ThrottledTokens:
		switch {
		case s.explained(r, o):
			s.widen(r, o)
		case r.Request.Unnamed && s.estimate.guessed(s.clock, s.early(r, said)):
		default:
			s.shrink(r.Amount[Tokens], said)
		}
		s.unheard(s.pauseUntil)
	}
	// Calls go on one by one and not in a burst, so that one refusal is heard before many are earned.
	m := &s.meters[Tokens]
	m.tat = max(m.tat, (s.pauseUntil+s.burst(Tokens))*1000)
}

// early reports whether a refusal came long before the provider's minute was over: it did before our window was full, or
// asks for a long pause, or came again after one.
func (s *State) early(r Reservation, asked int64) bool {
	return s.sum[Tokens]+r.Amount[Tokens] < s.meters[Tokens].limit*95/100 || s.throttleRun > 1 || asked > longWait
}

// explained reports whether a refusal on tokens says no more than its headers: that too little was left, as others have used it. Then
// the limit is what it was thought to be. It also tells whether the window slides: then there is room again long before the reset.
func (s *State) explained(r Reservation, o Outcome) bool {
	h := o.Headers
	if reset := h.Reset[Tokens]; o.RetryAfter > 0 && reset > 0 {
		switch early := (reset - o.RetryAfter).Milliseconds(); {
		case early >= slideLeast:
			s.resets = max(s.resets, windowSlides)
		case s.resets == windowUnknown && early > -slideLeast && reset.Milliseconds() > shortWait:
			s.resets = windowFixed
		}
	}
	m := &s.meters[Tokens]
	told := h.Remaining[Tokens] > 0 || h.Remaining[Tokens] == 0 && m.remaining > 0 && s.clock-m.markAt <= minute // 0 may be what is not said
	return told && h.Limit[Tokens] > 0 && h.Limit[Tokens] < maxAmount && h.Remaining[Tokens] < r.Amount[Tokens]
}

// widen has calls keep a greater distance from what headers say is left. It was less than they said by so much, for others have
// used it, or calls took long to arrive.
func (s *State) widen(r Reservation, o Outcome) {
	m := &s.meters[Tokens]
	if s.clock-s.widenedAt < second || r.At < s.widenedAt {
		return
	}
	s.widenedAt = s.clock
	s.margin = min(s.margin+max(r.Amount[Tokens]-o.Headers.Remaining[Tokens], m.cap/400), m.cap/marginMost)
}

// slower has requests come more evenly, and the slower the more often they are refused all the same: others make some too, or
// the network brings some together.
func (s *State) slower(r Reservation, wait int64) {
	kept := s.shortWindows()
	s.short.refused(r, s.clock, wait, s.others())
	if kept {
		s.burstCutUntil = s.clock + burstCutFor
		return
	}
	if r.At >= s.slowerAt {
		step := int64(requestStep)
		others := s.unseen > s.meters[Tokens].cap/50
		if others {
			step *= 3
		}
		if s.clock >= s.burstCutUntil {
			step /= 2 // less of a burst will mostly do
		} else if others && s.clock-s.slowerAt < requestSoon {
			step = min(2*max(s.requestStep, step), requestSteps)
		}
		s.requestStep = step
		s.requestCut = min(s.requestCut+step, requestMost)
		s.slowerAt = s.clock
	}
	s.burstCutUntil = s.clock + burstCutFor
}

// guess says what a refusal was on that does not say so: requests when their window is the fuller.
func (s *State) guess(l Limits) OutcomeKind {
	fill := func(d Dimension) float64 {
		if s.meters[d].limit == 0 {
			return 0
		}
		return float64(s.sum[d]) / float64(s.meters[d].limit)
	}
	switch {
	case l.Accounting == AccountNone, fill(Requests) >= 0.9 && fill(Requests) > fill(Tokens):
		return ThrottledRequests
	case fill(OutputTokens) >= 0.9 && fill(OutputTokens) > fill(Tokens):
		return Throttled // the pause will do: output is settled by what is real
	}
	return ThrottledTokens
}
