package modelsim

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// entity is something that the text names.
type entity struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

const maxEntities = 200

// patterns find what is recognised by its form. Earlier ones win where two overlap.
var patterns = []struct {
	kind    string
	pattern func() *regexp.Regexp
}{
	{"url", lazy(`\bhttps?://[^\s<>"'\x00]{1,500}|\bwww\.[^\s<>"'\x00]{1,500}`)},
	{"email", lazy(`\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}\b`)},
	{"money", lazy(`(?:US)?[$€£¥]\s?\d[\d,]{0,20}(?:\.\d+)?(?:\s?(?:thousand|million|billion|trillion|[kKmM])\b)?|\b\d[\d,]{0,20}(?:\.\d+)?\s?(?:(?:thousand|million|billion)\s)?(?:dollars|euros|pounds|cents|francs|USD|EUR|GBP)\b`)},
	{"percent", lazy(`\b\d{1,9}(?:\.\d{1,9})?\s?(?:%|percent\b|per cent\b)`)},
	{"date", lazy(`\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\b(?:\d{1,2}(?:st|nd|rd|th)?\s(?:of\s)?)?(?:January|February|March|April|May|June|July|August|September|October|November|December)(?:\s\d{1,2}(?:st|nd|rd|th)?\b)?(?:,?\s\d{4}\b)?|\b(?:1[0-9]|20)\d{2}\b`)},
	{"phone", lazy(`(?:\+\d{1,3}[\s.-]?)?(?:\(\d{2,4}\)|\b\d{2,4})[\s.-]\d{3,4}[\s.-]\d{3,4}\b`)},
}

type span struct {
	entity
	start, end int
}

// entities returns what the text names, each once, in order of first appearance.
func entities(document string) []entity {
	var found []span
	taken := make([]bool, len(document)+1)
	for _, p := range patterns {
		for _, at := range p.pattern().FindAllStringIndex(document, 50*maxEntities) {
			text := strings.TrimRight(document[at[0]:at[1]], ".,;:!?)]}")
			if text == "" || taken[at[0]] || p.kind == "date" && (text == "May" || text == "March") {
				continue // the verbs, more often than the bare months
			}
			for i := at[0]; i < at[0]+len(text); i++ {
				taken[i] = true
			}
			found = append(found, span{entity{p.kind, text}, at[0], at[0] + len(text)})
		}
	}
	found = append(found, names(document, taken)...)
	slices.SortStableFunc(found, func(a, b span) int { return a.start - b.start })
	out := []entity{}
	seen := map[entity]bool{}
	for _, s := range found {
		e := entity{s.Type, strings.Join(strings.Fields(s.Text), " ")}
		if !seen[e] && len(out) < maxEntities {
			seen[e] = true
			out = append(out, e)
		}
	}
	return out
}

// names finds runs of capitalised words that are not taken. Titles, endings, known names and the
// word before a run tell people, organizations and locations apart.
func names(document string, taken []bool) []span {
	var out []span
	var run [][2]int
	before := "" // the word before the run, in lower case; empty at the start of a sentence
	last, lastEnd := "", 0
	flush := func() {
		if s, ok := name(document, run, before); ok {
			out = append(out, s)
		}
		run = nil
	}
	eachWord(document, func(start, end int) bool {
		word := document[start:end]
		gap := document[lastEnd:start]
		fresh := lastEnd == 0 || strings.ContainsAny(clip(gap, 64), ".!?\n\r:\"“”") && !titles[last] && !initialBefore(document, lastEnd)
		joins := len(run) > 0 && !fresh && (gap == " " || gap == "\n" || gap == ". " || gap == "&" || gap == " & " || gap == "-")
		first, _ := utf8.DecodeRuneInString(word)
		switch {
		case taken[start]:
			flush()
		case unicode.IsUpper(first) && joins:
			run = append(run, [2]int{start, end})
		case unicode.IsUpper(first):
			flush()
			run = append(run, [2]int{start, end})
			if before = last; fresh {
				before = ""
			}
		case len(run) > 0 && joins && connectors[word] && nextIsUpper(document, end):
			run = append(run, [2]int{start, end})
		default:
			flush()
		}
		if len(run) > 8 { // a headline, not a name
			run = run[:0]
		}
		last, lastEnd = strings.ToLower(word), end
		return true
	})
	flush()
	return out
}

func initialBefore(document string, end int) bool {
	return end >= 2 && document[end-1] >= 'A' && document[end-1] <= 'Z' && document[end-2] == ' '
}

func nextIsUpper(document string, end int) bool {
	if end+1 >= len(document) || document[end] != ' ' {
		return false
	}
	r, _ := utf8.DecodeRuneInString(document[end+1:])
	return unicode.IsUpper(r)
}

// name decides whether a run is a name, and of what.
func name(document string, run [][2]int, before string) (span, bool) {
	lower := func(i int) string { return strings.ToLower(document[run[i][0]:run[i][1]]) }
	atStart := before == ""
	for len(run) > 0 && (stopWords[lower(0)] || notNames[lower(0)]) {
		run, atStart = run[1:], false
	}
	title := false
	for len(run) > 1 && titles[lower(0)] {
		run, title = run[1:], true
	}
	for len(run) > 0 && (connectors[lower(len(run)-1)] || notNames[lower(len(run)-1)]) {
		run = run[:len(run)-1]
	}
	if len(run) == 0 {
		return span{}, false
	}
	s := span{start: run[0][0], end: run[len(run)-1][1]}
	s.Text = strings.TrimSuffix(strings.TrimSuffix(document[s.start:s.end], "'s"), "’s")
	whole := strings.ToLower(s.Text)
	first := lower(0)
	ending := strings.TrimSuffix(strings.TrimSuffix(lower(len(run)-1), "'s"), "’s")
	upper := len(s.Text) >= 2 && len(s.Text) <= 6 && s.Text == strings.ToUpper(s.Text)
	switch {
	case title:
		s.Type = "person"
	case organizationWords[ending] || len(run) > 1 && organizationWords[first]:
		s.Type = "organization"
	case places[whole] || places[ending] && len(run) <= 2 && !firstNames[first]:
		s.Type = "location"
	case len(run) > 1 && (placeWords[ending] || placeWords[first]):
		s.Type = "location"
	case firstNames[first] && len(run) <= 4:
		s.Type = "person"
	case titles[before]:
		s.Type = "person"
	case upper && len(run) == 1 && !atStart:
		s.Type = "organization"
	case locative[before] && len(run) <= 2:
		s.Type = "location"
	case len(run) >= 2 && len(run) <= 3 && !upper:
		s.Type = "person"
	default:
		return span{}, false
	}
	return s, true
}
