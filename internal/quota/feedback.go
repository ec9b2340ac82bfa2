package quota

import "time"

const (
	oversizeAfter = time.Hour // what Azure answers (86,400 s) to one request larger than the deployment
	pauseLeast    = 50        // after the time the provider named, for the clocks' sake
	pauseJitter   = 500
	pauseDefault  = 2 * second // when it named none; doubled while that goes on
	pauseLongest  = 30 * second
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
	case AccountAzurePTU:
		by[Tokens] = charged + output - r.Amount[Tokens]
	case AccountAnthropic:
		by[Tokens] = charged - r.Amount[Tokens]
		by[OutputTokens] = output - r.Amount[OutputTokens]
		s.estimate.outputWas(output, r.Request.MaxOutputTokens)
	}
	s.correct(r, by)
	s.estimate.counted(r.Request, prompt, s.clock)
	s.estimate.answered(r.Request, output, s.clock)
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
	until := s.clock + wait + pauseLeast + int64(rnd()*pauseJitter)
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
		s.burstCutUntil = s.clock + burstCutFor
	case ThrottledTokens:
		s.shrink(r.Amount[Tokens], said)
	}
	// Calls go on one by one and not in a burst, so that one refusal is heard before many are earned.
	m := &s.meters[Tokens]
	m.tat = max(m.tat, (s.pauseUntil+s.burst(Tokens))*1000)
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
