package jobs

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
			if got := estimate(&forebay.Task{Estimate: test.estimate}, []byte("{}"), 100); got != test.want {
				t.Errorf("%+v", got)
			}
		})
	}
}
