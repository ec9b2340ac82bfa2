package quota

import "github.com/forebayhq/forebay"

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

// Holds reports whether a call is no larger than what the deployment admits in a minute. A larger
// one goes when nothing went for a minute, for estimates can be wrong. Where it can go elsewhere
// it need not try.
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

// Stopped reports whether nothing goes for an unknown time. An operator has paused the
// deployment, it fails, or it turns calls away.
func (s *State) Stopped() bool {
	return s.operator || s.breaker.state == Open || s.Denied() != NotDenied
}

// open says whether any call may go, and whether it would be a probe.
func (s *State) open() (v Verdict, probe bool) {
	if s.operator {
		return Verdict{Reason: forebay.WaitPaused}, false
	}
	v, probe = s.breaker.admits(s.clock)
	if v.Admitted() && s.clock < s.pause.until {
		v = Verdict{Reason: forebay.WaitQuota, RetryAt: s.pause.until}
	}
	return v, probe
}

func (s *State) take(r Request, cost, need Amount, probe bool) Reservation {
	s.seq++
	s.counts.Calls++
	s.asked(need[Tokens])
	s.window.add(s.clock, cost)
	s.pacing.add(&s.capacity, cost)
	s.estimate.sized(r.PromptTokens, cost[Tokens])
	underWay := s.window.justSent(s.clock)
	var spent Amount
	for d := range s.meters {
		s.meters[d].spent += cost[d]
		// What was settled upwards is in the window and not in the total.
		spent[d] = max(s.meters[d].spent-max(underWay[d]-cost[d], 0), 0)
	}
	res := Reservation{At: s.clock, Seq: s.seq, Amount: cost, Request: r, Probe: probe, Unwell: s.breaker.unwell(&s.timeline),
		Mixed: s.breaker.mixed != 0, Spent: spent, Left: s.window.leftBy(s.clock + sliceMillis), Total: s.meters[Tokens].spent}
	if probe {
		s.breaker.probing(&s.timeline, res.Seq)
	}
	return res
}

// fill applies the default for the output and bounds what can be asked for.
func (l Limits) fill(r Request) Request {
	if r.MaxOutputTokens == 0 {
		r.MaxOutputTokens = l.DefaultMaxOutputTokens
		if r.MaxOutputTokens <= 0 {
			r.MaxOutputTokens, r.Unnamed = AssumedOutputTokens, true
		}
	}
	r.MaxOutputTokens, r.PromptTokens = bounded(r.MaxOutputTokens), bounded(r.PromptTokens)
	return r
}

// cost is what the provider is expected to charge for a call at admission. need adds a margin for
// what the estimate may be wrong by.
func (c *capacity) cost(l Limits, r Request) (cost, need Amount) {
	cost[Requests] = 1
	prompt, output := c.estimate.prompt(r), c.estimate.countedOutput(r)
	margin := c.estimate.deviation(r.PromptTokens)
	switch l.Accounting {
	case AccountNone:
		return cost, cost
	case AccountOpenAI:
		cost[Tokens] = max(prompt, output)
		margin = min(margin, max(prompt+margin-output, 0))
	case AccountAnthropic:
		cost[Tokens] = prompt
		cost[OutputTokens] = c.estimate.output(r.MaxOutputTokens)
	case AccountAzurePTU:
		// It is corrected at completion, so what the answer will take is a better estimate than
		// any default.
		if r.Unnamed {
			output = min(c.estimate.answer(r), r.MaxOutputTokens)
		}
		cost[Tokens] = prompt + output
	default:
		cost[Tokens] = prompt + output
	}
	need = cost
	need[Tokens] += margin + c.meters[Tokens].cap/500
	return cost, need
}

// fits says whether every dimension has room for need.
func (s *State) fits(need Amount) Verdict {
	v := Verdict{}
	if at := s.askAt(); at > s.clock && need[Tokens] > 0 {
		return Verdict{Reason: forebay.WaitQuota, RetryAt: at}
	}
	for d := range dimensions {
		if need[d] == 0 {
			continue
		}
		if at := s.pacing.nextAt(&s.capacity, d); at > s.clock {
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

// delays reports whether a call that goes now takes from what is set aside. It does if it is
// still in the window when that is needed, or if the pace has not caught up by then.
func (s *State) delays(l Limits, r Request, h hold) bool {
	cost, _ := s.cost(l, l.fill(r))
	left := s.window.sum
	for i := 0; i < len(s.window.slices) && s.window.slices[i].leaves() <= h.at; i++ {
		left.sub(s.window.slices[i].amount)
	}
	for d := range dimensions {
		m := &s.meters[d]
		if h.need[d] == 0 || m.limit == 0 {
			continue
		}
		limit := m.limit - s.doubt(d)
		if h.at < s.unseen.until {
			limit -= s.unseenOf(d)
		}
		if left[d]+cost[d]+h.need[d] > limit || s.pacing.nextAfter(&s.capacity, d, cost[d]) > h.at {
			return true
		}
	}
	return false
}

// giveBack undoes a reservation. What the running totals count stays. A header is then read as if
// the call had been charged, until the next one says better.
func (s *State) giveBack(r Reservation) {
	back := Amount{}
	back.sub(r.Amount)
	s.window.correct(r.At, back)
	s.pacing.correct(&s.capacity, back)
}
