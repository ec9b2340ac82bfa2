// Package model calls language models: OpenAI and everything that speaks its protocol, Azure OpenAI
// and Anthropic. Package modelsim has a simulated deployment, which needs no network.
//
// A [Deployment] is one endpoint, model and region with its price and quota. A [Provider] makes one
// call and never retries: the job's retry lane is the only owner of retries. Failures are
// [forebay.TaskError] values, sorted by what should happen next.
package model

import (
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Role is who said a message.
type Role string

const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one turn of a conversation.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
}

// ChatRequest asks for one completion.
type ChatRequest struct {
	Messages        []Message
	MaxOutputTokens int // 0: the deployment's default
	Temperature     *float64
	TopP            *float64
	Stop            []string
	// JSONSchema, when set, asks for structured output that matches it; SchemaName names it.
	JSONSchema json.RawMessage
	SchemaName string
	// JSONObject asks for a JSON object, whatever is in it. It does not go with JSONSchema. Of a provider without
	// such a mode nothing is asked.
	JSONObject bool
	// WantRaw asks for the provider's own response in ChatResponse.Raw: as it came, or put together
	// from the stream.
	WantRaw bool
	// CostLeft, if set, is what the call may cost at most, TokensLeft the tokens it may use. The router looks
	// at them, providers do not.
	CostLeft   *forebay.Money
	TokensLeft *int64
	// OnLimits, if set, is called with what the headers of an answer of any status say, as soon as
	// they are there: before the text. It is not called when no answer came.
	OnLimits func(RateLimits)
}

// ChatResponse is a completion and what it used.
type ChatResponse struct {
	Text         string
	FinishReason string // stop, length, content_filter, tool_calls
	Model        string // as the provider names it
	Usage        forebay.TokenUsage
	CachedTokens int64      // those of Usage.InputTokens that the provider had in its cache, which some quotas do not count
	Limits       RateLimits // also of an answer that is an error
	Raw          json.RawMessage
}

// EmbedRequest asks for one vector per input.
type EmbedRequest struct {
	Inputs     []string
	Dimensions int            // 0: the model's own
	CostLeft   *forebay.Money // both as in ChatRequest
	TokensLeft *int64
	OnLimits   func(RateLimits) // as in ChatRequest
}

// EmbedResponse holds one vector per input, in order.
type EmbedResponse struct {
	Vectors [][]float32
	Model   string
	Usage   forebay.TokenUsage
	Limits  RateLimits // also of an answer that is an error
}

// Provider calls one deployment. An error is a *forebay.TaskError, or ctx's own when ctx ended. The
// usage of a failed call is returned where it is known.
type Provider interface {
	Chat(ctx context.Context, req ChatRequest) (ChatResponse, error)
	Embed(ctx context.Context, req EmbedRequest) (EmbedResponse, error)
}

// Deployment is a provider with the name, price and limits the configuration gave it.
type Deployment struct {
	Name                  string
	Kind                  string // of provider, as the configuration names it
	Provider              Provider
	Price                 forebay.Price
	Accounting            quota.Accounting
	TokensPerMinute       int // 0: unknown; where output counts apart, of input
	OutputTokensPerMinute int // where output counts apart; 0: unknown
	RequestsPerMinute     int // 0: unknown
	Concurrency           int // calls at once; 0: any number
	MaxOutputTokens       int // for requests that set none; 0: the provider's own
}
