package extract

import (
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Chunk is a part of a text that is embedded and found as a whole: Body[Start:End].
type Chunk struct {
	Start, End int      // bytes
	StartRune  int      // the same in characters
	EndRune    int      //
	Tokens     int      // about: the sum of its sentences'
	Headings   []string // that it stands under, the highest first
	Page       int      // on which it begins, from 1; 0: there are none
}

// Chunker cuts texts into chunks.
type Chunker struct {
	MaxTokens int
	Overlap   int              // tokens at most that a chunk has in common with the one before; under half of MaxTokens
	Count     func(string) int // of tokens; at most as many as the text has bytes
}

// Split returns the chunks of a text, in order. They hold all of it except white space. A heading
// begins a new chunk, unless the text before it is short. No chunk ends with a heading. An
// overlap consists of whole sentences and does not cross a heading.
func (c Chunker) Split(t Text) []Chunk {
	s := splitting{Chunker: c, text: t}
	s.units = c.unitsOf(t)
	for i := 0; i < len(s.units); {
		i = s.next(i)
	}
	s.place()
	return s.chunks
}

// unit is a sentence, a line or, where these are too long, a part of one.
type unit struct {
	start, end int
	tokens     int
	paragraph  bool // it begins one
	heading    int  // index + 1 of the heading that it is; 0: none
}

type splitting struct {
	Chunker
	text   Text
	units  []unit
	chunks []Chunk
}

// next makes the chunk that begins with unit i, and returns where the next one begins.
func (s *splitting) next(i int) int {
	tokens, end, border := 0, i, -1
	for ; end < len(s.units); end++ {
		u := s.units[end]
		if end > i && (tokens+u.tokens > s.MaxTokens || u.end-s.units[i].start > maxChunkBytes*s.MaxTokens) {
			break
		}
		if end > i && u.heading > 0 && s.units[end-1].heading == 0 && tokens >= s.MaxTokens/4 {
			border = end
			break
		}
		if end > i && u.paragraph && tokens >= s.MaxTokens/2 {
			border = end // the last good place to end
		}
		tokens += u.tokens
	}
	whole := end == len(s.units)
	if !whole && border > i && s.units[end].heading == 0 {
		end = border
	}
	for !whole && end-1 > i && s.units[end-1].heading > 0 {
		end-- // a heading belongs to what follows
	}
	s.add(i, end)
	if whole || s.units[end].heading > 0 {
		return end
	}
	return s.overlap(i, end)
}

// overlap returns where the next chunk's overlap with this one begins. It prefers the beginning
// of a paragraph, if there is one near enough, to that of a sentence.
func (s *splitting) overlap(begin, end int) int {
	tokens, from, paragraph := s.units[end].tokens, end, -1
	for j := end - 1; j > begin && s.units[j].heading == 0; j-- {
		if tokens += s.units[j].tokens; tokens-s.units[end].tokens > s.Overlap || tokens > s.MaxTokens {
			break
		}
		from = j
		if s.units[j].paragraph {
			paragraph = j
		}
	}
	if paragraph > 0 {
		return paragraph
	}
	return from
}

func (s *splitting) add(from, to int) {
	c := Chunk{Start: s.units[from].start, End: s.units[to-1].end}
	for _, u := range s.units[from:to] {
		c.Tokens += u.tokens
	}
	s.chunks = append(s.chunks, c)
}

// place sets the position of each chunk: characters, headings and pages.
func (s *splitting) place() {
	headings := outlineOf(s.text.Headings)
	at, runes := 0, 0
	for i := range s.chunks {
		c := &s.chunks[i]
		if c.Start < at { // the overlap
			runes -= utf8.RuneCountInString(s.text.Body[c.Start:at])
		} else {
			runes += utf8.RuneCountInString(s.text.Body[at:c.Start])
		}
		c.StartRune = runes
		runes += utf8.RuneCountInString(s.text.Body[c.Start:c.End])
		c.EndRune, at = runes, c.End
		c.Headings = headings.pathAt(c.Start)
		c.Page = sort.SearchInts(s.text.Pages, c.Start+1)
	}
}

// outline is a text's headings with the number of the one that each stands under; -1: none.
type outline struct {
	headings []Heading
	above    []int
}

func outlineOf(headings []Heading) outline {
	o := outline{headings, make([]int, len(headings))}
	for i, h := range headings {
		up := i - 1
		for up >= 0 && headings[up].Level >= h.Level {
			up = o.above[up]
		}
		o.above[i] = up
	}
	return o
}

// pathAt returns the headings over a place in the text.
func (o outline) pathAt(offset int) (path []string) {
	last := sort.Search(len(o.headings), func(i int) bool { return o.headings[i].Offset > offset }) - 1
	for i := last; i >= 0; i = o.above[i] {
		path = append(path, o.headings[i].Title)
	}
	slices.Reverse(path)
	return path
}

// unitsOf splits a text into units.
func (c Chunker) unitsOf(t Text) (units []unit) {
	heading, begin, paragraph := 0, 0, true
	for begin < len(t.Body) {
		end := len(t.Body)
		if i := strings.IndexByte(t.Body[begin:], '\n'); i >= 0 {
			end = begin + i
		}
		for heading < len(t.Headings) && t.Headings[heading].Offset < begin {
			heading++
		}
		switch {
		case strings.TrimSpace(t.Body[begin:end]) == "":
			paragraph = true
		case heading < len(t.Headings) && t.Headings[heading].Offset <= end:
			units = c.appendUnits(units, t.Body, begin, end, true)
			units[len(units)-1].heading = heading + 1
			paragraph = true
		default:
			units = c.appendSentences(units, t.Body, begin, end, paragraph)
			paragraph = false
		}
		begin = end + 1
	}
	return units
}

// appendSentences splits a line after each end of a sentence.
func (c Chunker) appendSentences(units []unit, body string, begin, end int, paragraph bool) []unit {
	from := begin
	ended := false
	for i, r := range body[begin:end] {
		switch {
		case ended && unicode.IsSpace(r):
			units = c.appendUnits(units, body, from, begin+i, paragraph && from == begin)
			from, ended = begin+i, false
		case r == '.' || r == '!' || r == '?' || r == '…':
			ended = true
		case r == '。' || r == '！' || r == '？': // no white space follows these
			units = c.appendUnits(units, body, from, begin+i+utf8.RuneLen(r), paragraph && from == begin)
			from, ended = begin+i+utf8.RuneLen(r), false
		case ended && (r == '"' || r == '\'' || r == ')' || r == '”' || r == '’' || r == '»'):
		default:
			ended = false
		}
	}
	return c.appendUnits(units, body, from, end, paragraph && from == begin)
}

// maxChunkBytes bounds a chunk's bytes for each token it may have, because white space may be
// long.
const maxChunkBytes = 16

// bytesPerToken bounds the text whose tokens are counted at once. A text with more bytes for each
// token is split first.
const bytesPerToken = 8

// appendUnits adds body[begin:end] without the white space around it. It halves a text with too
// many tokens.
func (c Chunker) appendUnits(units []unit, body string, begin, end int, paragraph bool) []unit {
	begin += len(body[begin:end]) - len(strings.TrimLeftFunc(body[begin:end], unicode.IsSpace))
	end = begin + len(strings.TrimRightFunc(body[begin:end], unicode.IsSpace))
	if begin >= end {
		return units
	}
	tokens := c.MaxTokens + 1
	if end-begin <= bytesPerToken*c.MaxTokens {
		tokens = max(1, c.Count(body[begin:end]))
	}
	if tokens <= c.MaxTokens || end-begin <= utf8.UTFMax {
		return append(units, unit{start: begin, end: end, tokens: tokens, paragraph: paragraph})
	}
	middle := middleOf(body, begin, end)
	units = c.appendUnits(units, body, begin, middle, paragraph)
	return c.appendUnits(units, body, middle, end, false)
}

// middleOf is a place near the middle: at white space if there is some, else between two
// characters.
func middleOf(body string, begin, end int) int {
	middle := begin + (end-begin)/2
	for i := middle; i > begin+(end-begin)/4; i-- {
		if body[i] == ' ' || body[i] == '\t' {
			return i
		}
	}
	for middle > begin+1 && !utf8.RuneStart(body[middle]) {
		middle--
	}
	return middle
}
