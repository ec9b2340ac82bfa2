package model

import (
	"context"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"github.com/forebayhq/forebay/internal/turns"
)

const (
	// exactBytes is the longest text that is counted whole: about 20 ms.
	exactBytes = 64 << 10
	// Longer texts are counted in sampleCount windows of sampleBytes, spread evenly.
	sampleCount = 8
	sampleBytes = 4 << 10
	// The texts of one request are counted one by one while they are at most exactTotal bytes together, and in
	// totalCount windows above: so a request costs at most about 200 ms.
	exactTotal = 512 << 10
	totalCount = 64
	// pieceBytes is how much the codec is given at once. What it needs for some mixtures of white space grows with
	// the square of their length.
	pieceBytes = 512
	// tokensPerMessage is what a chat format adds around each message, by OpenAI's own account.
	tokensPerMessage = 4
)

// codec is loaded at the first use: its vocabulary takes 20 ms and some memory.
var codec = sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(tokenizer.O200kBase) })

// EstimateTokens counts the o200k_base tokens of text, exactly up to 64 KiB and by samples above. A word, a number or
// white space of more than 512 bytes is counted in parts, which may be a token more for each. Other models' tokens
// differ by some ten per cent. It takes time in proportion to the length of text at most, never exceeds that length in
// bytes, and is safe for concurrent use. It pauses when it is not the turn's time; a turn whose context has ended leaves
// the rest uncounted, at four bytes a token.
func EstimateTokens(turn *turns.Turn, text string) int {
	if len(text) <= exactBytes {
		return countTokens(turn, text)
	}
	return sampleTokens(turn, []string{text}, len(text), sampleCount)
}

// textTokens is EstimateTokens in a turn of its own.
func textTokens(ctx context.Context, text string) int64 {
	turn := turns.Begin(ctx)
	defer turn.End()
	return int64(EstimateTokens(turn, text))
}

// estimateAll returns the tokens of all the texts of a request.
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

// sampleTokens counts windows that are spread evenly over texts of so many bytes together.
func sampleTokens(turn *turns.Turn, texts []string, total, windows int) int {
	stride := (total - sampleBytes) / (windows - 1)
	tokens, sampled, begin, next := 0, 0, 0, 0 // begin: of the text in all of them; next: the window to go on with
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

// countTokens counts a text piece by piece.
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
			// The codec passes over DEL, which is a token of its own.
			return min(n+strings.Count(text, "\x7f"), len(text))
		}
	}
	return (len(text) + 3) / 4
}

// pieceEnd returns where the first piece of a text of more than pieceBytes ends: at the last place before at which a token
// begins in any case, or after pieceBytes if there is none.
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

// parts reports whether no token holds these characters one after the other. The vocabulary's pattern takes letters with
// marks and a contraction behind them, up to three digits, or other characters with line ends behind them. It takes a blank
// only before these, or among white space.
func parts(before, after rune) bool {
	word := unicode.IsLetter(before) || unicode.IsNumber(before)
	if after == ' ' || after == '\t' {
		return word || unicode.In(before, unicode.M, unicode.P, unicode.S)
	}
	return word && after != '\'' && !unicode.In(after, unicode.L, unicode.M, unicode.N)
}

// runeStart returns the start of the rune that byte i of s belongs to.
func runeStart(s string, i int) int {
	for j := i; j > 0 && j > i-utf8.UTFMax && j < len(s); j-- {
		if utf8.RuneStart(s[j]) {
			return j
		}
	}
	return i
}

// promptTokens estimates what a request's messages count as input.
func (r ChatRequest) promptTokens(ctx context.Context) int64 {
	turn := turns.Begin(ctx)
	defer turn.End()
	return int64(len(r.JSONSchema)/4 + tokensPerMessage*len(r.Messages) + estimateAll(turn, r.texts()))
}

// maxPromptTokens is a bound that costs nothing: a token is at least one byte.
func (r ChatRequest) maxPromptTokens() int64 {
	n := len(r.JSONSchema)
	for _, m := range r.Messages {
		n += len(m.Content) + tokensPerMessage
	}
	return int64(n)
}

func (r ChatRequest) texts() []string {
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
