package modelsim

import (
	"math"
	"slices"
	"strings"
)

const (
	summarySentences = 4
	replyWords       = 60
)

// summarize returns the best sentences of the document, in their order. A sentence's score
// depends on its place and on the focus's terms in it. It also depends on how frequent its terms
// are in the document, damped by its length.
func summarize(document string, maxTokens, maxWords int, focus string) string {
	list := sentences(document)
	if len(list) == 0 {
		return ""
	}
	frequency := map[string]int{}
	parts := make([][]string, len(list))
	for i, s := range list {
		parts[i] = terms(s)
		for _, t := range parts[i] {
			frequency[t]++
		}
	}
	wanted := map[string]bool{}
	for _, t := range terms(focus) {
		wanted[t] = true
	}
	order := make([]ranked, len(list))
	for i, s := range list {
		order[i] = ranked{i, sentenceScore(s, parts[i], frequency, wanted) * (1 + 0.3/float64(1+i))}
	}
	rank(order)

	limit := summarySentences
	if maxWords > 0 {
		limit = max(1, maxWords/8)
	}
	var chosen []int
	seen := map[string]bool{}
	tokens, count := 0, 0
	for _, r := range order {
		s := list[r.index]
		t, n := countTokens(s)+1, len(words(s))
		if seen[s] || tokens+t > maxTokens || maxWords > 0 && count+n > maxWords {
			continue
		}
		seen[s] = true
		tokens += t
		count += n
		if chosen = append(chosen, r.index); len(chosen) == limit {
			break
		}
	}
	if len(chosen) == 0 { // even the best is too long
		best := list[order[0].index]
		if maxWords > 0 {
			best = cutWords(best, maxWords)
		}
		best, _ = cutTokens(best, maxTokens)
		return best
	}
	slices.Sort(chosen)
	for i, index := range chosen {
		list[i] = list[index] // index >= i: nothing still needed is overwritten
	}
	return strings.Join(list[:len(chosen)], " ")
}

func sentenceScore(s string, parts []string, frequency map[string]int, wanted map[string]bool) float64 {
	if len(parts) == 0 {
		return 0
	}
	score := 0.0
	counted := map[string]bool{}
	for _, t := range parts {
		if counted[t] {
			continue
		}
		counted[t] = true
		weight := math.Log1p(float64(frequency[t]))
		if wanted[t] {
			weight *= 6
		}
		score += weight
	}
	score /= math.Sqrt(float64(len(parts)) + 4)
	if !strings.ContainsAny(s[len(s)-1:], `.!?"')`) && len(parts) < 12 {
		score *= 0.4 // a heading, a list item
	}
	return score
}

// keyTerms returns the words of s that occur most, each as it is written first.
func keyTerms(s string, max int) []string {
	type entry struct {
		word  string
		count int
	}
	index := map[string]int{}
	var list []entry
	eachWord(s, func(start, end int) bool {
		w := s[start:end]
		lower := strings.ToLower(w)
		if stopWords[lower] || end-start < 3 {
			return true
		}
		key := stem(lower)
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, entry{word: w})
		}
		list[i].count++
		return true
	})
	order := make([]ranked, len(list))
	for i, e := range list {
		order[i] = ranked{i, float64(e.count)}
	}
	rank(order)
	out := []string{}
	for _, r := range order[:min(max, len(order))] {
		out = append(out, list[r.index].word)
	}
	return out
}

// reply answers a chat message with what the message says.
func reply(message string, maxTokens int) string {
	list := sentences(message)
	if len(list) == 0 {
		return "There is nothing in this message to answer."
	}
	keys := strings.Join(keyTerms(message, 5), ", ")
	var text string
	if last := list[len(list)-1]; strings.HasSuffix(last, "?") {
		text = "You ask: " + cutWords(last, replyWords)
		if context := strings.Join(list[:len(list)-1], " "); context != "" {
			text += " What you wrote that comes nearest: " + cutWords(summarize(context, maxTokens, replyWords, last), replyWords)
		} else if keys != "" {
			text += " As a simulated model I know no more than your message; it is about " + keys + "."
		}
	} else {
		text = "You write: " + cutWords(summarize(message, maxTokens, replyWords, ""), replyWords)
		if keys != "" && len(list) > 1 {
			text += " In short, this is about " + keys + "."
		}
	}
	return text
}
