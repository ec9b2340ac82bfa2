package modelsim

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

func (c *httpCall) requestID() string { return fmt.Sprintf("req_%016x%08x", c.key, c.number) }

// idHeaders sets the headers that every answer has.
func (c *httpCall) idHeaders() {
	h := c.w.Header()
	switch c.api {
	case anthropic:
		h.Set("request-id", c.requestID())
		h.Set("anthropic-organization-id", "00000000-0000-4000-8000-000000000000")
	case azure:
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(c.key), c.number)
		h.Set("apim-request-id", id)
		h.Set("x-request-id", id)
		h.Set("x-ms-region", "Simulated")
	default:
		h.Set("x-request-id", c.requestID())
		h.Set("openai-version", "2020-10-01")
		h.Set("openai-organization", "org-sim")
	}
}

// quotaHeaders sets what an answer tells of the quota. refused is the verdict of a 429, else nil.
func (c *httpCall) quotaHeaders(refused *Verdict) {
	c.idHeaders()
	kind := c.deployment.Headers
	if kind == HeadersNone {
		return
	}
	h, s := c.w.Header(), c.admission.State
	if c.api == anthropic {
		c.anthropicHeaders(h, s, kind)
	} else {
		c.openAIHeaders(h, s, kind)
	}
	if refused != nil {
		c.waitHeaders(h, refused, kind)
	}
}

// openAIHeaders sets x-ratelimit-…. OpenAI gives resets as durations, Azure as seconds.
func (c *httpCall) openAIHeaders(h http.Header, s State, kind Headers) {
	if c.deployment.Kind == KindPTU && kind != HeadersRetryAfter {
		h.Set("azure-openai-deployment-utilization", strconv.FormatFloat(math.Round(s.Utilization*1000)/10, 'f', -1, 64)+"%")
	}
	for name, r := range map[string]*Reading{"requests": s.Requests, "tokens": s.Tokens} {
		if r == nil || kind == HeadersRetryAfter {
			continue
		}
		set := func(what, value string) { h.Set("x-ratelimit-"+what+"-"+name, value) }
		limit := r.PerMinute
		switch {
		case kind == HeadersUnknown:
			set("limit", "-1")
			set("remaining", "-1")
			set("reset", "0")
			continue
		case kind == HeadersSlice && name == "requests":
			limit = r.Holds
		}
		set("remaining", strconv.Itoa(r.Remaining))
		if kind == HeadersRemaining || kind == HeadersMisspelled {
			continue
		}
		set("limit", strconv.Itoa(limit))
		if c.api == azure {
			set("reset", strconv.FormatInt(ceilSeconds(r.Reset), 10))
		} else {
			set("reset", shortDuration(r.Reset))
		}
	}
}

// anthropicHeaders sets anthropic-ratelimit-…. Resets are times in whole seconds, and remaining
// tokens are rounded to thousands (Rate limits, "Response headers").
func (c *httpCall) anthropicHeaders(h http.Header, s State, kind Headers) {
	if kind == HeadersRetryAfter || kind == HeadersUnknown || kind == HeadersMisspelled {
		return
	}
	tokens := s.Tokens
	if tokens == nil { // those of the limit that is nearest
		tokens = s.Input
		if s.Output != nil && (tokens == nil || share(s.Output) < share(tokens)) {
			tokens = s.Output
		}
	}
	for name, r := range map[string]*Reading{"requests": s.Requests, "tokens": tokens, "input-tokens": s.Input, "output-tokens": s.Output} {
		if r == nil {
			continue
		}
		remaining := r.Remaining
		if name != "requests" && r.PerMinute >= 10_000 { // rounding would hide a smaller quota
			remaining = (remaining + 500) / 1000 * 1000
		}
		name = "anthropic-ratelimit-" + name
		h.Set(name+"-remaining", strconv.Itoa(remaining))
		if kind == HeadersRemaining {
			continue
		}
		h.Set(name+"-limit", strconv.Itoa(r.PerMinute))
		h.Set(name+"-reset", c.admission.now.Add(r.Reset+time.Second-1).UTC().Format("2006-01-02T15:04:05Z"))
	}
}

func share(r *Reading) float64 { return float64(r.Remaining) / float64(max(r.Holds, 1)) }

// waitHeaders sets when to come back after a 429. OpenAI and Anthropic say nothing to a call that
// never fits.
func (c *httpCall) waitHeaders(h http.Header, v *Verdict, kind Headers) {
	if v.RetryAfter <= 0 || kind == HeadersUnknown || v.Oversize && c.api != azure {
		return
	}
	seconds := strconv.FormatInt(ceilSeconds(v.RetryAfter), 10)
	if kind == HeadersMisspelled {
		h.Set("x-rate-limit-reset-tokens", seconds)
		return
	}
	h.Set("retry-after", seconds)
	if c.api != anthropic {
		h.Set("retry-after-ms", strconv.FormatInt(ceilMillis(v.RetryAfter).Milliseconds(), 10))
	}
	if c.api == azure && v.Refused != throttledByScript {
		h.Set("policy-id", map[bool]string{true: "DeploymentRatelimit-Call", false: "DeploymentRatelimit-Token"}[v.Refused == Requests])
	}
}

// shortDuration writes a duration as OpenAI does: 72ms, 8.64s, 6m0s.
func shortDuration(d time.Duration) string {
	if d < time.Second {
		return strconv.FormatInt(ceilMillis(d).Milliseconds(), 10) + "ms"
	}
	return d.Round(time.Millisecond).String()
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func ceilMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
