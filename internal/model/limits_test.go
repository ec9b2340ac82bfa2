package model

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// headers reads "name: value" lines.
func headers(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h
}

func TestRateLimitHeaders(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status int
		lines  string
		want   RateLimits
	}{
		"nothing": {200, "content-type: application/json", RateLimits{}},
		"OpenAI's durations": {200, `x-ratelimit-limit-requests: 10000
			x-ratelimit-remaining-requests: 9999
			x-ratelimit-reset-requests: 4h43m36.314s
			x-ratelimit-limit-tokens: 150000
			x-ratelimit-remaining-tokens: 0
			x-ratelimit-reset-tokens: 72ms`,
			RateLimits{Requests: RateLimit{10000, 9999, true, 4*time.Hour + 43*time.Minute + 36314*time.Millisecond},
				Tokens: RateLimit{150000, 0, true, 72 * time.Millisecond}}},
		"Azure's seconds": {429, `x-ratelimit-limit-tokens: 240000
			x-ratelimit-remaining-tokens: 12
			x-ratelimit-reset-tokens: 41
			retry-after: 41
			retry-after-ms: 40250`,
			RateLimits{Tokens: RateLimit{240000, 12, true, 41 * time.Second}, RetryAfter: 40250 * time.Millisecond}},
		"Azure of old says only what remains": {200, "x-ratelimit-remaining-requests: 0\nx-ratelimit-remaining-tokens: 7",
			RateLimits{Requests: RateLimit{0, 0, true, 0}, Tokens: RateLimit{0, 7, true, 0}}},
		"Azure's -1 and 0": {200, `x-ratelimit-limit-tokens: -1
			x-ratelimit-remaining-tokens: 0
			x-ratelimit-reset-tokens: 0
			x-ratelimit-limit-requests: 0
			x-ratelimit-remaining-requests: -1`, RateLimits{}},
		"Azure's misspelling stands for Retry-After": {429, "x-ratelimit-remaining-tokens: 3\nx-rate-limit-reset-tokens: 55",
			RateLimits{Tokens: RateLimit{0, 3, true, 55 * time.Second}, RetryAfter: 55 * time.Second}},
		"and only where one is due": {200, "x-ratelimit-remaining-tokens: 3\nx-rate-limit-reset-tokens: 55",
			RateLimits{Tokens: RateLimit{0, 3, true, 55 * time.Second}}},
		"a provisioned deployment": {429, "azure-openai-deployment-utilization: 103.4%\nretry-after-ms: 2040",
			RateLimits{Utilization: 1.034, RetryAfter: 2040 * time.Millisecond}},
		"a day": {429, "retry-after: 86400", RateLimits{RetryAfter: 24 * time.Hour}},
		"Anthropic's times, by its own clock": {429, `date: Sun, 01 Mar 2026 13:00:00 GMT
			anthropic-ratelimit-requests-limit: 1000
			anthropic-ratelimit-requests-remaining: 999
			anthropic-ratelimit-requests-reset: 2026-03-01T13:00:01Z
			anthropic-ratelimit-tokens-limit: 96000
			anthropic-ratelimit-tokens-remaining: 90000
			anthropic-ratelimit-tokens-reset: 2026-03-01T12:59:59Z
			anthropic-ratelimit-input-tokens-limit: 80000
			anthropic-ratelimit-input-tokens-remaining: 78000
			anthropic-ratelimit-input-tokens-reset: 2026-03-01T13:00:02Z
			anthropic-ratelimit-output-tokens-limit: 16000
			anthropic-ratelimit-output-tokens-remaining: 12000
			anthropic-ratelimit-output-tokens-reset: 2026-03-01T13:00:15Z
			retry-after: 2`,
			RateLimits{Requests: RateLimit{1000, 999, true, time.Second}, Tokens: RateLimit{96000, 90000, true, 0},
				InputTokens: RateLimit{80000, 78000, true, 2 * time.Second}, OutputTokens: RateLimit{16000, 12000, true, 15 * time.Second},
				RetryAfter: 2 * time.Second}},
		"nonsense": {429, `x-ratelimit-limit-tokens: 1e300
			x-ratelimit-remaining-requests: NaN
			x-ratelimit-reset-requests: tomorrow
			anthropic-ratelimit-tokens-reset: 2026-13-99
			azure-openai-deployment-utilization: full
			retry-after: -5`, RateLimits{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := readRateLimits(headers(c.lines), c.status, now)
			if got != c.want || got.Said() != (c.want != RateLimits{}) {
				t.Errorf("read %+v, want %+v", got, c.want)
			}
		})
	}
}

// What the headers say comes with the response, whatever became of the call, and before its text.
func TestLimitsComeWithEveryAnswer(t *testing.T) {
	status := 200
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-ratelimit-limit-tokens", "1000")
		w.Header().Set("x-ratelimit-remaining-tokens", "10")
		w.Header().Set("x-rate-limit-reset-tokens", "30")
		if status != 200 {
			w.WriteHeader(status)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/embeddings") {
			w.Write([]byte(`{"data":[{"embedding":[1]}]}`))
			return
		}
		stream(w, chunkHello, chunkStop)
	})
	p := openAIAt(t, url, HTTPConfig{})
	want := RateLimit{1000, 10, true, 30 * time.Second}
	var seen []RateLimits
	req := say("x")
	req.OnLimits = func(l RateLimits) { seen = append(seen, l) }
	if resp, err := p.Chat(t.Context(), req); err != nil || resp.Limits.Tokens != want || resp.Limits.RetryAfter != 0 {
		t.Errorf("chat: %+v, %v", resp, err)
	}
	if resp, err := p.Embed(t.Context(), EmbedRequest{Inputs: []string{"x"}}); err != nil || resp.Limits.Tokens != want {
		t.Errorf("embed: %+v, %v", resp, err)
	}
	status = 429
	resp, err := p.Chat(t.Context(), req)
	if e := wantTask(t, err, forebay.ClassThrottled, CodeRateLimited); e.RetryAfter != 30*time.Second || resp.Limits.Tokens != want {
		t.Errorf("429: %+v, retry after %v", resp, e.RetryAfter)
	}
	if len(seen) != 2 || seen[0].Tokens != want || seen[1].RetryAfter != 30*time.Second {
		t.Errorf("OnLimits saw %+v", seen)
	}
}

func FuzzRateLimits(f *testing.F) {
	f.Add(429, "240000", "17", "6m0s", "55", "2026-03-01T12:00:00Z")
	f.Add(200, "-1", "-1", "0", "", "x")
	f.Add(200, "1e400", "NaN", "-3h", "9999999999999999999s", "0000-00-00T00:00:00Z")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, limit, remaining, reset, misspelled, at string) {
		h := http.Header{}
		for name, value := range map[string]string{
			"X-Ratelimit-Limit-Tokens": limit, "X-Ratelimit-Remaining-Tokens": remaining, "X-Ratelimit-Reset-Tokens": reset,
			"X-Rate-Limit-Reset-Tokens": misspelled, "Azure-Openai-Deployment-Utilization": remaining,
			"Anthropic-Ratelimit-Input-Tokens-Limit": limit, "Anthropic-Ratelimit-Input-Tokens-Remaining": remaining,
			"Anthropic-Ratelimit-Input-Tokens-Reset": at, "Retry-After": at, "Date": at,
		} {
			h[name] = []string{value}
		}
		l := readRateLimits(h, status, now)
		for _, d := range []RateLimit{l.Requests, l.Tokens, l.InputTokens, l.OutputTokens} {
			if d.Limit < 0 || d.Limit > maxRateLimit || d.Remaining < 0 || d.Remaining > maxRateLimit || !d.Known && d.Remaining != 0 {
				t.Errorf("read %+v", d)
			}
			if d.Reset < 0 || d.Reset > maxRetryAfter {
				t.Errorf("reset after %v", d.Reset)
			}
		}
		if l.RetryAfter < 0 || l.RetryAfter > maxRetryAfter || l.Utilization < 0 || l.Utilization != l.Utilization {
			t.Errorf("read %+v", l)
		}
	})
}

// A day's requests may be used up, and the answer asks for hours. That concerns all calls, though
// the same wait of a call that is too large concerns that alone.
func TestLongWaitForRequestsIsTheDeployments(t *testing.T) {
	failure := &forebay.TaskError{Class: forebay.ClassThrottled, Code: CodeRequestExceedsQuota, RetryAfter: 3 * time.Hour}
	left := RateLimit{Limit: 200_000, Remaining: 190_000, Known: true}
	for want, l := range map[quota.OutcomeKind]RateLimits{
		quota.ThrottledRequests: {Requests: RateLimit{Limit: 200, Known: true}, Tokens: left},
		quota.Oversize:          {Requests: RateLimit{Limit: 200, Remaining: 3, Known: true}, Tokens: left},
	} {
		told := &quota.Call{}
		if ReportOutcome(quota.WithCall(t.Context(), told), l, forebay.TokenUsage{}, 0, failure); told.Outcome.Kind != want {
			t.Errorf("%+v is told as %d, want %d", l.Requests, told.Outcome.Kind, want)
		}
	}
}
