package quota

import "math"

const (
	estimateSpan  = 3 * second // headers further apart have a refill between them too often
	firstSigma    = 150        // thousandths, until learned
	enoughSamples = 8
	manyCalls     = 20
	strangeMost   = 250 // thousandths
	decayPerMille = 15
	halfAt        = 1 << 24 // tokens at which sums are halved, so that the newest thousands of calls count
	ratioHalfAt   = 1 << 21
)

// estimate corrects what a call is thought to be charged: κ, the factor between our count of a prompt
// and the provider's; σ, how far single prompts are from it; ω, the share of max output that is
// produced.
//
// Where the quota comes back once a minute, κ and σ are learned from how "remaining" falls from call to
// call. If it was renewed meanwhile the sample cannot be told from a good one, but it is of an
// impossible size most of the time; when many are, this remaining is not for learning from. Elsewhere
// they are learned from the use that answers report.
type estimate struct {
	told, used      ratio // of prompts, by headers and by the use that answers reported
	strange         int64 // share of impossible samples, decaying, in thousandths
	sigma           int64 // in thousandths of a prompt, decaying; 0: not known
	produced, asked int64 // output of calls and their max output, decaying
	squares, sizes  int64 // of prompts, in 1,024 tokens², and of what they were charged with, decaying

	// The call that the next ones are compared with.
	seq, at, remaining, prompts, fixed int64
	resetAt                            int64 // when that remaining is renewed; 0: not said
	alone                              int64 // 1: no other call was made about then
}

// ratio compares how the provider and how we counted the same prompts.
type ratio struct{ charged, guessed, samples int64 }

func (q *ratio) add(charged, guessed int64) {
	q.charged += charged
	q.guessed += guessed
	q.samples = min(q.samples+1, 1<<30)
	if q.guessed > ratioHalfAt {
		q.charged, q.guessed = q.charged/2, q.guessed/2
	}
}

// ratio returns what κ follows from: headers, which say what was charged, if there are enough.
func (e *estimate) ratio() *ratio {
	if e.told.samples >= enoughSamples {
		return &e.told
	}
	return &e.used
}

func (e *estimate) known() bool { return e.ratio().samples >= enoughSamples }

// prompt is κ times an estimate.
func (e *estimate) prompt(tokens int64) int64 {
	return int64(float64(tokens) * e.kappa())
}

// kappa is bounded: an estimate that is further off is not an estimate.
func (e *estimate) kappa() float64 {
	q := e.ratio()
	if q.samples < enoughSamples || q.guessed <= 0 {
		return 1
	}
	return min(max(float64(q.charged)/float64(q.guessed), 0.25), 4)
}

// deviation is 2σ of a prompt.
func (e *estimate) deviation(tokens int64) int64 {
	sigma := e.sigma
	if sigma == 0 || !e.known() {
		sigma = firstSigma
	}
	return int64(float64(tokens) * 2 * float64(sigma) / 1000)
}

// deviationOf is 2σ of the sum of the prompts of many calls that cost so much together: single errors
// even out, so it grows with the root.
func (e *estimate) deviationOf(cost int64) int64 {
	if cost <= 0 || e.sizes <= 0 || !e.known() {
		return 0
	}
	squares := float64(e.squares) * 1024 / float64(e.sizes) * float64(cost)
	return int64(2 * float64(e.sigma) / 1000 * math.Sqrt(squares))
}

// sized notes how large the prompts of calls are.
func (e *estimate) sized(prompt, cost int64) {
	prompt = min(prompt, 1<<24)
	e.squares += prompt * prompt / 1024
	e.sizes += min(cost, 1<<30)
	if e.sizes > halfAt {
		e.squares, e.sizes = e.squares/2, e.sizes/2
	}
}

// output is ω times max output; all of it until known.
func (e *estimate) output(most int64) int64 {
	if e.asked <= 0 {
		return most
	}
	return min(most, int64(float64(most)*float64(e.produced)/float64(e.asked))+1)
}

// fell learns from what a call's headers say is left: it fell by the charges of the calls since the
// call that it is compared with. Which those are is certain only where both were alone at their time,
// as calls overtake each other; among many calls, the few that are in doubt do not matter.
func (e *estimate) fell(r Reservation, remaining, resetAt int64, alone bool) {
	if r.Seq <= e.seq {
		return
	}
	calls := r.Seq - e.seq
	turned := e.resetAt > 0 && r.At+second > e.resetAt
	if e.seq > 0 && r.At-e.at <= estimateSpan && !turned {
		if certain := alone && e.alone != 0; certain || calls >= manyCalls {
			if guessed := r.Prompts - e.prompts; guessed > 0 {
				e.sample(&e.told, e.remaining-remaining-(r.Fixed-e.fixed), guessed, calls == 1)
			}
		} else if !alone {
			return
		}
	}
	e.seq, e.at, e.remaining, e.prompts, e.fixed, e.resetAt, e.alone = r.Seq, r.At, remaining, r.Prompts, r.Fixed, resetAt, 0
	if alone {
		e.alone = 1
	}
}

// counted learns from a prompt whose real size is what the provider charges.
func (e *estimate) counted(guessed, charged int64) {
	if guessed > 0 && charged > 0 {
		e.sample(&e.used, charged, guessed, true)
	}
}

func (e *estimate) sample(to *ratio, charged, guessed int64, single bool) {
	sample := float64(charged) / float64(guessed)
	middle, wide := 1.0, 4.0
	if e.known() {
		middle, wide = e.kappa(), 2
	}
	if sample < middle/wide || sample > middle*wide {
		if to == &e.told {
			e.strange += (1000 - e.strange) * decayPerMille / 1000
		}
		return
	}
	if to == &e.told {
		if e.strange -= e.strange * decayPerMille / 1000; e.strange > strangeMost {
			return
		}
	}
	to.add(charged, guessed)
	if single && e.known() && to == e.ratio() {
		off := int64(1250 * max(sample-middle, middle-sample)) // of a normal deviate, σ is 1.25 times the mean
		if e.sigma == 0 {
			e.sigma = firstSigma
		}
		e.sigma = max(e.sigma+(off-e.sigma)/32, 1)
	}
}

// outputWas learns how much of its max output a call produced.
func (e *estimate) outputWas(produced, most int64) {
	if most <= 0 {
		return
	}
	e.produced += min(produced, most)
	e.asked += most
	if e.asked > halfAt {
		e.produced, e.asked = e.produced/2, e.asked/2
	}
}
