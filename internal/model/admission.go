package model

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Limits returns the deployment's quota in the units of its provider.
func (d *Deployment) Limits() quota.Limits {
	return quota.Limits{Accounting: d.Accounting, TokensPerMinute: int64(d.TokensPerMinute), OutputTokensPerMinute: int64(d.OutputTokensPerMinute),
		RequestsPerMinute: int64(d.RequestsPerMinute), DefaultMaxOutputTokens: int64(d.MaxOutputTokens)}
}

// reportLimits also passes the limits in an answer's headers to the admission of the call.
func reportLimits(ctx context.Context, next func(RateLimits)) func(RateLimits) {
	call := quota.CallOf(ctx)
	if call == nil || call.Headers == nil {
		return next
	}
	return func(l RateLimits) {
		if next != nil {
			next(l)
		}
		if l.Said() {
			call.Headers(l.headers())
		}
	}
}

// headers returns the limits by dimension. If the provider counts input separately, Tokens means
// input.
func (l RateLimits) headers() (h quota.Headers) {
	tokens := l.Tokens
	if l.InputTokens != (RateLimit{}) {
		tokens = l.InputTokens
	}
	for d, limit := range map[quota.Dimension]RateLimit{quota.Tokens: tokens, quota.Requests: l.Requests, quota.OutputTokens: l.OutputTokens} {
		h.Limit[d], h.Remaining[d], h.Reset[d] = limit.Limit, limit.Remaining, limit.Reset
	}
	return h
}

// ReportSent tells the admission of a call that the call is sent now. [ReportOutcome] should
// follow. If the caller panics instead, the call counts and its outcome stays unknown.
func ReportSent(ctx context.Context) {
	if call := quota.CallOf(ctx); call != nil {
		call.Outcome = &quota.Outcome{Kind: quota.Permanent}
	}
}

// ReportOutcome tells the admission of a call how the call ended. cached is the number of input
// tokens that were in the provider's cache.
func ReportOutcome(ctx context.Context, l RateLimits, used forebay.TokenUsage, cached int64, err error) {
	call := quota.CallOf(ctx)
	if call == nil {
		return
	}
	o := quota.Outcome{Kind: quota.Succeeded, Headers: l.headers(), RetryAfter: l.RetryAfter,
		Usage: quota.Usage{PromptTokens: used.InputTokens, CachedTokens: within(cached, used.InputTokens), OutputTokens: used.OutputTokens}}
	var task *forebay.TaskError
	switch {
	case err == nil:
	case gaveUp(ctx):
		o.Kind = quota.Permanent
	case !errors.As(err, &task):
		o.Kind = quota.Transient
	default:
		o.Kind, o.RetryAfter = outcomeKind(task, l), task.RetryAfter
		var said *failure
		if errors.As(err, &said) {
			if o.Denial, o.Certain = said.denial(); o.Denial != quota.NotDenied {
				o.Kind = quota.Denied
			}
		}
	}
	call.Outcome = &o
}

// gaveUp reports whether nobody waits for the answer any more: the job was cancelled, its deadline
// passed or the process stops. The end of a task's own time limit is different. It is a failure
// that says something about the deployment.
func gaveUp(ctx context.Context) bool {
	var failure *forebay.TaskError
	return ctx.Err() != nil && !errors.As(context.Cause(ctx), &failure)
}

// within limits the number of cached tokens that an endpoint reports to the possible range.
func within(cached, input int64) int64 { return min(max(cached, 0), max(input, 0)) }

func outcomeKind(failure *forebay.TaskError, l RateLimits) quota.OutcomeKind {
	switch failure.Class {
	case forebay.ClassPermanent:
		return quota.Permanent
	case forebay.ClassThrottled:
		requests := l.Requests.Known && l.Requests.Remaining == 0 && (!l.Tokens.Known || l.Tokens.Remaining > 0)
		switch {
		case failure.Code == CodeParameterLearned:
			return quota.Permanent
		case failure.Code == CodeRequestExceedsQuota && (!requests || l.Requests.Limit <= 0): // else a day's requests are used up
			return quota.Oversize
		case failure.Code == CodeOverloaded:
			return quota.Transient
		case requests:
			return quota.ThrottledRequests
		case l.Tokens.Known && l.Tokens.Remaining == 0:
			return quota.ThrottledTokens
		}
		return quota.Throttled
	}
	return quota.Transient
}
