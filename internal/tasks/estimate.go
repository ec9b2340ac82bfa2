package tasks

import (
	"cmp"
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// estimate says what a call of the task will need, without making its prompt: it is asked for every
// job that might be claimed.
func (p *prompted) estimate(around int) func(json.RawMessage, int64) forebay.CallEstimate {
	own := int64(cmp.Or(p.option.MaxOutputTokens, p.kind.maxTokens))
	return func(input json.RawMessage, size int64) forebay.CallEstimate {
		e := forebay.CallEstimate{PromptTokens: (int64(around) + size) / forebay.BytesPerToken, MaxOutputTokens: own}
		for _, name := range []string{"max_completion_tokens", "max_tokens"} { // chat takes them as fields of the input
			if p.kind.maxTokensInInput && len(input) > 0 && input[0] == '{' {
				if n := gjson.GetBytes(input, name).Int(); n > 0 && n <= maxTokens {
					e.MaxOutputTokens = n
					break
				}
			}
		}
		return e
	}
}

// estimateEmbed is the whole input, and no output.
func estimateEmbed(_ json.RawMessage, size int64) forebay.CallEstimate {
	return forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken, MaxOutputTokens: -1}
}
