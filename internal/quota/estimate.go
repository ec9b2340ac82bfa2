package quota

import "math"

const (
	estimateSpan  = 3 * second // headers further apart have a refill between them too often
	firstSigma    = 150        // thousandths, until learned
	enoughSamples = 8
	strangeMost   = 250 // thousandths
	decayPerMille = 15
	halfAt        = 1 << 24 // tokens at which sums are halved: the newest some thousand calls count
)

// estimate corrects what a call is thought to be charged: κ, the factor between our count of a prompt
// and the provider's; σ, how far single prompts are from it; ω, the share of max output that is
// produced.
//
// Where providers charge at admission, κ and σ are learned from how "remaining" falls from one call to
// the next: by the charge of the calls in between, unless the window turned or refilled meanwhile.
// Such samples cannot be told apart one by one, but they are of an impossible size most of the time;
// when many are, this provider's remaining is not for learning from.
type estimate struct {
	charged, guessed int64 // prompts as the provider and as we counted them, decaying
	samples          int64
	strange          int64 // share of impossible samples, decaying, in thousandths
	sigma            int64 // in thousandths of a prompt, decaying; 0: not known
	produced, asked  int64 // output of calls and their max output, decaying
	squares, sizes   int64 // of prompts, in 1,024 tokens², and of what they were charged with, decaying

	// The call whose remaining was read last.
	seq, at, remaining, prompts, fixed int64
}

// prompt is κ times an estimate.
func (e *estimate) prompt(tokens int64) int64 {
	return int64(float64(tokens) * e.kappa())
}

// kappa is bounded: an estimate that is further off is not an estimate.
func (e *estimate) kappa() float64 {
	if e.samples < enoughSamples || e.guessed <= 0 {
		return 1
	}
	return min(max(float64(e.charged)/float64(e.guessed), 0.25), 4)
}

// deviation is 2σ of a prompt.
func (e *estimate) deviation(tokens int64) int64 {
	sigma := e.sigma
	if sigma == 0 || e.samples < enoughSamples {
		sigma = firstSigma
	}
	return int64(float64(tokens) * 2 * float64(sigma) / 1000)
}

// deviationOf is 2σ of the sum of the prompts of many calls that cost so much together: single errors
// even out, so it grows with the root.
func (e *estimate) deviationOf(cost int64) int64 {
	if cost <= 0 || e.sizes <= 0 || e.samples < enoughSamples {
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

// fell learns from what a call's headers say is left.
func (e *estimate) fell(r Reservation, remaining int64) {
	if r.Seq <= e.seq {
		return
	}
	guessed := r.Prompts - e.prompts
	fell := e.remaining - remaining - (r.Fixed - e.fixed)
	if e.seq > 0 && r.At-e.at <= estimateSpan && guessed > 0 {
		e.sample(fell, guessed, r.Seq-e.seq == 1)
	}
	e.seq, e.at, e.remaining, e.prompts, e.fixed = r.Seq, r.At, remaining, r.Prompts, r.Fixed
}

// counted learns from a prompt whose real size is what the provider charges.
func (e *estimate) counted(guessed, charged int64) {
	if guessed > 0 && charged > 0 {
		e.sample(charged, guessed, true)
	}
}

func (e *estimate) sample(charged, guessed int64, single bool) {
	ratio := float64(charged) / float64(guessed)
	middle, wide := 1.0, 4.0
	if e.samples >= enoughSamples {
		middle, wide = e.kappa(), 2
	}
	if ratio < middle/wide || ratio > middle*wide {
		e.strange += (1000 - e.strange) * decayPerMille / 1000
		return
	}
	e.strange -= e.strange * decayPerMille / 1000
	if e.strange > strangeMost {
		return
	}
	e.charged += charged
	e.guessed += guessed
	if e.guessed > halfAt {
		e.charged, e.guessed = e.charged/2, e.guessed/2
	}
	e.samples = min(e.samples+1, 1<<30)
	if single && e.samples > enoughSamples {
		off := int64(1250 * max(ratio-middle, middle-ratio)) // of a normal deviate, σ is 1.25 times the mean
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
