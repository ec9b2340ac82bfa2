package modelsim

import (
	"math"
	"unicode/utf8"
)

// tokensOf counts tokens as four bytes each, for quotas and for the usage of HTTP answers.
// Services estimate prompts in this way.
func tokensOf(s string) int { return (len(s) + 3) / 4 }

// tokensPerMessage is what the role and separators of a message count.
const tokensPerMessage = 3

// countTokens counts at least one token for every word, else as tokensOf. It limits the text of
// ContentWork, and is the usage that a Provider reports.
func countTokens(s string) int {
	n := 0
	eachWord(s, func(int, int) bool { n++; return true })
	return max(n, tokensOf(s))
}

// cutTokens returns s up to the last word that fits into max tokens, and whether it cut.
func cutTokens(s string, max int) (string, bool) {
	if countTokens(s) <= max {
		return s, false
	}
	n, fits := 0, 0
	eachWord(s, func(_, end int) bool {
		n++
		if n > max || (end+3)/4 > max {
			return false
		}
		fits = end
		return true
	})
	if fits == 0 {
		return clip(s, min(max, math.MaxInt/4)*4), true
	}
	return s[:fits], true
}

// cutWords returns s up to its max-th word.
func cutWords(s string, max int) string {
	n, cut := 0, len(s)
	eachWord(s, func(start, end int) bool {
		if n++; n == max {
			cut = end
		}
		return n <= max
	})
	if n <= max {
		return s
	}
	return s[:cut]
}

// clip returns the first max bytes of s. It splits no character.
func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max
	for end > 0 && end > max-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
