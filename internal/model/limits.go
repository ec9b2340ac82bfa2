package model

import (
	"net/http"
	"strings"
	"time"
)

// RateLimits is what the headers of an answer say about the quota of its deployment, for any
// provider. The zero value is an answer without such headers.
type RateLimits struct {
	Requests, Tokens RateLimit
	// Only Anthropic counts InputTokens and OutputTokens separately. Its Tokens describe the limit
	// that is closest.
	InputTokens, OutputTokens RateLimit
	// Utilization is the load of a provisioned Azure deployment; 1 is full and 0 is unknown.
	Utilization float64
	// RetryAfter is how long to wait; 0 means not given.
	RetryAfter time.Duration
}

// RateLimit is one dimension of a quota.
type RateLimit struct {
	Limit     int64 // per minute; 0: not given
	Remaining int64
	Known     bool          // Remaining was given
	Reset     time.Duration // until the quota is full again; 0: not given, or full
}

// Said reports whether the headers contained anything.
func (l RateLimits) Said() bool { return l != RateLimits{} }

// into returns a function that stores the limits of an answer and passes them on.
func (l *RateLimits) into(next func(RateLimits)) func(RateLimits) {
	return func(said RateLimits) {
		*l = said
		if next != nil {
			next(said)
		}
	}
}

const maxRateLimit = 1e15

// readRateLimits reads the headers of an answer:
//   - x-ratelimit-… of OpenAI, with resets as durations such as "6m0s"
//   - x-ratelimit-… of Azure, with resets in seconds
//   - anthropic-ratelimit-…, with resets as RFC 3339 times
//
// A value that is negative or not a number counts as absent. Some APIs of Azure answer -1 and 0
// for every dimension.
func readRateLimits(h http.Header, status int, now time.Time) RateLimits {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // times in headers use the provider's clock
	}
	l := RateLimits{
		Requests: readRateLimit(h, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", now),
		Tokens:   readRateLimit(h, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", now),
	}
	if l.Requests == (RateLimit{}) {
		l.Requests = readAnthropicLimit(h, "requests", now)
	}
	if l.Tokens == (RateLimit{}) {
		l.Tokens = readAnthropicLimit(h, "tokens", now)
	}
	l.InputTokens = readAnthropicLimit(h, "input-tokens", now)
	l.OutputTokens = readAnthropicLimit(h, "output-tokens", now)
	if l.Tokens.Reset == 0 {
		l.Tokens.Reset = misspelledReset(h)
	}
	if percent, ok := number(strings.TrimSuffix(h.Get("azure-openai-deployment-utilization"), "%")); ok && percent > 0 && percent < 1e6 {
		l.Utilization = percent / 100
	}
	l.RetryAfter = retryAfter(h, now)
	if l.RetryAfter == 0 && status == http.StatusTooManyRequests {
		l.RetryAfter = misspelledReset(h)
	}
	return l
}

// misspelledReset reads a header that Azure has sent in place of Retry-After, in seconds.
func misspelledReset(h http.Header) time.Duration {
	return resetAfter(h.Get("x-rate-limit-reset-tokens"), time.Time{})
}

func readAnthropicLimit(h http.Header, dimension string, now time.Time) RateLimit {
	name := "anthropic-ratelimit-" + dimension
	return readRateLimit(h, name+"-limit", name+"-remaining", name+"-reset", now)
}

func readRateLimit(h http.Header, limit, remaining, reset string, now time.Time) RateLimit {
	var l RateLimit
	most, said := number(h.Get(limit))
	if said && (most <= 0 || most > maxRateLimit) {
		return RateLimit{}
	}
	l.Limit = int64(most)
	left, known := number(h.Get(remaining))
	if known && (left < 0 || left > maxRateLimit) {
		return RateLimit{}
	}
	l.Remaining, l.Known = int64(left), known
	if said || known {
		l.Reset = resetAfter(h.Get(reset), now)
	}
	return l
}

// resetAfter reads seconds, a duration such as "6m0s" or a time. The result is from 0 to a week.
func resetAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if len(value) > 64 {
		return 0
	}
	if seconds, ok := number(value); ok {
		return bounded(seconds * float64(time.Second))
	}
	if d, err := time.ParseDuration(value); err == nil {
		return bounded(float64(d))
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil && !now.IsZero() {
		return bounded(float64(at.Sub(now)))
	}
	return 0
}
