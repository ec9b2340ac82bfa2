// Package model calls language models of OpenAI and compatible servers, of Azure OpenAI and of
// Anthropic. Package modelsim has a simulated deployment, which needs no network.
//
// A [Deployment] is one endpoint, model and region with its price and quota. A [Provider] makes
// one call and never retries, because only the job's retry lane retries. Failures are
// [forebay.TaskError] values, classified by what should happen next.
package model

import (
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Role is the author of a message.
type Role string

const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a conversation.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
	// Object is the message in the shape of OpenAI's API, if it is more than a role and a text. It
	// counts then; Content has its texts.
	Object json.RawMessage `json:"-"`
}

// Member is a member of a JSON object.
type Member struct {
	Name  string
	Value json.RawMessage
}

// ChatRequest asks for one completion.
type ChatRequest struct {
	Messages        []Message
	MaxOutputTokens int // 0: the deployment's default
	Temperature     *float64
	TopP            *float64
	Stop            []string
	// JSONSchema, if set, asks for structured output that matches it. SchemaName is its name.
	JSONSchema json.RawMessage
	SchemaName string
	// JSONObject asks for any JSON object. It cannot be combined with JSONSchema. A provider
	// without such a mode ignores it.
	JSONObject bool
	// SchemaDescription says what the schema is for; "": nothing.
	SchemaDescription string
	// Extra are further members of a request in the shape of OpenAI's API, such as tools. They reach
	// OpenAI-compatible servers byte for byte. Other providers translate them.
	Extra []Member
	// AsOpenAI says that Messages or Extra have something that only such servers take.
	AsOpenAI bool
	// Answers is how many answers Extra asks for; 0 is 1.
	Answers int
	// Whole asks for an answer in one piece, which some requests require.
	Whole bool
	// WantRaw asks for the provider's own response in ChatResponse.Raw. A streamed response is
	// assembled.
	WantRaw bool
	// CostLeft, if set, is the most that the call may cost, and TokensLeft the most tokens it may
	// use. The router checks them; providers do not.
	CostLeft   *forebay.Money
	TokensLeft *int64
	// OnLimits, if set, is called with the limits in the headers of an answer, whatever its
	// status. It is called before the text arrives. Without an answer it is not called.
	OnLimits func(RateLimits)
	// OnText, if set, is called with all of the text of the first answer that has arrived, as it
	// grows.
	OnText func(all string)
}

// ChatResponse is a completion and its usage.
type ChatResponse struct {
	Text         string
	FinishReason string // stop, length, content_filter, tool_calls
	Model        string // its name at the provider
	Usage        forebay.TokenUsage
	CachedTokens int64      // input tokens from the provider's cache, which some quotas do not count
	CacheWrites  int64      // input tokens that the provider wrote to its cache
	Limits       RateLimits // also set for an answer with an error
	Raw          json.RawMessage
	// Choices are the answers, in order, if there are several or if one is more than its text. Text
	// and FinishReason are those of the first.
	Choices []Choice
}

// Choice is one of the answers to a request.
type Choice struct {
	Index        int
	Text         string
	FinishReason string
	Refusal      string          // what the model says instead of a text
	LogProbs     json.RawMessage // as OpenAI's API has them; nil: none
	// Message are the other members of the message in the shape of OpenAI's API, such as tool_calls.
	Message []Member
}

// Member returns a member of the message, or nil.
func (c *Choice) Member(name string) json.RawMessage {
	for _, m := range c.Message {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
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
	Limits  RateLimits // also set for an answer with an error
}

// Provider calls one deployment. An error is a *forebay.TaskError, or the error of ctx when ctx
// has ended. A failed call returns its usage if it is known.
type Provider interface {
	Chat(ctx context.Context, req ChatRequest) (ChatResponse, error)
	Embed(ctx context.Context, req EmbedRequest) (EmbedResponse, error)
}

// Deployment is a provider with its configured name, price and limits.
type Deployment struct {
	Name                  string
	Kind                  string // the provider's name in the configuration
	Provider              Provider
	Price                 forebay.Price
	Accounting            quota.Accounting
	TokensPerMinute       int // 0: unknown; if output counts separately, input only
	OutputTokensPerMinute int // if output counts separately; 0: unknown
	RequestsPerMinute     int // 0: unknown
	Concurrency           int // calls at once; 0: no limit
	MaxOutputTokens       int // for requests without a limit; 0: the provider's own
}

// Charge puts down the use of a call in the result of its job, with its cost. d is nil if no
// deployment was called.
func (d *Deployment) Charge(result *forebay.TaskResult, usage forebay.TokenUsage, cachedTokens, cacheWrites int64) {
	result.Usage = usage
	if d != nil {
		result.Deployment, result.Cost = d.Name, d.Price.CostWithCache(usage, cachedTokens, cacheWrites)
	}
}
