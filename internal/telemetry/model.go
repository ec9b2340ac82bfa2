package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// The names of model operations and token kinds in the conventions.
const (
	opChat        = "chat"
	opCompletion  = "text_completion"
	opEmbeddings  = "embeddings"
	opModerations = "moderations"
	opCountTokens = "count_tokens"
	tokenInput    = "input"
	tokenOutput   = "output"
)

// maxContentBytes bounds the bytes of prompts in one span, and those of outputs.
const maxContentBytes = 32 << 10

// Deployment describes a model's deployment to telemetry.
type Deployment struct {
	Name     string
	Provider string // its name in the configuration
	Model    string // the requested model
}

// providerNames maps provider names of the configuration to those of the conventions.
var providerNames = map[string]string{
	"openai": "openai", "azure-openai": "azure.ai.openai", "anthropic": "anthropic",
}

// Provider wraps the provider to measure and trace its calls. Without telemetry it returns the
// provider itself.
func (t *Telemetry) Provider(p model.Provider, d Deployment) model.Provider {
	if t == nil {
		return p
	}
	if name, ok := providerNames[d.Provider]; ok {
		d.Provider = name
	}
	observed := &provider{t: t, inner: p, d: d}
	if f, ok := p.(model.Forwarder); ok {
		return forwarder{observed, f}
	}
	return observed
}

type provider struct {
	t     *Telemetry
	inner model.Provider
	d     Deployment
}

// modelCall is a call of a model that is observed.
type modelCall struct {
	*provider
	operation string
	span      trace.Span // nil: no traces
	began     time.Time
	first     time.Duration // 0: not streamed
}

func (p *provider) begin(ctx context.Context, operation string) (context.Context, *modelCall) {
	c := &modelCall{provider: p, operation: operation, began: time.Now()}
	if p.t.tracer != nil {
		ctx, c.span = p.t.tracer.Start(ctx, operation+" "+p.d.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(c.began))
		if c.span.IsRecording() {
			c.span.SetAttributes(semconv.GenAIOperationNameKey.String(operation), semconv.GenAIProviderNameKey.String(p.d.Provider),
				semconv.GenAIRequestModel(p.d.Model), keyDeployment.String(p.d.Name))
		}
	}
	return model.OnFirstToken(ctx, func() { c.first = time.Since(c.began) }), c
}

// set adds attributes to the span, if it is recorded.
func (c *modelCall) set(attrs ...attribute.KeyValue) {
	if c.span != nil {
		c.span.SetAttributes(attrs...)
	}
}

func (c *modelCall) content() bool { return c.t.capture && c.span != nil && c.span.IsRecording() }

// Chat implements model.Provider.
func (p *provider) Chat(ctx context.Context, req model.ChatRequest) (model.ChatResponse, error) {
	ctx, c := p.begin(ctx, opChat)
	if c.span != nil && c.span.IsRecording() {
		c.request(req)
	}
	resp, err := p.inner.Chat(ctx, req)
	if resp.FinishReason != "" {
		c.set(semconv.GenAIResponseFinishReasons(resp.FinishReason))
	}
	if c.content() && resp.Text != "" {
		c.set(semconv.GenAIOutputMessagesKey.String(messagesJSON([]model.Message{{Role: model.RoleAssistant, Content: resp.Text}}, resp.FinishReason)))
	}
	c.end(resp.Model, resp.Usage, err)
	return resp, err
}

func (c *modelCall) request(req model.ChatRequest) {
	if req.MaxOutputTokens > 0 {
		c.set(semconv.GenAIRequestMaxTokens(req.MaxOutputTokens))
	}
	if req.Temperature != nil {
		c.set(semconv.GenAIRequestTemperature(*req.Temperature))
	}
	if req.TopP != nil {
		c.set(semconv.GenAIRequestTopP(*req.TopP))
	}
	if req.JSONSchema != nil || req.JSONObject {
		c.set(semconv.GenAIOutputTypeJSON)
	}
	if c.content() {
		c.set(semconv.GenAIInputMessagesKey.String(messagesJSON(req.Messages, "")))
	}
}

// Embed implements model.Provider.
func (p *provider) Embed(ctx context.Context, req model.EmbedRequest) (model.EmbedResponse, error) {
	ctx, c := p.begin(ctx, opEmbeddings)
	if req.Dimensions > 0 {
		c.set(semconv.GenAIEmbeddingsDimensionCount(req.Dimensions))
	}
	resp, err := p.inner.Embed(ctx, req)
	c.end(resp.Model, resp.Usage, err)
	return resp, err
}

func (c *modelCall) end(answered string, usage forebay.TokenUsage, err error) {
	code := ""
	if err != nil {
		code = forebay.AsTaskError(err).Code
		if errors.Is(err, context.Canceled) {
			code = string(forebay.OutcomeCancelled)
		}
	}
	if c.span != nil {
		if answered != "" {
			c.set(semconv.GenAIResponseModel(answered))
		}
		if usage != (forebay.TokenUsage{}) {
			c.set(semconv.GenAIUsageInputTokens(int(usage.InputTokens)), semconv.GenAIUsageOutputTokens(int(usage.OutputTokens)))
		}
		if c.first > 0 {
			c.set(semconv.GenAIRequestStream(true), semconv.GenAIResponseTimeToFirstChunk(c.first.Seconds()))
		}
		fail(c.span, code)
		c.span.End()
	}
	m := c.t.metrics
	if m == nil {
		return
	}
	of := genAILabels{operation: c.operation, provider: c.d.Provider, model: c.d.Model}
	if c.first > 0 {
		m.genAIFirstChunk.of(of).record(c.first.Seconds())
		if err == nil {
			m.genAIServerFirst.of(of).record(c.first.Seconds())
		}
	}
	for _, count := range []struct {
		kind   string
		tokens int64
	}{{tokenInput, usage.InputTokens}, {tokenOutput, usage.OutputTokens}} {
		if count.tokens > 0 {
			of.token = count.kind
			m.genAITokens.of(of).record(float64(count.tokens))
		}
	}
	of.token, of.failure = "", code
	m.genAIDuration.of(of).since(c.began)
}

// forwarder is a provider that forwards too.
type forwarder struct {
	*provider
	forwards model.Forwarder
}

// Takes implements model.Forwarder.
func (f forwarder) Takes(path string) bool { return f.forwards.Takes(path) }

// Forward implements model.Forwarder. The content of forwarded calls is not captured.
func (f forwarder) Forward(ctx context.Context, req model.ForwardRequest) (model.ForwardResponse, error) {
	ctx, c := f.begin(ctx, forwardOperation(req.Path))
	resp, err := f.forwards.Forward(ctx, req)
	if resp.FinishReason != "" {
		c.set(semconv.GenAIResponseFinishReasons(resp.FinishReason))
	}
	c.end(resp.Model, resp.Usage, err)
	return resp, err
}

// forwardOperation returns the name of an operation of OpenAI's or Anthropic's API in the
// conventions. They have none for moderations and counts.
func forwardOperation(path string) string {
	switch path {
	case "completions":
		return opCompletion
	case "embeddings":
		return opEmbeddings
	case "moderations":
		return opModerations
	case model.PathCountTokens:
		return opCountTokens
	}
	return opChat
}

// messagesJSON writes messages in the form of the conventions, with at most maxContentBytes of
// text in all.
func messagesJSON(messages []model.Message, finish string) string {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	type message struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitempty"`
	}
	left := maxContentBytes
	var list []message
	for _, m := range messages {
		if left <= 0 {
			break
		}
		text := clip(m.Content, left)
		left -= max(1, len(text))
		list = append(list, message{string(m.Role), []part{{"text", text}}, finish})
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "" // never: strings can be marshalled
	}
	return string(b)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
