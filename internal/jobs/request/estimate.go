package request

import (
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/turns"
)

// Estimate is what a call of the task will need. It runs within a claim, so a panic of the task's
// own estimate must not take the process down. The call itself will show the fault.
func Estimate(t *forebay.Task, input []byte, size int64) (need forebay.CallEstimate) {
	plain := forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken}
	if t.Estimate == nil {
		return plain
	}
	defer func() {
		if recover() != nil {
			need = plain
		}
	}()
	return t.Estimate(input, size)
}

// EstimateInTurn is [Estimate] where a client's input was submitted. Large inputs wait for a turn.
func EstimateInTurn(ctx context.Context, t *forebay.Task, input []byte) (need forebay.CallEstimate, err error) {
	err = turns.Parse(ctx, len(input), func() { need = Estimate(t, input, int64(len(input))) })
	return need, err
}

// Keep returns what is stored of the estimate of an input in blob storage: the output it asks for,
// and the rest as JSON. They are 0 and nil if any input of the size needs the same.
func Keep(need, bySize forebay.CallEstimate) (maxOutput int64, rest []byte) {
	if need.MaxOutputTokens != bySize.MaxOutputTokens {
		maxOutput = max(need.MaxOutputTokens, 0)
	}
	if bySize.MaxOutputTokens = need.MaxOutputTokens; need == bySize {
		return maxOutput, nil
	}
	rest, err := forebay.EncodeJSON(need)
	if err != nil { // never: it has numbers and a name
		return maxOutput, nil
	}
	return maxOutput, rest
}

// Kept reads what [Keep] returned.
func Kept(rest []byte) *forebay.CallEstimate {
	var need forebay.CallEstimate
	if len(rest) == 0 || json.Unmarshal(rest, &need) != nil {
		return nil
	}
	return &need
}

// KeepOf is [Keep] for an input of a task.
func KeepOf(t *forebay.Task, input []byte) (maxOutput int64, rest []byte) {
	size := int64(len(input))
	return Keep(Estimate(t, input, size), Estimate(t, nil, size))
}
