package modelsim

import (
	"strings"
	"unicode/utf8"
)

// answer is the text of one answer, or the arguments of its call of a tool.
type answer struct {
	text   string
	tokens int
	finish string // stop, length or tool_calls
	tool   string // "": none
}

// compose makes the answer to a request. The same words and seed give the same answer.
func (d *Service) compose(r *request, key uint64) (answer, error) {
	limit := r.maxOutput(d.MaxOutputTokens)
	if d.Content == ContentWork || r.structured() {
		text, finish, err := complete(r.asked(limit))
		return answer{text, tokensOf(text), r.finished(finish), r.demanded().name}, err
	}
	tokens, shortened := d.Length(key, limit)
	finish := "stop"
	if shortened {
		finish = "length"
	}
	return answer{prose(proseStarts[key%uint64(len(proseStarts))], tokens), tokens, finish, ""}, nil
}

// proseText is what answers of ContentText are made of.
const proseText = "The tide comes in twice a day, and the harbour waits for it. A pilot knows the bar by its colour, " +
	"the crews know the pilot by his whistle, and nobody sails on a falling glass. Cargo stands on the quay in the order " +
	"in which it was promised; what is late goes with the next boat. In the office a clerk writes down each crate once, " +
	"with the hour and the hand that took it, so that a quarrel can be settled by looking it up. "

// proseStarts is where the sentences of proseText begin.
var proseStarts = func() []int {
	starts := []int{0}
	for i := range len(proseText) - 2 {
		if proseText[i] == '.' {
			starts = append(starts, i+2)
		}
	}
	return starts
}()

// prose returns exactly that many tokens of proseText, beginning at a byte of it.
func prose(at, tokens int) string {
	size := tokens * 4
	var b strings.Builder
	b.Grow(size)
	for b.Len() < size {
		part := proseText[at:]
		b.WriteString(part[:min(len(part), size-b.Len())])
		at = 0
	}
	return b.String()
}

// pieces cuts a text into pieces of that many tokens. It splits no character.
func pieces(text string, tokens int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(text) > 0 {
			end := min(tokens*4, len(text))
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}
