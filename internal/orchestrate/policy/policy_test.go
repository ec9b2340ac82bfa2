package policy

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
)

func TestPolicy(t *testing.T) {
	begun := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	growing := forebay.RetryPolicy{MaxAttempts: 5, First: time.Second, Coefficient: 3, Max: 5 * time.Second}
	for name, c := range map[string]struct {
		policy   forebay.RetryPolicy
		failures int
		why      forebay.OrchestrationFailure
		after    time.Duration // since it was scheduled
		want     time.Duration // -1: not again
	}{
		"none":             {forebay.RetryPolicy{}, 1, forebay.OrchestrationFailure{}, 0, -1},
		"first":            {growing, 1, forebay.OrchestrationFailure{}, 0, time.Second},
		"second":           {growing, 2, forebay.OrchestrationFailure{}, 0, 3 * time.Second},
		"longest":          {growing, 4, forebay.OrchestrationFailure{}, 0, 5 * time.Second},
		"last":             {growing, 5, forebay.OrchestrationFailure{}, 0, -1},
		"defaults":         {forebay.RetryPolicy{MaxAttempts: 10}, 2, forebay.OrchestrationFailure{}, 0, 2 * time.Second},
		"default longest":  {forebay.RetryPolicy{MaxAttempts: 10}, 9, forebay.OrchestrationFailure{}, 0, time.Minute},
		"marked as final":  {growing, 1, forebay.OrchestrationFailure{NonRetryable: true}, 0, -1},
		"of a final type":  {forebay.RetryPolicy{MaxAttempts: 5, NonRetryable: []string{"a", "b"}}, 1, forebay.OrchestrationFailure{Type: "b"}, 0, -1},
		"of another type":  {forebay.RetryPolicy{MaxAttempts: 5, NonRetryable: []string{"a", "b"}}, 1, forebay.OrchestrationFailure{Type: "c"}, 0, time.Second},
		"before its limit": {forebay.RetryPolicy{MaxAttempts: 5, Timeout: 10 * time.Second}, 1, forebay.OrchestrationFailure{}, 9 * time.Second, time.Second},
		"after its limit":  {forebay.RetryPolicy{MaxAttempts: 5, Timeout: 10 * time.Second}, 1, forebay.OrchestrationFailure{}, 9*time.Second + time.Millisecond, -1},
	} {
		delay, again := Decode(Encode(c.policy)).Next(c.failures, &c.why, begun, begun.Add(c.after))
		if again != (c.want >= 0) || again && delay != c.want {
			t.Errorf("%s: %s, %t", name, delay, again)
		}
	}
	jittery := Decode(Encode(forebay.RetryPolicy{MaxAttempts: 2, First: time.Second, Jitter: 0.5}))
	seen := map[time.Duration]bool{}
	for range 100 {
		delay, again := jittery.Next(1, &forebay.OrchestrationFailure{}, begun, begun)
		if !again || delay < time.Second/2 || delay > time.Second {
			t.Fatalf("a delay of %s", delay)
		}
		seen[delay] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d different delays", len(seen))
	}
}

// A policy travels on the input and leaves no trace in it.
func TestPolicyTravels(t *testing.T) {
	input := ActivityInput("x", forebay.RetryPolicy{MaxAttempts: 3})
	encoded, err := proto.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	received := proto.Clone(input)
	proto.Reset(received)
	if err := proto.Unmarshal(encoded, received); err != nil {
		t.Fatal(err)
	}
	if p := Detach(input); Decode(p).MaxAttempts != 3 {
		t.Errorf("the policy is %s", p)
	}
	if plain := ActivityInput("x", forebay.RetryPolicy{}); !proto.Equal(input, plain) || Detach(plain) != nil || Detach(nil) != nil {
		t.Errorf("%v is left of it", input)
	}
}
