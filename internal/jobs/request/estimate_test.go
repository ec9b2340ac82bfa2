package request

import (
	"encoding/json"
	"testing"

	"github.com/forebayhq/forebay"
)

// What a task's own estimate says counts, unless it panics.
func TestEstimate(t *testing.T) {
	plain, own := forebay.CallEstimate{PromptTokens: 25}, forebay.CallEstimate{PromptTokens: 7, MaxOutputTokens: 8}
	tests := map[string]struct {
		estimate func(json.RawMessage, int64) forebay.CallEstimate
		want     forebay.CallEstimate
	}{
		"none":    {nil, plain},
		"its own": {func(json.RawMessage, int64) forebay.CallEstimate { return own }, own},
		"panics": {func(input json.RawMessage, _ int64) forebay.CallEstimate {
			return forebay.CallEstimate{PromptTokens: int64(input[1000])}
		}, plain},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Estimate(&forebay.Task{Estimate: test.estimate}, []byte("{}"), 100); got != test.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What is kept of an input in blob storage is what a claim would read of one beside the job.
func TestKeptEstimates(t *testing.T) {
	bySize := forebay.CallEstimate{PromptTokens: 1000}
	for _, need := range []forebay.CallEstimate{
		bySize, {PromptTokens: 1000, MaxOutputTokens: 7}, {PromptTokens: 10}, {PromptTokens: 1000, AsOpenAI: true},
		{PromptTokens: 1000, Model: "fast", MaxOutputTokens: 5},
	} {
		output, rest := Keep(need, bySize)
		if output != need.MaxOutputTokens {
			t.Errorf("%+v: %d tokens of output are kept", need, output)
		}
		got := Kept(rest)
		if got == nil {
			got = &forebay.CallEstimate{PromptTokens: bySize.PromptTokens, MaxOutputTokens: output}
		}
		if *got != need {
			t.Errorf("%+v is kept as %+v", need, *got)
		}
	}
}
