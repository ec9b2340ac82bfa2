package modelsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	maxFaultDelay        = 10 * time.Minute
	maxRefusePhrases     = 100
	maxRefusePhraseBytes = 200
	maxRequestsPerMinute = 10_000_000
)

// ProviderFaults makes a provider difficult. Rates are shares of calls; a call suffers at most one fault, so
// they add up to at most 1. They are drawn from a generator that SetFaults seeds, so that a sequence
// of calls repeats. In JSON durations are strings such as "250ms".
type ProviderFaults struct {
	Seed         uint64
	Latency      time.Duration // before every answer, also a failing one
	Jitter       time.Duration // added to Latency, uniform from 0
	ThrottleRate float64       // answered with 429
	RetryAfter   time.Duration // sent with those 429s; 0: none is sent
	ErrorRate    float64       // answered with 500
	HangRate     float64       // never answered
	// MalformedRate is the share answered with something that is no response.
	MalformedRate float64
	// RequestsPerMinute is a real quota, a token bucket that holds ten seconds' worth: above it calls
	// get a 429 at once, with the time until there is room. 0: none.
	RequestsPerMinute int
	// RefusePhrases are what the content filter looks for, whatever their case.
	RefusePhrases []string
}

// ProviderStats counts what became of the calls since the provider was made. Calls counts all of them.
type ProviderStats struct {
	Calls     int64 `json:"calls"`
	Throttled int64 `json:"throttled"`
	Errors    int64 `json:"errors"`
	Hangs     int64 `json:"hangs"`
	Malformed int64 `json:"malformed"`
	Refused   int64 `json:"refused"`
}

// Validate returns a *forebay.Error about the first field that is out of range, or nil.
func (f ProviderFaults) Validate() error {
	total := 0.0
	for _, rate := range []struct {
		field string
		value float64
	}{{"throttle_rate", f.ThrottleRate}, {"error_rate", f.ErrorRate}, {"hang_rate", f.HangRate}, {"malformed_rate", f.MalformedRate}} {
		if !(rate.value >= 0 && rate.value <= 1) { // so written, NaN fails too
			return forebay.Invalid(rate.field, "must be 0 to 1")
		}
		total += rate.value
	}
	if total > 1+1e-9 {
		return forebay.Invalid("throttle_rate", "the rates add up to %.3g; together they may be at most 1", total)
	}
	for _, delay := range []struct {
		field string
		value time.Duration
	}{{"latency", f.Latency}, {"jitter", f.Jitter}, {"retry_after", f.RetryAfter}} {
		if delay.value < 0 || delay.value > maxFaultDelay {
			return forebay.Invalid(delay.field, "must be 0 to 10m")
		}
	}
	if f.RequestsPerMinute < 0 || f.RequestsPerMinute > maxRequestsPerMinute {
		return forebay.Invalid("requests_per_minute", "must be 0 to %d", maxRequestsPerMinute)
	}
	if len(f.RefusePhrases) > maxRefusePhrases {
		return forebay.Invalid("refuse_phrases", "has %d phrases; the limit is %d", len(f.RefusePhrases), maxRefusePhrases)
	}
	for _, phrase := range f.RefusePhrases {
		if strings.TrimSpace(phrase) == "" || len(phrase) > maxRefusePhraseBytes {
			return forebay.Invalid("refuse_phrases", "each phrase must be 1 to %d bytes", maxRefusePhraseBytes)
		}
	}
	return nil
}

// SetFaults replaces the faults, from the next call on: the generator starts again from the seed and
// the quota is full. Nothing changes when they are out of range.
func (p *Provider) SetFaults(f ProviderFaults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	f.RefusePhrases = slices.Clone(f.RefusePhrases)
	refuse := make([]string, len(f.RefusePhrases))
	for i, phrase := range f.RefusePhrases {
		refuse[i] = strings.ToLower(phrase)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.refuse = f, refuse
	p.rng = rand.New(rand.NewPCG(f.Seed, 0x9e3779b97f4a7c15))
	p.bucket = newBucket(f.RequestsPerMinute, time.Now())
	return nil
}

// Faults returns the faults in force.
func (p *Provider) Faults() ProviderFaults {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults
	f.RefusePhrases = slices.Clone(f.RefusePhrases)
	return f
}

// ProviderStats returns the counters.
func (p *Provider) ProviderStats() ProviderStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// fate is what one call will meet.
type fate struct {
	delay  time.Duration
	hang   bool
	err    error
	refuse []string
}

// suffer lets one call meet its fate: it waits, and returns the error the call ends with, or nil.
// contains reports whether the request holds a phrase, given in lower case.
func (p *Provider) suffer(ctx context.Context, contains func(phrase string) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := p.draw()
	if err := sleep.For(ctx, f.delay); err != nil {
		return err
	}
	if f.hang {
		if err := sleep.For(ctx, p.idle); err != nil {
			return err
		}
	}
	if f.err != nil {
		return f.err
	}
	if slices.ContainsFunc(f.refuse, contains) {
		p.mu.Lock()
		p.stats.Refused++
		p.mu.Unlock()
		return forebay.Permanent(model.CodeContentFilter, "the content filter refused the prompt")
	}
	return nil
}

func (p *Provider) draw() fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Calls++
	if room := p.bucket.take(time.Now()); room > 0 {
		p.stats.Throttled++
		return fate{err: throttled("the deployment's request quota is spent", room)}
	}
	f := p.faults
	// Every admitted call draws twice, so that one rate does not shift the faults of another.
	u, jitter := p.rng.Float64(), p.rng.Float64()
	out := fate{delay: f.Latency + time.Duration(jitter*float64(f.Jitter)), refuse: p.refuse}
	if u -= f.ThrottleRate; u < 0 {
		p.stats.Throttled++
		out.err = throttled("too many requests", f.RetryAfter)
	} else if u -= f.ErrorRate; u < 0 {
		p.stats.Errors++
		out.err = transient(model.CodeServerError, "the deployment answered 500")
	} else if u -= f.HangRate; u < 0 {
		p.stats.Hangs++
		out.hang = true
		out.err = transient(model.CodeIdleTimeout, "the deployment stopped sending")
	} else if u -= f.MalformedRate; u < 0 {
		p.stats.Malformed++
		out.err = transient(model.CodeMalformedResponse, "the deployment's answer is no response")
	}
	return out
}

func throttled(message string, after time.Duration) error {
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: model.CodeRateLimited, Message: message, RetryAfter: after}
}

func transient(code, message string) error {
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: code, Message: message}
}

// bucket is a token bucket. Its zero value lets everything through.
type bucket struct {
	perSecond, capacity, tokens float64
	at                          time.Time
}

func newBucket(perMinute int, now time.Time) bucket {
	capacity := math.Max(1, float64(perMinute)/6)
	return bucket{perSecond: float64(perMinute) / 60, capacity: capacity, tokens: capacity, at: now}
}

// take takes one token, or returns how long until there is one.
func (b *bucket) take(now time.Time) time.Duration {
	if b.perSecond == 0 {
		return 0
	}
	b.tokens = math.Min(b.capacity, b.tokens+now.Sub(b.at).Seconds()*b.perSecond)
	b.at = now
	if b.tokens >= 1-1e-6 { // waiting exactly as told must be enough, rounding or not
		b.tokens--
		return 0
	}
	seconds := (1 - b.tokens) / b.perSecond
	return time.Duration(math.Ceil(seconds*1000)) * time.Millisecond
}

// wireFaults is ProviderFaults in JSON.
type wireFaults struct {
	Seed              uint64   `json:"seed"`
	Latency           string   `json:"latency"`
	Jitter            string   `json:"jitter"`
	ThrottleRate      float64  `json:"throttle_rate"`
	RetryAfter        string   `json:"retry_after"`
	ErrorRate         float64  `json:"error_rate"`
	HangRate          float64  `json:"hang_rate"`
	MalformedRate     float64  `json:"malformed_rate"`
	RequestsPerMinute int      `json:"requests_per_minute"`
	RefusePhrases     []string `json:"refuse_phrases"`
}

// MarshalJSON writes durations as strings such as "250ms".
func (f ProviderFaults) MarshalJSON() ([]byte, error) {
	phrases := f.RefusePhrases
	if phrases == nil {
		phrases = []string{}
	}
	return json.Marshal(wireFaults{
		f.Seed, f.Latency.String(), f.Jitter.String(), f.ThrottleRate, f.RetryAfter.String(),
		f.ErrorRate, f.HangRate, f.MalformedRate, f.RequestsPerMinute, phrases,
	})
}

// UnmarshalJSON reads what MarshalJSON writes; a field left out is zero, an unknown one is an error.
// Errors are *forebay.Error values that name the field. It does not call Validate.
func (f *ProviderFaults) UnmarshalJSON(b []byte) error {
	var wire wireFaults
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wire); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			if wrong.Field == "latency" || wrong.Field == "jitter" || wrong.Field == "retry_after" {
				return forebay.Invalid(wrong.Field, "must be a duration such as \"250ms\"")
			}
			return forebay.Invalid(wrong.Field, "cannot be a %s", wrong.Value)
		}
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			name = strings.Trim(name, `"`)
			return &forebay.Error{Code: forebay.CodeUnknownField, Field: name, Message: "unknown field"}
		}
		return forebay.Errorf(forebay.CodeInvalidJSON, "the faults are not valid JSON").Caused(err)
	}
	out := ProviderFaults{
		Seed: wire.Seed, ThrottleRate: wire.ThrottleRate, ErrorRate: wire.ErrorRate, HangRate: wire.HangRate,
		MalformedRate: wire.MalformedRate, RequestsPerMinute: wire.RequestsPerMinute, RefusePhrases: wire.RefusePhrases,
	}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
	}{{"latency", wire.Latency, &out.Latency}, {"jitter", wire.Jitter, &out.Jitter}, {"retry_after", wire.RetryAfter, &out.RetryAfter}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil {
			return forebay.Invalid(d.field, "must be a duration such as \"250ms\"")
		}
		*d.to = v
	}
	*f = out
	return nil
}
