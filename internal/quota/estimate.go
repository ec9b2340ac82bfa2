package quota

import "math"

const (
	firstSigma    = 150 // thousandths, until learned
	enoughSamples = 8
	// halfAt is at how many tokens sums are halved, so that the newest thousands of calls count.
	halfAt      = 1 << 24
	ratioHalfAt = 1 << 21
	leastPrompt = 16 // tokens; of smaller prompts a few tokens' difference makes any factor
)

// estimate corrects what a call is thought to be charged.
//
// κ is the factor between our count of a prompt and the provider's. It has two parts. The use
// that answers report tells for each source of jobs how large its prompts really are. Headers
// tell how the charge differs from that use. That is the provider's way of counting, and the same
// for all sources.
//
// σ is how far single prompts are from κ. ω is the share of max output that is produced. The
// output that is counted for a call that names no max output is learned from headers, or else
// from what answers take.
type estimate struct {
	used            ratio // of prompts, by the use that answers reported
	sigma           int64 // in thousandths of a prompt, decaying; 0: not known
	produced, asked int64 // output of calls and their max output, decaying
	// squares are of prompts, in 1,024 tokens², sizes of what they were charged with; decaying.
	squares, sizes int64

	answers quantile // output of calls that named no max output, of all sources
	silent  int64    // such calls that were answered since headers last said what remains
	mean    int64    // of what they took, in sixteenths
	guess   int64    // what is thought to be counted for them without headers: promptAlone and others
	guessAt int64    // when a refusal last raised that, or time lowered it

	run     run
	factors samples // charge of a prompt / its use as estimated, in thousandths
	unnamed samples // tokens counted beside the prompt where no max output was named
	sources []source

	// What others take of the same quota: tokens in so many milliseconds, of the newest minutes.
	others, othersIn int64
	excess           int64 // by which ours was thought to be more than was taken, where others is 0
	base, last       mark
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

func (q *ratio) known() bool { return q.samples >= enoughSamples && q.guessed > 0 }

// factor is bounded: an estimate that is further off is not an estimate.
func (q *ratio) factor() float64 {
	if !q.known() {
		return 1
	}
	return bound(float64(q.charged)/float64(q.guessed), 4)
}

func bound(factor, most float64) float64 { return min(max(factor, 1/most), most) }

// use is the factor between our count of a source's prompts and their real size.
func (e *estimate) use(of int64) float64 {
	if s := e.source(of); s != nil && s.used.known() {
		return s.used.factor()
	}
	return e.used.factor()
}

// counting is the factor between the real size of a source's prompts and what is charged for them.
func (e *estimate) counting(of int64) float64 {
	if s := e.source(of); s != nil {
		if center, _, known := s.factors.center(agreedFactors); known {
			return float64(center) / 1000
		}
	}
	if center, _, known := e.factors.center(agreedFactors); known {
		return float64(center) / 1000
	}
	return 1
}

func (e *estimate) known() bool {
	_, _, known := e.factors.center(agreedFactors)
	return known || e.used.known()
}

// prompt is κ times an estimate.
func (e *estimate) prompt(r Request) int64 { return int64(float64(r.PromptTokens) * e.kappa(r.Source)) }

func (e *estimate) kappa(source int64) float64 { return bound(e.use(source)*e.counting(source), 4) }

// deviation is 2σ of a prompt.
func (e *estimate) deviation(tokens int64) int64 {
	sigma := e.sigma
	if sigma == 0 || !e.known() {
		sigma = firstSigma
	}
	return int64(float64(tokens) * 2 * float64(sigma) / 1000)
}

// deviationOf is 2σ of the sum of the prompts of many calls that cost so much together. Single
// errors even out, so it grows with the root.
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

// counted learns from a prompt whose real size is what the provider charges.
func (e *estimate) counted(r Request, real int64, now int64) {
	guessed := r.PromptTokens
	if guessed <= 0 || real <= 0 {
		return
	}
	s := e.sourceFor(r.Source, now)
	if s != nil && plausibleUse(real, guessed, &s.used) {
		before, known := e.use(r.Source), s.used.known()
		s.used.add(real, guessed)
		if !known && s.used.known() {
			// What headers told was compared with uncorrected estimates so far.
			s.factors.scale(before / s.used.factor())
		}
	}
	if !plausibleUse(real, guessed, &e.used) {
		return
	}
	before := e.used.factor()
	known := e.used.known()
	e.used.add(real, guessed)
	if !known && e.used.known() {
		e.factors.scale(before / e.used.factor())
		for i := range e.sources {
			if s := &e.sources[i]; !s.used.known() {
				s.factors.scale(before / e.used.factor())
			}
		}
	}
	if e.used.known() && !e.factors.enough() && guessed >= leastPrompt {
		e.deviates(float64(real)/float64(guessed)/e.use(r.Source) - 1)
	}
}

// plausibleUse reports whether a prompt's size can be right. One source's odd sizes are its own.
func plausibleUse(real, guessed int64, q *ratio) bool {
	middle, wide := 1.0, 4.0
	if q.known() {
		middle, wide = q.factor(), 2
	}
	sample := float64(real) / float64(guessed)
	return sample >= middle/wide && sample <= middle*wide
}

// deviates learns σ from by how much a prompt was off.
func (e *estimate) deviates(off float64) {
	if e.sigma == 0 {
		e.sigma = firstSigma
	}
	// Of a normal deviate, σ is 1.25 times the mean.
	e.sigma = max(e.sigma+(int64(1250*min(math.Abs(off), 1))-e.sigma)/32, 1)
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

func (e *estimate) rewind(by int64) {
	rewind(by, &e.base.at, &e.base.resetAt, &e.last.at, &e.last.resetAt, &e.run.since, &e.guessAt)
	for i := range e.run.calls {
		rewind(by, &e.run.calls[i].at, &e.run.calls[i].resetAt)
	}
	for i := range e.sources {
		rewind(by, &e.sources[i].at)
	}
}

func (e *estimate) plausible(seq, ahead int64) bool {
	latest := max(e.run.since, e.guessAt, e.base.at, e.base.resetAt, e.last.at, e.last.resetAt)
	return latest <= ahead && e.run.from <= seq+1 && e.sigma <= 100_000 &&
		max(e.used.charged, e.used.guessed, e.excess, e.base.left, e.last.left, e.others) <= maxAmount &&
		max(e.answers.value, e.mean) <= maxSample*quantilePart &&
		e.guess <= longestAnswer && e.othersIn <= 2*othersKept
}
