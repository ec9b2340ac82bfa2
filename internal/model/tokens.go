package model

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"github.com/tiktoken-go/tokenizer"

	"github.com/forebayhq/forebay/internal/turns"
)

const (
	// exactBytes is the longest text that is counted exactly, which takes about 20 ms.
	exactBytes = 64 << 10
	// Longer texts are counted in sampleCount windows of sampleBytes, spread evenly.
	sampleCount = 8
	sampleBytes = 4 << 10
	// The texts of one request are counted separately up to exactTotal bytes together, and in
	// totalCount windows above. So a request costs at most about 200 ms.
	exactTotal = 512 << 10
	totalCount = 64
	// pieceBytes is how much text the codec gets at once. For some mixtures of white space, its
	// time grows with the square of the length.
	pieceBytes = 512
	// tokensPerMessage is what a chat format adds around each message, according to OpenAI.
	tokensPerMessage = 4
)

// codec is loaded at first use. Its vocabulary takes 20 ms and some memory.
var codec = sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(tokenizer.O200kBase) })

// EstimateTokens counts the o200k_base tokens of text: exactly up to 64 KiB, and by samples above.
// Words, numbers and white space of more than 512 bytes are counted in parts, which may add one
// token for each part. Tokens of other models differ by some ten percent.
//
// The time is at most linear in the length of text. The result never exceeds the length in bytes.
// EstimateTokens is safe for concurrent use. It pauses while the turn must wait. If the context of
// the turn has ended, the rest of the text counts one token for four bytes.
func EstimateTokens(turn *turns.Turn, text string) int {
	if len(text) <= exactBytes {
		return countTokens(turn, text)
	}
	return sampleTokens(turn, []string{text}, len(text), sampleCount)
}

// textTokens is EstimateTokens with its own turn.
func textTokens(ctx context.Context, text string) int64 {
	turn := turns.Begin(ctx)
	defer turn.End()
	return int64(EstimateTokens(turn, text))
}

// estimateAll returns the number of tokens in all texts of a request.
func estimateAll(turn *turns.Turn, texts []string) (tokens int) {
	total := 0
	for _, text := range texts {
		total += len(text)
	}
	if total > exactTotal {
		return sampleTokens(turn, texts, total, totalCount)
	}
	for _, text := range texts {
		tokens += EstimateTokens(turn, text)
	}
	return tokens
}

// sampleTokens counts windows that are spread evenly over texts of total bytes.
func sampleTokens(turn *turns.Turn, texts []string, total, windows int) int {
	stride := (total - sampleBytes) / (windows - 1)
	// begin is the offset of the text in all texts, and next is the next window.
	tokens, sampled, begin, next := 0, 0, 0, 0
	for _, text := range texts {
		end := begin + len(text)
		for w := next; w < windows && w*stride < end; w++ {
			from, to := runeStart(text, max(0, w*stride-begin)), runeStart(text, min(len(text), w*stride+sampleBytes-begin))
			tokens += countTokens(turn, text[from:to])
			sampled += to - from
			if w*stride+sampleBytes <= end {
				next = w + 1
			}
		}
		begin = end
	}
	return int(float64(tokens) / float64(max(1, sampled)) * float64(total))
}

// countTokens counts a text in pieces.
func countTokens(turn *turns.Turn, text string) (tokens int) {
	for len(text) > pieceBytes {
		if turn.Pause() != nil {
			return tokens + (len(text)+3)/4
		}
		end := pieceEnd(text)
		tokens += countPiece(text[:end])
		text = text[end:]
	}
	return tokens + countPiece(text)
}

func countPiece(text string) int {
	if c, err := codec(); err == nil {
		if n, err := c.Count(text); err == nil {
			// The codec skips DEL, which is a token of its own.
			return min(n+strings.Count(text, "\x7f"), len(text))
		}
	}
	return (len(text) + 3) / 4
}

// pieceEnd returns the end of the first piece of a text of more than pieceBytes. That is the last
// place before pieceBytes where a token surely begins, or else pieceBytes.
func pieceEnd(text string) int {
	for i := pieceBytes; i > 0; i-- {
		if !utf8.RuneStart(text[i]) {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i:])
		if parts(before, after) {
			return i
		}
	}
	return runeStart(text, pieceBytes)
}

// parts reports whether a token boundary surely lies between these characters. The vocabulary's
// pattern matches letters with marks and a contraction after them, up to three digits, or other
// characters with line ends after them. It matches a blank only before these or within white
// space.
func parts(before, after rune) bool {
	word := unicode.IsLetter(before) || unicode.IsNumber(before)
	if after == ' ' || after == '\t' {
		return word || unicode.In(before, unicode.M, unicode.P, unicode.S)
	}
	return word && after != '\'' && !unicode.In(after, unicode.L, unicode.M, unicode.N)
}

// runeStart returns the start of the rune that contains byte i of s.
func runeStart(s string, i int) int {
	for j := i; j > 0 && j > i-utf8.UTFMax && j < len(s); j-- {
		if utf8.RuneStart(s[j]) {
			return j
		}
	}
	return i
}

// promptTokens estimates the input tokens of a request's messages.
func (r ChatRequest) promptTokens(ctx context.Context) int64 {
	return r.need().promptTokens(ctx)
}

// need reads what the request says about the size of its prompt.
func (r ChatRequest) need() *forwardNeed {
	n := &forwardNeed{answers: int64(max(r.Answers, 1)), tokens: int64(len(r.JSONSchema)/4 + tokensPerMessage*len(r.Messages))}
	for _, m := range r.Messages {
		if m.Object != nil {
			n.add(gjson.ParseBytes(m.Object))
		} else {
			n.texts = append(n.texts, m.Content)
		}
	}
	for _, m := range r.Extra {
		if promptMembers[m.Name] {
			n.tokens += int64(len(m.Value) / 4)
		}
	}
	return n
}

// promptMembers are members of a request that count as part of the prompt.
var promptMembers = map[string]bool{"tools": true, "functions": true, "prediction": true}

// maxPromptTokens is a bound that costs nothing: a token has at least one byte.
func (r ChatRequest) maxPromptTokens() int64 {
	n := len(r.JSONSchema)
	for _, m := range r.Messages {
		n += max(len(m.Content), len(m.Object)) + tokensPerMessage
		if m.Object != nil { // a picture may have fewer bytes than tokens
			n += mediaTokens * bytes.Count(m.Object, []byte(`{`))
		}
	}
	for _, m := range r.Extra {
		n += len(m.Value)
	}
	return int64(n)
}

func (r ChatRequest) texts() []string {
	if slices.ContainsFunc(r.Messages, func(m Message) bool { return m.Object != nil }) {
		return r.need().texts
	}
	texts := make([]string, len(r.Messages))
	for i, m := range r.Messages {
		texts[i] = m.Content
	}
	return texts
}

func (r EmbedRequest) promptTokens(ctx context.Context) int64 {
	turn := turns.Begin(ctx)
	defer turn.End()
	return int64(estimateAll(turn, r.Inputs))
}

func (r EmbedRequest) maxPromptTokens() int64 {
	n := 0
	for _, in := range r.Inputs {
		n += len(in)
	}
	return int64(n)
}

func (r EmbedRequest) texts() []string { return r.Inputs }
