package modelsim

import (
	"math"
	"slices"
	"strings"
)

// scored is a label and how well it fits.
type scored struct {
	label string
	score float64
}

// classify returns the labels, best first. labels must not be empty. A label scores by how often
// its own words and the words of its topic occur. When no label scores, a catch-all label comes
// first. Without one, it is the label whose letters look most like the text.
func classify(document string, labels []string) []scored {
	if isSentiment(labels) {
		return bySentiment(document, labels)
	}
	frequency := map[string]int{}
	total := 0
	for _, t := range terms(document) {
		frequency[t]++
		total++
	}
	order := make([]ranked, len(labels))
	best := 0.0
	for i, label := range labels {
		s := 0.0
		own := map[string]bool{}
		for _, t := range terms(label) {
			own[t] = true
			s += 3 * math.Log1p(float64(frequency[t]))
			for _, related := range topics[t] {
				if n := frequency[related]; n > 0 && !own[related] {
					own[related] = true
					s += math.Log1p(float64(n))
				}
			}
		}
		order[i] = ranked{i, s}
		best = max(best, s)
	}
	if best == 0 {
		fallback(document, labels, order)
	}
	rank(order)
	out := make([]scored, len(order))
	for i, r := range order {
		out[i] = scored{labels[r.index], r.score / math.Log(float64(total)+math.E)}
	}
	return out
}

// fallback scores labels that share no word with the text.
func fallback(document string, labels []string, order []ranked) {
	vector := embed(clip(document, 16<<10), DefaultDimensions)
	for i, label := range labels {
		if catchAll[strings.ToLower(strings.TrimSpace(label))] {
			order[i].score = 1e-3
			continue
		}
		dot := 0.0
		for d, v := range embed(clip(label, 1<<10), DefaultDimensions) {
			dot += float64(v) * float64(vector[d])
		}
		order[i].score = 1e-6 * dot
	}
}

// sentiment is how positive or negative a text is.
type sentiment struct {
	label string  // positive, negative, neutral, mixed
	score float64 // -1 to 1
}

var sentimentLabels = []string{"positive", "negative", "neutral", "mixed"}

func isSentiment(labels []string) bool {
	for _, label := range labels {
		if !slices.Contains(sentimentLabels, strings.ToLower(label)) {
			return false
		}
	}
	return true
}

// bySentiment ranks labels that are all sentiments.
func bySentiment(document string, labels []string) []scored {
	m := sentimentOf(document)
	fit := map[string]float64{"positive": m.score, "negative": -m.score, "neutral": 0.2 - math.Abs(m.score), "mixed": 0.1 - math.Abs(m.score)}
	fit[m.label] = 2
	order := make([]ranked, len(labels))
	for i, label := range labels {
		order[i] = ranked{i, fit[strings.ToLower(label)]}
	}
	rank(order)
	out := make([]scored, len(order))
	for i, r := range order {
		out[i] = scored{labels[r.index], r.score}
	}
	return out
}

// sentimentOf adds up the weights of the words in a lexicon. A negation up to three words before a
// word reverses and weakens it. An intensifier or a diminisher just before it scales it.
func sentimentOf(document string) sentiment {
	list := words(document)
	positive, negative := 0.0, 0.0
	for i, w := range list {
		weight, ok := lexicon[w]
		if !ok {
			continue
		}
		if i > 0 {
			if scale, ok := scales[list[i-1]]; ok {
				weight *= scale
			}
		}
		for j := i - 1; j >= 0 && j >= i-3; j-- {
			if negations[list[j]] || strings.HasSuffix(list[j], "n't") || strings.HasSuffix(list[j], "n’t") {
				weight *= -0.7
				break
			}
		}
		if weight > 0 {
			positive += weight
		} else {
			negative -= weight
		}
	}
	sum, most := positive+negative, max(positive, negative)
	score := math.Round(100*(positive-negative)/(sum+1)) / 100
	switch {
	case sum == 0 || len(list) > 100 && sum < 0.015*float64(len(list)):
		return sentiment{"neutral", math.Round(20*score) / 100}
	case min(positive, negative) >= 0.5*most && sum >= 2:
		return sentiment{"mixed", score}
	case score > 0.1:
		return sentiment{"positive", score}
	case score < -0.1:
		return sentiment{"negative", score}
	}
	return sentiment{"neutral", score}
}
