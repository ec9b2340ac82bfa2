// Provider is a deployment that needs no network and really does small work: extractive
// summaries, classification by keywords, sentiment by a lexicon, entities by patterns, and
// embeddings by hashed n-grams. It sees only chat messages, as any model does, and works out from
// their words what is asked. The same request gets the same answer, always.
//
// [ProviderFaults] makes it difficult on purpose: latency, 429s, 5xx, hangs, malformed answers, a request
// quota and a content filter. They can be changed while calls run.
package modelsim

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// Limits of the simulated model.
const (
	DefaultModel           = "sim-1"
	DefaultDimensions      = 256
	MaxDimensions          = 4096
	DefaultMaxOutputTokens = 1024
	DefaultIdleTimeout     = 30 * time.Second
	// contextBytes is how much of a document is read, as a model reads no more than its context
	// window. Usage counts all of it.
	contextBytes = 256 << 10
)

// ProviderOptions configures a Provider. The zero value is useful.
type ProviderOptions struct {
	Model           string        // default DefaultModel
	Dimensions      int           // of embeddings that name none; default DefaultDimensions
	MaxOutputTokens int           // of requests that name none; default DefaultMaxOutputTokens
	IdleTimeout     time.Duration // how long a hanging call stays silent before it is given up; default 30 s
	Faults          ProviderFaults
}

// Provider is a simulated deployment. It is safe for concurrent use.
type Provider struct {
	model      string
	dimensions int
	maxOutput  int
	idle       time.Duration

	mu     sync.Mutex // guards what follows
	faults ProviderFaults
	refuse []string // faults.RefusePhrases, folded
	rng    *rand.Rand
	bucket bucket
	stats  ProviderStats
}

// NewProvider returns a provider, or says which option is out of range.
func NewProvider(o ProviderOptions) (*Provider, error) {
	p := &Provider{model: o.Model, dimensions: o.Dimensions, maxOutput: o.MaxOutputTokens, idle: o.IdleTimeout}
	if p.model == "" {
		p.model = DefaultModel
	}
	if p.dimensions == 0 {
		p.dimensions = DefaultDimensions
	}
	if p.maxOutput == 0 {
		p.maxOutput = DefaultMaxOutputTokens
	}
	if p.idle == 0 {
		p.idle = DefaultIdleTimeout
	}
	switch {
	case p.dimensions < 1 || p.dimensions > MaxDimensions:
		return nil, forebay.Invalid("dimensions", "must be 1 to %d", MaxDimensions)
	case p.maxOutput < 1:
		return nil, forebay.Invalid("max_output_tokens", "must be at least 1")
	case p.idle < 0:
		return nil, forebay.Invalid("idle_timeout", "must not be negative")
	}
	if err := p.SetFaults(o.Faults); err != nil {
		return nil, err
	}
	return p, nil
}

// Chat answers the last user message.
func (p *Provider) Chat(ctx context.Context, req model.ChatRequest) (model.ChatResponse, error) {
	if len(req.Messages) == 0 {
		return model.ChatResponse{}, forebay.Permanent(model.CodeBadRequest, "the request has no messages")
	}
	if err := p.suffer(ctx, func(phrase string) bool {
		for _, m := range req.Messages {
			if strings.Contains(strings.ToLower(m.Content), phrase) {
				return true
			}
		}
		return false
	}); err != nil {
		return model.ChatResponse{}, err
	}
	if req.MaxOutputTokens <= 0 {
		req.MaxOutputTokens = p.maxOutput
	}
	text, err := respond(req)
	if err != nil {
		return model.ChatResponse{}, err
	}
	text, finish := finish(text, req)
	resp := model.ChatResponse{Text: text, FinishReason: finish, Model: p.model}
	for _, m := range req.Messages {
		resp.Usage.InputTokens += int64(countTokens(m.Content)) + 3 // role and separators
	}
	resp.Usage.OutputTokens = int64(countTokens(text))
	if req.WantRaw {
		resp.Raw = rawChat(resp)
	}
	return resp, nil
}

// Embed returns unit vectors.
func (p *Provider) Embed(ctx context.Context, req model.EmbedRequest) (model.EmbedResponse, error) {
	dimensions := req.Dimensions
	if dimensions == 0 {
		dimensions = p.dimensions
	}
	switch {
	case len(req.Inputs) == 0:
		return model.EmbedResponse{}, forebay.Permanent(model.CodeBadRequest, "the request has no inputs")
	case dimensions < 1 || dimensions > MaxDimensions:
		return model.EmbedResponse{}, forebay.Permanent(model.CodeBadRequest, fmt.Sprintf("dimensions must be 1 to %d", MaxDimensions))
	}
	if err := p.suffer(ctx, func(phrase string) bool {
		for _, input := range req.Inputs {
			if strings.Contains(strings.ToLower(input), phrase) {
				return true
			}
		}
		return false
	}); err != nil {
		return model.EmbedResponse{}, err
	}
	resp := model.EmbedResponse{Model: p.model, Vectors: make([][]float32, len(req.Inputs))}
	for i, input := range req.Inputs {
		if err := ctx.Err(); err != nil {
			return model.EmbedResponse{}, err
		}
		resp.Vectors[i] = embed(clip(input, contextBytes), dimensions)
		resp.Usage.InputTokens += int64(countTokens(input))
	}
	return resp, nil
}

// finish applies the stop sequences and the token limit.
func finish(text string, req model.ChatRequest) (string, string) {
	for _, stop := range req.Stop {
		if stop != "" {
			text, _, _ = strings.Cut(text, stop)
		}
	}
	if short, cut := cutTokens(text, req.MaxOutputTokens); cut {
		return short, "length"
	}
	return text, "stop"
}

// rawChat is the response in the shape of OpenAI's chat completions.
func rawChat(resp model.ChatResponse) json.RawMessage {
	h := fnv.New64a()
	h.Write([]byte(resp.Text))
	raw, err := json.Marshal(map[string]any{
		"id": fmt.Sprintf("chatcmpl-sim-%016x", h.Sum64()), "object": "chat.completion", "model": resp.Model,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": resp.FinishReason,
			"message": map[string]string{"role": "assistant", "content": resp.Text},
		}},
		"usage": map[string]int64{
			"prompt_tokens": resp.Usage.InputTokens, "completion_tokens": resp.Usage.OutputTokens,
			"total_tokens": resp.Usage.InputTokens + resp.Usage.OutputTokens,
		},
	})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return raw
}
