package modelsim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/sleep"
)

// DefaultIdleTimeout is how long a call that hangs stays silent before it is given up.
const DefaultIdleTimeout = 30 * time.Second

// ProviderOptions configures a Provider. The zero value is useful.
type ProviderOptions struct {
	Model       string        // default DefaultModel
	Dimensions  int           // of embeddings that name none; default DefaultDimensions
	IdleTimeout time.Duration // default DefaultIdleTimeout
	Faults      ProviderFaults
}

// Provider is a [model.Provider] in this process. Its answers are ContentWork, and its quota and
// faults are those of a [Service]. It is safe for concurrent use.
type Provider struct {
	model      string
	dimensions int
	idle       time.Duration

	mu      sync.Mutex // guards what follows
	faults  ProviderFaults
	refuse  []string // faults.RefusePhrases in lower case
	service *Service // with these faults
	jitter  *rand.Rand
}

// NewProvider returns a provider, or says which option is out of range.
func NewProvider(o ProviderOptions) (*Provider, error) {
	p := &Provider{
		model:      cmp.Or(o.Model, DefaultModel),
		dimensions: cmp.Or(o.Dimensions, DefaultDimensions),
		idle:       cmp.Or(o.IdleTimeout, DefaultIdleTimeout),
	}
	switch {
	case p.dimensions < 1 || p.dimensions > MaxDimensions:
		return nil, forebay.Invalid("dimensions", "must be 1 to %d", MaxDimensions)
	case p.idle < 0:
		return nil, forebay.Invalid("idle_timeout", "must not be negative")
	}
	if err := p.SetFaults(o.Faults); err != nil {
		return nil, err
	}
	return p, nil
}

// SetFaults replaces the faults from the next call on. Random draws start again from the seed,
// and the quota is unused. Nothing changes when a fault is out of range.
func (p *Provider) SetFaults(f ProviderFaults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	service, err := NewService(f.deployment(), f.Seed, time.Now())
	if err != nil {
		return err
	}
	f.RefusePhrases = slices.Clone(f.RefusePhrases)
	refuse := make([]string, len(f.RefusePhrases))
	for i, phrase := range f.RefusePhrases {
		refuse[i] = strings.ToLower(phrase)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.refuse, p.service = f, refuse, service
	p.jitter = rand.New(rand.NewPCG(f.Seed, 2))
	return nil
}

// Faults returns the faults in force.
func (p *Provider) Faults() ProviderFaults {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults
	f.RefusePhrases = slices.Clone(f.RefusePhrases)
	return f
}

// Chat answers the last user message.
func (p *Provider) Chat(ctx context.Context, req model.ChatRequest) (model.ChatResponse, error) {
	if len(req.Messages) == 0 {
		return model.ChatResponse{}, forebay.Permanent(model.CodeBadRequest, "the request has no messages")
	}
	if req.MaxOutputTokens <= 0 {
		req.MaxOutputTokens = DefaultMaxOutputTokens
	}
	resp := model.ChatResponse{Model: p.model}
	contents := func(yield func(string) bool) {
		for _, m := range req.Messages {
			if !yield(m.Content) {
				return
			}
		}
	}
	err := p.call(ctx, contents, func() (usage forebay.TokenUsage, err error) {
		if resp.Text, resp.FinishReason, err = complete(req); err != nil {
			return usage, err
		}
		for text := range contents {
			usage.InputTokens += int64(countTokens(text)) + tokensPerMessage
		}
		usage.OutputTokens = int64(countTokens(resp.Text))
		resp.Usage = usage
		return usage, nil
	})
	if err != nil {
		return model.ChatResponse{}, err
	}
	if req.OnText != nil {
		req.OnText(resp.Text)
	}
	if req.WantRaw {
		resp.Raw = rawChat(resp)
	}
	return resp, nil
}

// Embed returns unit vectors.
func (p *Provider) Embed(ctx context.Context, req model.EmbedRequest) (model.EmbedResponse, error) {
	dimensions := cmp.Or(req.Dimensions, p.dimensions)
	switch {
	case len(req.Inputs) == 0:
		return model.EmbedResponse{}, forebay.Permanent(model.CodeBadRequest, "the request has no inputs")
	case dimensions < 1 || dimensions > MaxDimensions:
		return model.EmbedResponse{}, forebay.Permanent(model.CodeBadRequest, fmt.Sprintf("dimensions must be 1 to %d", MaxDimensions))
	}
	resp := model.EmbedResponse{Model: p.model}
	err := p.call(ctx, slices.Values(req.Inputs), func() (usage forebay.TokenUsage, err error) {
		if resp.Vectors, err = embedAll(ctx, req.Inputs, dimensions); err != nil {
			return usage, err
		}
		for _, input := range req.Inputs {
			usage.InputTokens += int64(countTokens(input))
		}
		resp.Usage = usage
		return usage, nil
	})
	if err != nil {
		return model.EmbedResponse{}, err
	}
	return resp, nil
}

// call gives one call its outcome. If that is an answer, work makes it.
func (p *Provider) call(ctx context.Context, prompt iter.Seq[string], work func() (forebay.TokenUsage, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	service, refuse, retryAfter := p.service, p.refuse, p.faults.RetryAfter
	delay := p.faults.Latency + time.Duration(p.jitter.Float64()*float64(p.faults.Jitter))
	p.mu.Unlock()
	a := service.Begin(time.Now(), Cost{})
	outcome, used := a.Outcome, Used{}
	defer func() { service.End(time.Now(), a, outcome, used) }()

	if a.Outcome == Throttled && a.Verdict.Refused != throttledByScript {
		return throttled("the deployment's request quota is spent", ceilMillis(a.Verdict.RetryAfter)) // at once
	}
	if a.Outcome == Hung {
		delay += p.idle
	}
	if err := sleep.For(ctx, delay); err != nil {
		outcome = Gone
		return err
	}
	switch a.Outcome {
	case Throttled:
		return throttled("too many requests", retryAfter)
	case Failed:
		return transient(model.CodeServerError, fmt.Sprintf("the deployment answered %d", a.Status))
	case Hung:
		return transient(model.CodeIdleTimeout, "the deployment stopped sending")
	case Malformed:
		return transient(model.CodeMalformedResponse, "the deployment's answer is no response")
	}
	if contains(prompt, refuse) {
		outcome = Filtered
		return forebay.Permanent(model.CodeContentFilter, "the content filter refused the prompt")
	}
	usage, err := work()
	if err != nil {
		outcome = Invalid
		return err
	}
	used = Used{Prompt: int(usage.InputTokens), Output: int(usage.OutputTokens)}
	return nil
}

// contains reports whether a text holds one of the phrases, which are in lower case.
func contains(texts iter.Seq[string], phrases []string) bool {
	if len(phrases) == 0 {
		return false
	}
	for text := range texts {
		lower := strings.ToLower(text)
		if slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(lower, phrase) }) {
			return true
		}
	}
	return false
}

func throttled(message string, after time.Duration) error {
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: model.CodeRateLimited, Message: message, RetryAfter: after}
}

func transient(code, message string) error {
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: code, Message: message}
}

// rawChat is the response in OpenAI's shape. The same response gives the same bytes.
func rawChat(resp model.ChatResponse) []byte {
	text := strings.ToValidUTF8(resp.Text, "\uFFFD")
	c := completion{answer: answer{text, int(resp.Usage.OutputTokens), resp.FinishReason, ""}, api: openAI,
		id: fmt.Sprintf("sim-%016x", fnv1a(fnvOffset, resp.Text)), created: created, model: resp.Model,
		prompt: int(resp.Usage.InputTokens), choices: 1}
	return c.body()
}
