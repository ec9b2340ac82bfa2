package modelsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

const (
	maxFaultDelay        = 10 * time.Minute
	maxRefusePhrases     = 100
	maxRefusePhraseBytes = 200
	maxRequestsPerMinute = 10_000_000
)

// ProviderFaults are the faults of a Provider. Rates are shares of calls. A call has at most one
// fault, so rates add up to at most 1. The same seed gives a sequence of calls the same faults.
// In JSON, durations are strings such as "250ms".
type ProviderFaults struct {
	Seed         uint64
	Latency      time.Duration // before every answer, also a failing one
	Jitter       time.Duration // added to Latency, uniform from 0
	ThrottleRate float64       // answered with 429
	RetryAfter   time.Duration // sent with those 429s; 0: none is sent
	ErrorRate    float64       // answered with 500
	HangRate     float64       // never answered
	// MalformedRate is the share of calls answered with something that is no response.
	MalformedRate float64
	// RequestsPerMinute is a quota, a token bucket that holds ten seconds' worth. Calls above it
	// get a 429 at once, with the time until there is room. 0: none.
	RequestsPerMinute int
	// RefusePhrases are what the content filter looks for, in any case.
	RefusePhrases []string
}

// Validate returns a *forebay.Error about the first field that is out of range, or nil.
func (f ProviderFaults) Validate() error {
	total := 0.0
	for _, rate := range []struct {
		field string
		value float64
	}{{"throttle_rate", f.ThrottleRate}, {"error_rate", f.ErrorRate}, {"hang_rate", f.HangRate}, {"malformed_rate", f.MalformedRate}} {
		if !isRate(rate.value) {
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

// deployment has these faults, and nothing else that a call could notice.
func (f ProviderFaults) deployment() Deployment {
	d := DefaultDeployment()
	d.Kind, d.TokensPerMinute, d.RequestsPerMinute = KindBucket, 0, f.RequestsPerMinute
	d.Faults = Script{{Errors: Rates{http.StatusTooManyRequests: f.ThrottleRate, http.StatusInternalServerError: f.ErrorRate},
		Hang: f.HangRate, Malformed: f.MalformedRate}}
	return d
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

// UnmarshalJSON reads what MarshalJSON writes. A field left out is zero, and an unknown one is
// an error. Errors are *forebay.Error values that name the field. It does not call Validate.
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
