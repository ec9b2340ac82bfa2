package modelsim

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// eachWord calls f with the bounds of each word, until f returns false. A word is a run of
// letters and digits with inner apostrophes. In scripts without spaces each character is a word.
func eachWord(s string, f func(start, end int) bool) {
	start := -1
	for i, r := range s {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			if start >= 0 && !f(start, i) || !f(i, i+utf8.RuneLen(r)) {
				return
			}
			start = -1
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			if start < 0 {
				start = i
			}
		case start >= 0 && (r == '\'' || r == '’') && letterAt(s, i+utf8.RuneLen(r)):
		default:
			if start >= 0 && !f(start, i) {
				return
			}
			start = -1
		}
	}
	if start >= 0 {
		f(start, len(s))
	}
}

func letterAt(s string, i int) bool {
	r, _ := utf8.DecodeRuneInString(s[i:])
	return unicode.IsLetter(r)
}

// words returns the words of s in lower case.
func words(s string) []string {
	var out []string
	eachWord(s, func(start, end int) bool {
		out = append(out, strings.ToLower(s[start:end]))
		return true
	})
	return out
}

// terms returns the stems of the words of s that carry meaning.
func terms(s string) []string {
	var out []string
	for _, w := range words(s) {
		if !stopWords[w] && (len(w) > 1 || w[0] >= utf8.RuneSelf) {
			out = append(out, stem(w))
		}
	}
	return out
}

// stem removes the commonest English endings from a lower-case word, so that its forms are the
// same.
func stem(w string) string {
	w = strings.TrimSuffix(strings.TrimSuffix(w, "'s"), "’s")
	switch {
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"):
		w = w[:len(w)-2]
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	switch {
	case len(w) > 5 && strings.HasSuffix(w, "ing"):
		w = undouble(w[:len(w)-3])
	case len(w) > 4 && strings.HasSuffix(w, "ed"):
		w = undouble(w[:len(w)-2])
	}
	if len(w) > 4 {
		w = strings.TrimSuffix(w, "e")
	}
	return w
}

// undouble turns "shipp" (from "shipped") into "ship".
func undouble(w string) string {
	if n := len(w); n > 2 && w[n-1] == w[n-2] && strings.IndexByte("bdgmnprt", w[n-1]) >= 0 {
		return w[:n-1]
	}
	return w
}

// sentences splits s at sentence ends, blank lines and list items, and makes all white space
// single spaces. It looks at each run of white space once, so its time is linear.
func sentences(s string) []string {
	var out []string
	start := 0
	emit := func(end int) {
		fields := strings.Fields(s[start:end])
		if len(fields) > 1 && startsItem(fields[0]+" ") {
			fields = fields[1:] // the mark of a heading or list item
		}
		if len(fields) > 0 {
			out = append(out, strings.Join(fields, " "))
		}
	}
	for i := 0; i < len(s); {
		r, width := utf8.DecodeRuneInString(s[i:])
		switch {
		case unicode.IsSpace(r):
			next, newlines := skipSpace(s, i)
			if newlines > 1 || newlines == 1 && startsItem(s[next:]) || endsSentence(s[start:i]) && startsSentence(s[next:]) {
				emit(i)
				start = next
			}
			i = next
		case r == '。' || r == '！' || r == '？':
			i += width
			emit(i)
			start = i
		default:
			i += width
		}
	}
	emit(len(s))
	return out
}

func skipSpace(s string, i int) (next, newlines int) {
	for i < len(s) {
		r, width := utf8.DecodeRuneInString(s[i:])
		if !unicode.IsSpace(r) {
			break
		}
		if r == '\n' {
			newlines++
		}
		i += width
	}
	return i, newlines
}

func startsItem(s string) bool {
	return s != "" && (s[0] == '#' || len(s) > 1 && strings.IndexByte("-*+", s[0]) >= 0 && s[1] == ' ')
}

func endsSentence(s string) bool {
	s = s[max(0, len(s)-64):] // the end is enough, and keeps the time linear
	s = s[strings.LastIndexAny(s, " \t\r\n")+1:]
	s = strings.TrimRight(s, `"')]”’»`)
	if strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "…") {
		return true
	}
	word, ok := strings.CutSuffix(s, ".")
	if !ok {
		return false
	}
	word = strings.TrimLeft(word, `"'([“‘«`)
	initial := utf8.RuneCountInString(word) == 1 && unicode.IsUpper([]rune(word)[0]) && word != "I"
	return !initial && (len(word) > 8 || !abbreviations[strings.ToLower(word)])
}

func startsSentence(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return !unicode.IsLower(r)
}

// ranked is an index with a score.
type ranked struct {
	index int
	score float64
}

// rank sorts best first. Equal scores keep their order.
func rank(list []ranked) {
	slices.SortStableFunc(list, func(a, b ranked) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
}

// lazy compiles an expression when it is first used: most processes simulate no model, and all
// would wait for it.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
