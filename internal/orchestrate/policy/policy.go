// Package policy holds the retry policies of activities. It says how they are stored, how they
// travel from a Go orchestrator to the engine, and when the next attempt is due. It does no I/O.
package policy

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

// Policy is a retry policy as stored with an activity.
type Policy struct {
	MaxAttempts  int           `json:"n"`
	First        time.Duration `json:"f"`
	Coefficient  float64       `json:"c"`
	Max          time.Duration `json:"m"`
	Jitter       float64       `json:"j,omitempty"`
	Timeout      time.Duration `json:"t,omitempty"`
	NonRetryable []string      `json:"x,omitempty"`
}

// Encode applies the defaults. It returns nil for a policy without retries.
func Encode(p forebay.RetryPolicy) []byte {
	if p.MaxAttempts <= 1 {
		return nil
	}
	stored := Policy{p.MaxAttempts, p.First, p.Coefficient, p.Max, min(max(p.Jitter, 0), 1), p.Timeout, p.NonRetryable}
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

// Decode returns a stored policy.
func Decode(stored []byte) (p Policy) {
	_ = json.Unmarshal(stored, &p) // we wrote it
	return p
}

// Next returns the delay before the next attempt after so many failures; false: there is no next
// attempt.
func (p Policy) Next(failures int, why *forebay.OrchestrationFailure, scheduled, now time.Time) (time.Duration, bool) {
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

// field is a field number that the protocol does not use. The retry policy of a Go
// orchestrator travels in this field of the activity's input. It is taken out before the event
// is stored.
const field = 50_000

func attach(input *wrapperspb.StringValue, policy []byte) {
	input.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), policy))
}

// Detach takes the policy out of an activity's input; nil: there is none.
func Detach(input *wrapperspb.StringValue) []byte {
	if input == nil {
		return nil
	}
	unknown := input.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	input.ProtoReflect().SetUnknown(nil)
	if number, kind, n := protowire.ConsumeTag(unknown); n > 0 && number == field && kind == protowire.BytesType {
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
	if encoded := Encode(p); encoded != nil {
		attach(input, encoded)
	}
	return input
}
