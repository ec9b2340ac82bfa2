package forebay

import "time"

// Kinds of deployments.
const (
	DeploymentModel        = "model"
	DeploymentHTTPFunction = "http-function"
)

// Deployment is what calls go to, as operators see it: an endpoint, model and region, or an HTTP
// function. Except for its configuration, all processes of a database share this state.
type Deployment struct {
	Name      string   `json:"name" doc:"of an HTTP function http: and its task"`
	Kind      string   `json:"kind" doc:"model, http-function"`
	Provider  string   `json:"provider"`
	Models    []string `json:"models" doc:"logical names it serves"`
	Simulated bool     `json:"simulated"`
	// As configured; 0: unknown.
	TokensPerMinute       int   `json:"tokens_per_minute" doc:"as configured; 0: unknown"`
	OutputTokensPerMinute int   `json:"output_tokens_per_minute" doc:"where output counts apart"`
	RequestsPerMinute     int   `json:"requests_per_minute" doc:"as configured; 0: unknown"`
	Concurrency           int   `json:"concurrency" doc:"calls at once, as configured; 0: any number"`
	Price                 Price `json:"price" doc:"US dollars per million tokens"`

	Quota       QuotaAmount  `json:"quota" doc:"per minute, as configured and as the provider says; 0: unknown"`
	Limit       QuotaAmount  `json:"limit" doc:"what is used of it at most, as learned from refusals; 0: unknown"`
	Used        QuotaAmount  `json:"used" doc:"reserved in the last minute"`
	PacePercent int64        `json:"pace_percent" doc:"of the limit: how fast tokens are used while there is room"`
	InFlight    int64        `json:"in_flight" doc:"calls that are not over, of all processes; where concurrency is not limited only those that began in the last minute"`
	Paused      bool         `json:"paused" doc:"by an operator"`
	PausedUntil *time.Time   `json:"paused_until" doc:"as the provider asked"`
	Breaker     BreakerState `json:"breaker" doc:"closed, open, half-open"`
	// BreakerReason is the error code for which the deployment turns every call away. It is "" if
	// calls merely fail, or the breaker is closed.
	BreakerReason string `json:"breaker_reason,omitempty" doc:"why the deployment turns every call away: unauthorized, insufficient_quota, not_found; missing where its calls fail, or the breaker is closed"`
	// BreakerUntil is when an open breaker admits a probe.
	BreakerUntil *time.Time `json:"breaker_until" doc:"when an open breaker lets a call try"`
	// LearnedSince is when the limit, the pace and the breaker below began to be learned. nil:
	// unknown.
	LearnedSince *time.Time `json:"learned_since,omitempty" doc:"when what is learned began to be: with another endpoint or model it begins anew"`
	Calls        int64      `json:"calls" doc:"in all"`
	Throttled    int64      `json:"throttled" doc:"of them, answered with 429"`
	Failed       int64      `json:"failed" doc:"of them, for a reason that lies with the deployment"`
	// PromptFactor is κ: how many tokens the provider counts for each estimated one.
	PromptFactor float64 `json:"prompt_factor" doc:"tokens that the provider counts for one that is estimated, as learned"`
	PromptSpread float64 `json:"prompt_spread" doc:"standard deviation of single prompts from that, as a share"`
	// UnnamedOutputTokens is what is reserved for the output of a call that sets no maximum. 0: all
	// calls set one.
	UnnamedOutputTokens int64 `json:"unnamed_output_tokens,omitempty" doc:"reserved for the output of a call that names no max output, as learned; missing where calls always name one"`
}

// QuotaAmount is a quantity of what providers limit.
type QuotaAmount struct {
	Tokens       int64 `json:"tokens"`
	OutputTokens int64 `json:"output_tokens" doc:"where output counts apart"`
	Requests     int64 `json:"requests"`
}

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states of breakers.
const (
	BreakerClosed   BreakerState = "closed"
	BreakerOpen     BreakerState = "open"
	BreakerHalfOpen BreakerState = "half-open"
)

// Available reports whether calls may go to the deployment, as far as its quota allows.
func (d Deployment) Available() bool {
	return !d.Paused && d.PausedUntil == nil && d.Breaker == BreakerClosed
}

// DeploymentChange is an event of a deployment.
type DeploymentChange struct {
	Number     int64      `json:"number"`
	Deployment string     `json:"deployment"`
	Type       string     `json:"type" doc:"breaker_opened, breaker_half_open, breaker_closed, limit_lowered, limit_restored, paused"`
	At         time.Time  `json:"at"`
	Until      *time.Time `json:"until,omitempty" doc:"of a pause that the provider asked for, or an open breaker"`
	// Reason is why a breaker opened, if failures were not the cause.
	Reason string `json:"reason,omitempty" doc:"of breaker_opened, where calls did not fail but were turned away: unauthorized, insufficient_quota, not_found"`
	// TokensPerMinute is the new limit, where it changed.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty" doc:"the limit after a change of it"`
}

// TopicOperations is a topic of the tenant DefaultTenant. Changes of deployments are published to
// it: the body is the change in JSON, the subject its type. Nobody else can publish or forward to
// it.
const TopicOperations = "operations"
