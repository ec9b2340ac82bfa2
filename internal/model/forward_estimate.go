package model

import (
	"context"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/turns"
)

const (
	// mediaTokens is what an image, a recording or a file counts. Its bytes say little: providers
	// count pixels, seconds and pages.
	mediaTokens = 800
	// Numbers of a request are bounded, because an estimate multiplies them.
	maxClaimedOutput  = 1 << 30
	maxClaimedAnswers = 1 << 12
)

// forwardNeed is what a request's body says about its size.
type forwardNeed struct {
	texts     []string // of the prompt
	tokens    int64    // of the prompt, besides those of the texts
	maxOutput int64    // tokens of one answer; 0: not said
	answers   int64    // at least 1; 0: there is no output
}

// EstimateForward estimates the need of a request that [Router.Forward] takes. It is cheap: text
// counts a token for four bytes.
func EstimateForward(path string, body []byte) forebay.CallEstimate {
	n := readNeed(path, body)
	e := forebay.CallEstimate{PromptTokens: n.tokens + n.bytes()/forebay.BytesPerToken, MaxOutputTokens: n.maxOutput * n.answers}
	if n.answers == 0 {
		e.MaxOutputTokens = -1
	}
	return e
}

// readNeed reads a request's body. It takes a body that is not JSON, or too deep, for one text.
func readNeed(path string, body []byte) *forwardNeed {
	n := &forwardNeed{answers: 1}
	if path == pathEmbeddings || path == pathModerations {
		n.answers = 0
	}
	if jsoncheck.Depth(body) > forebay.MaxJSONDepth || !gjson.ValidBytes(body) {
		n.texts = []string{string(body)}
		return n
	}
	prompts := int64(1)
	gjson.ParseBytes(body).ForEach(func(key, value gjson.Result) bool {
		switch strings.ToLower(key.Str) { // as servers written in Go read names
		case "messages":
			value.ForEach(func(_, message gjson.Result) bool {
				n.tokens += tokensPerMessage
				n.add(message)
				return true
			})
		case "prompt":
			prompts = countPrompts(value)
			n.add(value)
		case "input", "instructions", "suffix", "system":
			n.add(value)
		case "tools", "functions", "response_format", "text":
			n.tokens += int64(len(value.Raw) / forebay.BytesPerToken)
		case "max_completion_tokens", "max_tokens", "max_output_tokens":
			n.maxOutput = max(n.maxOutput, min(value.Int(), maxClaimedOutput))
		case "n", "best_of":
			n.answers = min(n.answers, 1) * min(max(n.answers, value.Int(), 1), maxClaimedAnswers)
		}
		return true
	})
	if path == pathCompletions {
		n.answers = min(n.answers*prompts, maxClaimedAnswers)
	}
	return n
}

// countPrompts returns how many prompts a legacy completion has. Each gets its own answer. A list
// of numbers is one prompt.
func countPrompts(v gjson.Result) (n int64) {
	v.ForEach(func(_, prompt gjson.Result) bool {
		if prompt.Type != gjson.Number {
			n++
		}
		return true
	})
	if !v.IsArray() {
		return 1
	}
	return max(n, 1)
}

// add counts a part of the prompt. In lists of token numbers, each is one token.
func (n *forwardNeed) add(v gjson.Result) {
	switch {
	case v.Type == gjson.String && isDataURL(v.Str):
		n.tokens += mediaTokens
	case v.Type == gjson.String:
		n.texts = append(n.texts, v.Str)
	case v.Type == gjson.Number:
		n.tokens++
	case v.IsArray():
		v.ForEach(func(_, element gjson.Result) bool {
			n.add(element)
			return true
		})
	case v.IsObject():
		v.ForEach(func(key, member gjson.Result) bool {
			n.addMember(key.Str, member)
			return true
		})
	}
}

func (n *forwardNeed) addMember(key string, v gjson.Result) {
	switch key {
	case "type", "role", "id", "call_id", "tool_call_id", "status", "detail", "format", "file_id":
	case "image_url", "input_audio", "audio", "video_url", "file", "file_data", "file_url", "source":
		n.tokens += mediaTokens
	default:
		n.add(v)
	}
}

func isDataURL(s string) bool {
	return strings.HasPrefix(s, "data:") && strings.Contains(s[:min(len(s), 200)], ";base64,")
}

// bytes returns the length of all texts.
func (n *forwardNeed) bytes() (total int64) {
	for _, text := range n.texts {
		total += int64(len(text))
	}
	return total
}

// promptTokens estimates the tokens of the prompt.
func (n *forwardNeed) promptTokens(ctx context.Context) int64 {
	turn := turns.Begin(ctx)
	defer turn.End()
	return n.tokens + int64(estimateAll(turn, n.texts))
}

// maxPromptTokens is a bound that costs little: a token has at least one byte.
func (n *forwardNeed) maxPromptTokens() int64 { return n.tokens + n.bytes() }
