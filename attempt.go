package forebay

import "time"

// Outcome is how one attempt ended.
type Outcome string

const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeRetried   Outcome = "retried"   // failed; another attempt follows
	OutcomeThrottled Outcome = "throttled" // the provider said "not now"; charges no attempt
	OutcomeFailed    Outcome = "failed"    // failed for good
	OutcomeCancelled Outcome = "cancelled"
	OutcomeLost      Outcome = "lost"    // the worker died or lost its lock; charges no attempt
	OutcomeRunning   Outcome = "running" // the call is under way
)

// ErrorClass sorts failures by what should happen next.
type ErrorClass string

const (
	ClassTransient ErrorClass = "transient" // may succeed later: retried by the policy
	ClassThrottled ErrorClass = "throttled" // over a quota: waits, charges no attempt
	ClassPermanent ErrorClass = "permanent" // will never succeed as it is: not retried
)

// Attempt is one call of a deployment for a job. Its row is written once, when it ends. One that
// runs has no FinishedAt, and its Outcome is OutcomeRunning.
type Attempt struct {
	Number            int         `json:"number" doc:"1-based within the generation; counts every call, charged or not"`
	Generation        int         `json:"generation"`
	Deployment        string      `json:"deployment" doc:"empty when the worker was lost before it could say"`
	StartedAt         time.Time   `json:"started_at"`
	FinishedAt        time.Time   `json:"finished_at,omitzero" doc:"absent while it runs"`
	Outcome           Outcome     `json:"outcome"`
	ErrorClass        *ErrorClass `json:"error_class"`
	ErrorCode         *string     `json:"error_code"`
	ErrorMessage      *string     `json:"error_message"`
	Usage             TokenUsage  `json:"usage"`
	CostUSD           Money       `json:"cost_usd"`
	RetryDelaySeconds *float64    `json:"retry_delay_seconds"`
}

// RunningAttempt is the call that is under way for a job.
type RunningAttempt struct {
	Number     int       `json:"number" doc:"1-based within the generation; counts every call, charged or not"`
	Deployment string    `json:"deployment" doc:"empty: its task calls no deployment"`
	StartedAt  time.Time `json:"started_at" doc:"when its job was handed to a worker"`
}

// TokenUsage counts tokens as the provider reported them, or as estimated when it did not.
type TokenUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// Usage is what a job has spent over all its attempts.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostUSD      Money `json:"cost_usd"`
}

// Price is what a deployment charges, in US dollars per million tokens.
type Price struct {
	Input  float64 `json:"input" koanf:"input"`
	Output float64 `json:"output" koanf:"output"`
	// CachedInput is that of input from the provider's cache. 0: it is that of other input.
	CachedInput float64 `json:"cached_input,omitempty" koanf:"cached_input"`
	// CacheWrite is that of input that the provider writes to its cache. 0: it is that of other
	// input.
	CacheWrite float64 `json:"cache_write,omitempty" koanf:"cache_write"`
}

// Cost returns the price of that many tokens.
func (p Price) Cost(u TokenUsage) Money {
	// Dollars per million tokens are nano-dollars per token times a thousand.
	return Money(float64(u.InputTokens)*p.Input*1000 + float64(u.OutputTokens)*p.Output*1000 + 0.5)
}

// CostBound returns the most that so many tokens can cost: their provider may write all of the
// input to its cache.
func (p Price) CostBound(u TokenUsage) Money {
	p.Input = max(p.Input, p.CacheWrite)
	return p.Cost(u)
}

// CostWithCache returns the price of that many tokens. So many tokens of the input came
// from the provider's cache, and so many others were written to it.
func (p Price) CostWithCache(u TokenUsage, cachedTokens, writtenTokens int64) (cost Money) {
	for _, part := range []struct {
		tokens int64
		price  float64
	}{{cachedTokens, p.CachedInput}, {writtenTokens, p.CacheWrite}} {
		if part.price > 0 {
			tokens := min(max(part.tokens, 0), u.InputTokens)
			u.InputTokens -= tokens
			cost += Price{Input: part.price}.Cost(TokenUsage{InputTokens: tokens})
		}
	}
	return cost + p.Cost(u)
}
