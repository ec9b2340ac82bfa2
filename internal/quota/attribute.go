package quota

import (
	"cmp"
	"slices"
)

const (
	maxRun       = 24          // calls
	firstRun     = 6           // until something is known
	runPatience  = 10 * second // for headers of a run's calls
	apartMost    = 5 * second  // between two calls that are compared
	overtakeMost = second      // by which a call may be ahead of one made earlier
	resetsDiffer = 20 * second // those of two windows
)

// run is a number of calls made one after the other, with what their headers said was left. The
// charge of a call is the difference to what was left after the one before it. Calls overtake
// each other on the way, but what was left tells in which order the provider saw them. Others'
// calls in between add to single differences, and a refill spoils single ones.
type run struct {
	from  int64 // number of the first
	since int64 // when the first headers came; 0: none have
	calls []runCall
}

type runCall struct {
	seq, at, remaining, resetAt int64
	limit                       int64
	prompt                      int64 // real size as estimated
	output                      int64 // max output; -1: none was named
	source                      int64
}

// fell takes in what the headers of a call say is left.
func (e *estimate) fell(r Reservation, accounting Accounting, limit, remaining, resetAt, now, next int64) {
	e.silent = 0
	u := &e.run
	most := int64(maxRun)
	if !e.factors.enough() && !e.unnamed.enough() {
		most = firstRun
	}
	if inside := r.Seq >= u.from && r.Seq < u.from+maxRun; inside && len(u.calls) < maxRun &&
		!slices.ContainsFunc(u.calls, func(c runCall) bool { return c.seq == r.Seq }) {
		c := runCall{seq: r.Seq, at: r.At, remaining: remaining, resetAt: resetAt, limit: min(max(limit, 0), maxAmount), source: r.Request.Source,
			prompt: int64(float64(r.Request.PromptTokens) * e.use(r.Request.Source)), output: r.Request.MaxOutputTokens}
		if r.Request.Unnamed {
			c.output = -1
		}
		u.calls = append(u.calls, c)
		if u.since == 0 {
			u.since = now
		}
	} else if !inside && len(u.calls) == 0 {
		*u = run{from: next, calls: u.calls[:0]}
		return
	}
	if int64(len(u.calls)) >= most || u.since > 0 && now-u.since > runPatience {
		e.attribute(accounting)
		*u = run{from: next, calls: u.calls[:0]}
	}
}

// attribute learns from a run.
func (e *estimate) attribute(accounting Accounting) {
	calls := e.run.calls
	refilled := accounting == AccountOpenAI
	slices.SortFunc(calls, func(a, b runCall) int {
		if refilled { // what is left also rises, so it says nothing of the order
			return cmp.Compare(a.seq, b.seq)
		}
		return cmp.Or(cmp.Compare(b.remaining, a.remaining), cmp.Compare(a.seq, b.seq))
	})
	for i := 1; i < len(calls); i++ {
		a, c := calls[i-1], calls[i]
		apart := c.at - a.at
		if apart < -overtakeMost || apart > apartMost {
			continue
		}
		if a.resetAt > 0 && c.resetAt > 0 && !refilled && max(a.resetAt-c.resetAt, c.resetAt-a.resetAt) > resetsDiffer {
			continue
		}
		left := a.remaining
		if refilled && c.limit > 0 {
			left = min(left+c.limit*max(apart, 0)/minute, c.limit)
		}
		if charged := left - c.remaining; charged > 0 {
			e.charged(c, charged, refilled)
		}
	}
}

// charged learns from what one call was charged, and perhaps others with it.
func (e *estimate) charged(c runCall, charged int64, larger bool) {
	prompt := int64(float64(c.prompt) * e.counting(c.source))
	unnamed := c.output < 0
	switch {
	case larger && !unnamed:
		return // of what is the larger of two the prompt is seldom known; its use is
	case larger:
		// Of an output that is not above the prompt no more is known than that.
		if charged <= prompt*5/4+leastPrompt {
			charged = 0
		}
		e.unnamed.add(charged, maxSamples)
		return
	case unnamed:
		output, _, _ := e.unnamed.center(1000)
		if !e.unnamed.enough() || prompt < 4*max(output, leastPrompt) {
			e.unnamed.add(charged-prompt, maxSamples)
			return
		}
		charged -= output
	default:
		charged -= c.output
	}
	if c.prompt < leastPrompt {
		return
	}
	factor := charged * 1000 / c.prompt
	if factor < 250 || factor > 4000 {
		return
	}
	if center, width, known := e.factors.center(agreedFactors); known && factor >= center-3*width && factor <= center+3*width {
		e.deviates(float64(factor)/float64(center) - 1)
	}
	e.factors.add(factor, maxSamples)
	if s := e.source(c.source); s != nil {
		s.factors.add(factor, maxSourceSamples)
	}
}
