package model

import (
	"context"
	"errors"
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

// Chat implements Provider. It moves system messages out of the conversation, in order.
func (p *anthropic) Chat(ctx context.Context, req ChatRequest) (ChatResponse, error) {
	body, err := p.request(req)
	if err != nil {
		return ChatResponse{}, err
	}
	encoded, err := forebay.EncodeJSON(body)
	if err != nil {
		return ChatResponse{}, forebay.Permanent(CodeBadRequest, "the request cannot be written as JSON")
	}
	a := messagesAnswer{endpoint: &p.endpoint, texts: req.texts, forced: body.forced, onText: req.OnText}
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
