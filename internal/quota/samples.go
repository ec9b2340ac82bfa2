package quota

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

const (
	maxSamples    = 48
	maxSample     = 1 << 24
	agreedFactors = 350 // thousandths: by how much half of the samples may differ
)

// samples are the newest measurements of one quantity, oldest first. A minority may be wrong by
// any amount: others called meanwhile.
type samples struct {
	list []int64

	// What center has found of the list, until it changes. It is not stored.
	found          bool
	middle, widths float64
}

func (q *samples) add(v int64, most int) {
	if len(q.list) >= most {
		q.list = q.list[:copy(q.list, q.list[1:])]
	}
	q.list = append(q.list, min(max(v, 0), maxSample))
	q.found = false
}

func (q *samples) enough() bool { return len(q.list) >= enoughSamples }

func (q *samples) scale(by float64) {
	q.found = false
	for i, v := range q.list {
		q.list[i] = min(int64(float64(v)*by), maxSample)
	}
}

// center is the mean of the samples that agree. These are near the shortest interval that holds
// half of all (the shorth: Andrews et al., "Robust Estimates of Location", 1972). Others' calls
// only ever add, so a median would be too high by their share. It is not known while half of the
// samples differ by more than spread thousandths of it.
func (q *samples) center(spread int64) (center, width int64, known bool) {
	if !q.enough() {
		return 0, 0, false
	}
	if !q.found {
		q.found = true
		q.middle, q.widths = q.shorth()
	}
	center, width = int64(q.middle), int64(q.widths)
	return center, width, width <= center*spread/1000
}

func (q *samples) shorth() (middle, width float64) {
	n := len(q.list)
	var array [maxSamples]int64
	sorted := array[:copy(array[:], q.list)]
	slices.Sort(sorted)
	half := n/2 + 1
	at := 0
	for i := range n - half + 1 {
		if sorted[i+half-1]-sorted[i] < sorted[at+half-1]-sorted[at] {
			at = i
		}
	}
	low, high := sorted[at], sorted[at+half-1]
	wide := high - low
	// Of normal samples half are within 0.67 σ of the mean; all within 2 σ are taken.
	sum, count := int64(0), int64(0)
	for _, v := range sorted {
		if v >= low-wide && v <= high+wide {
			sum, count = sum+v, count+1
		}
	}
	return float64(sum / count), float64(wide)
}

// quantile follows a high quantile of a quantity that changes.
type quantile struct{ value, samples int64 } // value in sixteenths

const (
	quantilePart = 16
	highMille    = 950
)

// add moves the value up or down, in balance so that highMille of the samples are under it.
func (q *quantile) add(v int64) {
	v = min(max(v, 0), maxSample) * quantilePart
	q.samples = min(q.samples+1, 1<<30)
	switch {
	case q.samples <= enoughSamples:
		q.value = max(q.value, v)
	case v > q.value:
		q.value = min(q.value+q.value*highMille/1000/5+quantilePart, v)
	default:
		q.value -= q.value * (1000 - highMille) / 1000 / 5
	}
}

func (q *quantile) known() bool { return q.samples >= enoughSamples }

func (q *quantile) tokens() int64 { return q.value/quantilePart + 1 }

const (
	maxSources       = 12
	maxSourceSamples = 16
)

// SourceOf is the source of a tenant's jobs of one task. It is a digest (FNV-1a), so that what is
// stored names neither.
func SourceOf(tenant int64, task string) int64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.AppendVarint(nil, tenant))
	_, _ = h.Write([]byte(task))
	return int64(h.Sum64() | 1) // 0 is none
}

// source is what is learned of the jobs of one tenant and task. It is not used for another.
type source struct {
	key     int64
	at      int64 // when it was last heard of
	used    ratio
	answers quantile
	// factors are as in estimate. Providers that count characters differ from the use by what is
	// written.
	factors samples
}

func (e *estimate) source(key int64) *source {
	for i := range e.sources {
		if e.sources[i].key == key {
			return &e.sources[i]
		}
	}
	return nil
}

// sourceFor returns the source of a key. A new one may take the place of the one not heard of for
// longest. nil: jobs without a source.
func (e *estimate) sourceFor(key, now int64) *source {
	if key == 0 {
		return nil
	}
	s := e.source(key)
	if s == nil {
		if len(e.sources) < maxSources {
			e.sources = append(e.sources, source{})
			s = &e.sources[len(e.sources)-1]
		} else {
			s = &e.sources[0]
			for i := range e.sources {
				if e.sources[i].at < s.at {
					s = &e.sources[i]
				}
			}
		}
		*s = source{key: key, factors: samples{list: s.factors.list[:0]}}
	}
	s.at = now
	return s
}

// answered learns how long the answer was of a call that named no max output.
func (e *estimate) answered(r Request, output, now int64, silent bool) {
	if !r.Unnamed || output <= 0 {
		return
	}
	e.answers.add(output)
	if silent {
		e.silent = min(e.silent+1, 1<<30)
		e.mean += (min(output, maxSample)*quantilePart - e.mean) / min(e.silent, 64)
	}
	if s := e.sourceFor(r.Source, now); s != nil {
		s.answers.add(output)
	}
}

// answer is what a call's answer hardly exceeds, as far as is known.
func (e *estimate) answer(r Request) int64 {
	if s := e.source(r.Source); s != nil && s.answers.known() {
		return s.answers.tokens()
	}
	if e.answers.known() {
		return e.answers.tokens()
	}
	return r.MaxOutputTokens
}

// countedOutput is what is thought to be counted at admission for the output of a call.
func (e *estimate) countedOutput(r Request) int64 {
	if !r.Unnamed {
		return r.MaxOutputTokens
	}
	if center, width, known := e.unnamed.center(1000); known || e.unnamed.enough() && width < r.MaxOutputTokens {
		return center
	}
	if !e.guesses() {
		return r.MaxOutputTokens
	}
	switch most := e.answer(r); e.guess {
	case promptAlone:
		return defaultOutput
	case meanAnswer: // of the source, if all sources' answers vary alike
		return most * e.mean / max(e.answers.value, 1)
	default:
		return most
	}
}

// What is thought to be counted for the output of a call that names no max output, while headers
// do not tell. Only a refusal can tell then that it is too little, and nothing tells that it is
// too much. So the first guess is the least. OpenAI documents it: the larger of the prompt and a
// max output that is not there.
const (
	promptAlone   = iota
	meanAnswer    // what is produced, as by a provider that settles
	longestAnswer // what hardly any answer exceeds; where more is counted, the learned limit falls
)

const (
	// defaultOutput is the max_tokens of OpenAI's and Azure's older completions that name none.
	defaultOutput = 16
	// guessFor: refusals so soon after a guess was raised are of the same minute of the provider.
	guessFor  = minute
	guessKept = 10 * minute // after so long without a refusal the one before is tried again
)

// guesses reports whether the output counted is a guess: headers do not tell, and answers have
// shown what they take.
func (e *estimate) guesses() bool { return e.silent >= enoughSamples }

// guessed takes in that a call was refused which named no max output, and whether that was long
// before a minute's end. It reports whether too low a guess explains the refusal.
func (e *estimate) guessed(now int64, early bool) bool {
	switch {
	case !e.guesses() || e.guess == longestAnswer:
		return false
	case e.guessAt > 0 && now-e.guessAt < guessFor:
		return true
	case !early: // a few tokens may have been too many
		return false
	}
	e.guess++
	e.guessAt = now
	return true
}

// lowerGuess tries the guess before again, after some time without a refusal on tokens.
func (e *estimate) lowerGuess(now, throttledAt int64) {
	if e.guess > promptAlone && now-max(e.guessAt, throttledAt) >= guessKept {
		e.guess, e.guessAt = e.guess-1, now
	}
}
