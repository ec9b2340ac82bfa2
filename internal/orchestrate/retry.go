package orchestrate

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// policy is a retry policy as it is stored with an activity.
type policy struct {
	MaxAttempts  int           `json:"n"`
	First        time.Duration `json:"f"`
	Coefficient  float64       `json:"c"`
	Max          time.Duration `json:"m"`
	Jitter       float64       `json:"j,omitempty"`
	Timeout      time.Duration `json:"t,omitempty"`
	NonRetryable []string      `json:"x,omitempty"`
}

// encodePolicy applies the defaults. It returns nil for a policy that does not repeat.
func encodePolicy(p forebay.RetryPolicy) []byte {
	if p.MaxAttempts <= 1 {
		return nil
	}
	stored := policy{p.MaxAttempts, p.First, p.Coefficient, p.Max, min(max(p.Jitter, 0), 1), p.Timeout, p.NonRetryable}
	if stored.First <= 0 {
		stored.First = time.Second
	}
	if stored.Coefficient <= 0 {
		stored.Coefficient = 2
	}
	if stored.Max <= 0 {
		stored.Max = time.Minute
	}
	encoded, _ := json.Marshal(stored)
	return encoded
}

func decodePolicy(stored []byte) (p policy) {
	_ = json.Unmarshal(stored, &p) // we wrote it
	return p
}

// next returns the delay before an activity is tried again that has failed so often; false: it is not.
func (p policy) next(failures int, why *forebay.OrchestrationFailure, scheduled, now time.Time) (time.Duration, bool) {
	if failures >= p.MaxAttempts || why.NonRetryable || slices.Contains(p.NonRetryable, why.Type) {
		return 0, false
	}
	delay := min(float64(p.First)*math.Pow(p.Coefficient, float64(failures-1)), float64(p.Max))
	delay *= 1 - p.Jitter*rand.Float64()
	if p.Timeout > 0 && now.Add(time.Duration(delay)).Sub(scheduled) > p.Timeout {
		return 0, false
	}
	return time.Duration(delay), true
}
