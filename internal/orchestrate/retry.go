package orchestrate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
)

// policy is a retry policy as stored with an activity.
type policy struct {
	MaxAttempts  int           `json:"n"`
	First        time.Duration `json:"f"`
	Coefficient  float64       `json:"c"`
	Max          time.Duration `json:"m"`
	Jitter       float64       `json:"j,omitempty"`
	Timeout      time.Duration `json:"t,omitempty"`
	NonRetryable []string      `json:"x,omitempty"`
}

// encodePolicy applies the defaults. It returns nil for a policy without retries.
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

// next returns the delay before the next attempt after so many failures; false: there is no next
// attempt.
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

// policyField is a field number that the protocol does not use. The retry policy of a Go
// orchestrator travels in this field of the activity's input. It is taken out before the event
// is stored.
const policyField = 50_000

func attachPolicy(input *wrapperspb.StringValue, policy []byte) {
	input.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, policyField, protowire.BytesType), policy))
}

// detachPolicy takes the policy out of an activity's input; nil: there is none.
func detachPolicy(input *wrapperspb.StringValue) []byte {
	if input == nil {
		return nil
	}
	unknown := input.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	input.ProtoReflect().SetUnknown(nil)
	if number, kind, n := protowire.ConsumeTag(unknown); n > 0 && number == policyField && kind == protowire.BytesType {
		if policy, m := protowire.ConsumeBytes(unknown[n:]); m > 0 {
			return policy
		}
	}
	return nil
}

// ActivityInput returns the input of an activity that a Go orchestrator calls, with its retry
// policy.
func ActivityInput(v any, p forebay.RetryPolicy) *wrapperspb.StringValue {
	encoded, err := json.Marshal(v)
	if err != nil {
		// The panic fails the instance.
		panic(fmt.Sprintf("the input of an activity is no JSON: %v", err))
	}
	input := wrapperspb.String(string(encoded))
	if policy := encodePolicy(p); policy != nil {
		attachPolicy(input, policy)
	}
	return input
}
