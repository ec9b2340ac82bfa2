package model

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"strings"

	"github.com/forebayhq/forebay"
)

const (
	defaultAnthropicEndpoint = "https://api.anthropic.com"
	anthropicVersion         = "2023-06-01"
	// The messages API requires a limit.
	defaultAnthropicOutput = 4096
)

// AnthropicConfig configures Anthropic's messages API.
type AnthropicConfig struct {
	Endpoint string // default https://api.anthropic.com
	Model    string
	APIKey   forebay.Secret
	// MaxOutputTokens is for requests without a limit. The default is 4,096.
	MaxOutputTokens int
	HTTPConfig
}

// NewAnthropic returns a provider for Anthropic's messages API. It has no embeddings.
func NewAnthropic(c AnthropicConfig) (Provider, error) {
	if c.Model == "" {
		return nil, errors.New("model: required")
	}
	if c.Endpoint == "" {
		c.Endpoint = defaultAnthropicEndpoint
	}
	base, err := baseURL(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := checkKey(c.APIKey); err != nil {
		return nil, err
	}
	header := map[string]string{"anthropic-version": anthropicVersion}
	if c.APIKey != "" {
		header["x-api-key"] = c.APIKey.Reveal()
	}
	if c.MaxOutputTokens <= 0 {
		c.MaxOutputTokens = defaultAnthropicOutput
	}
	return &anthropic{
		endpoint:  newEndpoint(c.HTTPConfig, c.APIKey, header),
		url:       strings.TrimSuffix(base, "/v1") + "/v1/messages",
		model:     c.Model,
		maxTokens: c.MaxOutputTokens,
	}, nil
}

type anthropic struct {
	endpoint
	url       string
	model     string
	maxTokens int
}

type messagesBody struct {
	Model         string          `json:"model"`
	MaxTokens     int             `json:"max_tokens"`
	System        string          `json:"system,omitempty"`
	Messages      []Message       `json:"messages"`
	Temperature   *float64        `json:"temperature,omitempty"`
	TopP          *float64        `json:"top_p,omitempty"`
	StopSequences []string        `json:"stop_sequences,omitempty"`
	OutputConfig  *messagesOutput `json:"output_config,omitempty"`
	Stream        bool            `json:"stream"`
}

type messagesOutput struct {
	Format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

// Chat implements Provider. It moves system messages out of the conversation, in order.
func (p *anthropic) Chat(ctx context.Context, req ChatRequest) (ChatResponse, error) {
	body := messagesBody{Model: p.model, MaxTokens: req.MaxOutputTokens, Temperature: req.Temperature,
		TopP: req.TopP, StopSequences: req.Stop, Stream: true, Messages: make([]Message, 0, len(req.Messages))}
	if body.MaxTokens <= 0 {
		body.MaxTokens = p.maxTokens
	}
	var system []string
	for _, m := range req.Messages {
		if m.Role == RoleSystem {
			system = append(system, m.Content)
		} else {
			body.Messages = append(body.Messages, m)
		}
	}
	body.System = strings.Join(system, "\n\n")
	// The API refuses an open schema. The task checks the answer in any case.
	if req.JSONSchema != nil && strictSchema(req.JSONSchema) {
		body.OutputConfig = &messagesOutput{}
		body.OutputConfig.Format.Type = "json_schema"
		body.OutputConfig.Format.Schema = req.JSONSchema
	}
	encoded, err := forebay.EncodeJSON(body)
	if err != nil {
		return ChatResponse{}, forebay.Permanent(CodeBadRequest, "the request cannot be written as JSON")
	}
	a := messagesAnswer{endpoint: &p.endpoint, texts: req.texts}
	var limits RateLimits
	err = p.post(ctx, outgoing{url: p.url, body: encoded, texts: req.texts, limits: limits.into(req.OnLimits)}, a.read)
	resp := a.response(ctx, req, err == nil)
	resp.Limits = limits
	return resp, err
}

// Embed implements Provider.
func (p *anthropic) Embed(context.Context, EmbedRequest) (EmbedResponse, error) {
	return EmbedResponse{}, forebay.Permanent(CodeNotSupported, "Anthropic has no embeddings")
}

type messagesUsage struct {
	InputTokens         int64 `json:"input_tokens"`
	CacheCreationTokens int64 `json:"cache_creation_input_tokens"`
	CacheReadTokens     int64 `json:"cache_read_input_tokens"`
	OutputTokens        int64 `json:"output_tokens"`
}

// merge adds what a later event reports. Its counts are cumulative, and 0 means not reported.
func (u *messagesUsage) merge(o messagesUsage) {
	u.InputTokens = max(u.InputTokens, o.InputTokens)
	u.CacheCreationTokens = max(u.CacheCreationTokens, o.CacheCreationTokens)
	u.CacheReadTokens = max(u.CacheReadTokens, o.CacheReadTokens)
	u.OutputTokens = max(u.OutputTokens, o.OutputTokens)
}

// messagesObject is a whole message, in a plain answer or in message_start.
type messagesObject struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StopReason string        `json:"stop_reason"`
	Usage      messagesUsage `json:"usage"`
}

// messagesEvent is one event of a stream, of any type.
type messagesEvent struct {
	Type    string         `json:"type"`
	Message messagesObject `json:"message"`
	// In content_block_delta, Delta has text. In message_delta it has a stop reason.
	Delta struct {
		Text       string `json:"text"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	ContentBlock struct {
		Text string `json:"text"`
	} `json:"content_block"`
	Usage messagesUsage `json:"usage"`
}

// messagesAnswer collects one answer.
type messagesAnswer struct {
	endpoint *endpoint
	texts    func() []string

	text  strings.Builder
	id    string
	model string
	stop  string
	usage messagesUsage
	raw   json.RawMessage
}

func (c *messagesAnswer) read(a answer) error {
	if kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); kind == "application/json" {
		return c.readPlain(a.body)
	}
	stream := c.endpoint.events(a.body)
	defer stream.free()
	for {
		_, data, err := stream.next()
		switch {
		case err == nil:
		case c.stop != "": // everything needed has arrived
			return c.judge()
		case errors.Is(err, io.EOF) && c.model != "":
			return streamCut()
		case errors.Is(err, io.EOF):
			return malformed("the stream holds no message")
		default:
			return err
		}
		done, err := c.add(data)
		if err != nil {
			return err
		}
		a.began(c.text.Len())
		if done {
			a.drain()
			return c.judge()
		}
	}
}

func (c *messagesAnswer) readPlain(r io.Reader) error {
	b, err := c.endpoint.readAll(r)
	if err != nil {
		return err
	}
	var m messagesObject
	if json.Unmarshal(b, &m) != nil {
		return malformed("the answer is not the JSON it should be")
	}
	if m.StopReason == "" {
		if f := parseFailure(b); f.kind != "" && f.message != "" {
			return c.endpoint.taskError(f, c.texts)
		}
		return malformed("the answer holds no message")
	}
	c.begin(m)
	c.stop, c.raw = m.StopReason, b
	return c.judge()
}

func (c *messagesAnswer) begin(m messagesObject) {
	c.id, c.model = m.ID, m.Model
	for _, block := range m.Content {
		c.text.WriteString(block.Text)
	}
	c.usage.merge(m.Usage)
}

// add processes the data of one event. done reports message_stop.
func (c *messagesAnswer) add(data []byte) (done bool, err error) {
	var e messagesEvent
	if json.Unmarshal(data, &e) != nil {
		return false, malformed("an event of the stream is not the JSON it should be")
	}
	switch e.Type {
	case "message_start":
		c.begin(e.Message)
	case "content_block_start":
		c.text.WriteString(e.ContentBlock.Text)
	case "content_block_delta":
		c.text.WriteString(e.Delta.Text)
	case "message_delta":
		if e.Delta.StopReason != "" {
			c.stop = e.Delta.StopReason
		}
		c.usage.merge(e.Usage)
	case "message_stop":
		if c.stop == "" {
			return false, streamCut()
		}
		return true, nil
	case "error":
		return false, c.endpoint.streamError(data, c.texts)
	}
	if int64(c.text.Len()) > c.endpoint.maxOutput {
		return false, c.endpoint.tooLarge()
	}
	return false, nil
}

func (c *messagesAnswer) judge() error {
	if c.stop == "refusal" {
		return forebay.Permanent(CodeContentFilter, "the provider's safety filter stopped the answer")
	}
	return nil
}

func (c *messagesAnswer) finishReason() string {
	switch c.stop {
	case "end_turn", "stop_sequence", "pause_turn":
		return "stop"
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		return "tool_calls"
	case "refusal":
		return "content_filter"
	}
	return c.stop
}

func (c *messagesAnswer) response(ctx context.Context, req ChatRequest, ok bool) ChatResponse {
	u := c.usage
	resp := ChatResponse{Text: c.text.String(), FinishReason: c.finishReason(), Model: c.model,
		Usage: forebay.TokenUsage{
			InputTokens:  max(u.InputTokens+u.CacheCreationTokens+u.CacheReadTokens, 0),
			OutputTokens: max(u.OutputTokens, 0),
		}}
	// Tokens written to the cache count like other input.
	resp.CachedTokens = within(u.CacheReadTokens, resp.Usage.InputTokens)
	if !ok {
		return resp
	}
	if u == (messagesUsage{}) {
		resp.Usage = forebay.TokenUsage{InputTokens: req.promptTokens(ctx), OutputTokens: textTokens(ctx, resp.Text)}
	}
	if req.WantRaw {
		if resp.Raw = c.raw; resp.Raw == nil {
			resp.Raw, _ = forebay.EncodeJSON(map[string]any{
				"id": c.id, "type": "message", "role": RoleAssistant, "model": c.model, "stop_reason": c.stop,
				"content": []any{map[string]any{"type": "text", "text": resp.Text}}, "usage": u,
			})
		}
	}
	return resp
}
