package model

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

const (
	// exactBytes is the longest text that is counted whole: about 20 ms.
	exactBytes = 64 << 10
	// Longer texts are counted in sampleCount windows of sampleBytes, spread evenly.
	sampleCount = 8
	sampleBytes = 4 << 10
	// tokensPerMessage is what a chat format adds around each message, by OpenAI's own account.
	tokensPerMessage = 4
)

// codec is loaded at the first use: its vocabulary takes 20 ms and some memory.
var codec = sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(tokenizer.O200kBase) })

// EstimateTokens counts the o200k_base tokens of text, exactly up to 64 KiB and by samples above.
// Other models' tokens differ by some ten per cent. It never exceeds the length of text in bytes and
// is safe for concurrent use.
func EstimateTokens(text string) int {
	if len(text) <= exactBytes {
		return countTokens(text)
	}
	stride := (len(text) - sampleBytes) / (sampleCount - 1)
	tokens, sampled := 0, 0
	for i := range sampleCount {
		part := text[runeStart(text, i*stride):runeStart(text, i*stride+sampleBytes)]
		tokens += countTokens(part)
		sampled += len(part)
	}
	return int(float64(tokens) / float64(sampled) * float64(len(text)))
}

func countTokens(text string) int {
	if c, err := codec(); err == nil {
		if n, err := c.Count(text); err == nil {
			// The codec passes over DEL, which is a token of its own.
			return min(n+strings.Count(text, "\x7f"), len(text))
		}
	}
	return (len(text) + 3) / 4
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
func (r ChatRequest) promptTokens() int64 {
	n := len(r.JSONSchema) / 4
	for _, m := range r.Messages {
		n += EstimateTokens(m.Content) + tokensPerMessage
	}
	return int64(n)
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

func (r EmbedRequest) promptTokens() int64 {
	n := 0
	for _, in := range r.Inputs {
		n += EstimateTokens(in)
	}
	return int64(n)
}

func (r EmbedRequest) maxPromptTokens() int64 {
	n := 0
	for _, in := range r.Inputs {
		n += len(in)
	}
	return int64(n)
}

func (r EmbedRequest) texts() []string { return r.Inputs }
