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
		if p.kind.asks != nil && kindOf(input) == "an object" {
			e.MaxOutputTokens = cmp.Or(p.kind.asks(p.option, input), own)
		}
		return e
	}
}

// asksInChat: chat takes it as a field of the input.
func asksInChat(_ Option, input json.RawMessage) int64 {
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		if n := gjson.GetBytes(input, name).Int(); n > 0 && n <= maxTokens {
			return n
		}
	}
	return 0
}

// asksInSummarize follows from how many words are wanted, unless the configuration says how many tokens.
func asksInSummarize(o Option, input json.RawMessage) int64 {
	words := gjson.GetBytes(input, "max_words").Int()
	if o.MaxOutputTokens > 0 || words <= 0 || words > maxSummaryWords {
		return 0
	}
	return int64(summaryTokens(int(words)))
}

// estimateEmbed is the whole input, and no output.
func estimateEmbed(_ json.RawMessage, size int64) forebay.CallEstimate {
	return forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken, MaxOutputTokens: -1}
}
