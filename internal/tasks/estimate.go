package tasks

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// estimate estimates what a call of the task will need. It does not render the prompt, because it
// runs for every job that might be claimed.
func (p *prompted) estimate(around int) func(json.RawMessage, int64) forebay.CallEstimate {
	own := int64(cmp.Or(p.option.MaxOutputTokens, p.kind.maxTokens))
	return func(input json.RawMessage, size int64) forebay.CallEstimate {
		e := forebay.CallEstimate{PromptTokens: (int64(around) + size) / forebay.BytesPerToken, MaxOutputTokens: own}
		if p.kind.asks != nil && kindOf(input) == "an object" {
			e.MaxOutputTokens = cmp.Or(p.kind.asks(p.option, input), own)
		}
		if p.option.MaxOutputTokens == 0 && p.kind.maxTokens > 0 && p.thinks.Load() != thinksNot {
			e.MaxOutputTokens = 0 // as limit has it
		}
		if p.kind.refine != nil && kindOf(input) == "an object" {
			p.kind.refine(p.option, input, &e)
		}
		return e
	}
}

// refineChat counts media by their number and output by the answers, and says who can answer. Of
// several members with one name the last counts, as where the input is read.
func refineChat(o Option, input json.RawMessage, e *forebay.CallEstimate) {
	shape := model.ReadChatShape(input)
	e.PromptTokens += shape.MediaTokens - shape.MediaBytes/forebay.BytesPerToken
	if shape.Output > 0 && shape.Output <= maxTokens {
		e.MaxOutputTokens = shape.Output
	}
	e.MaxOutputTokens = shape.MaxOutput(e.MaxOutputTokens)
	e.AsOpenAI = shape.OnlyOpenAI != ""
	if slices.Contains(o.Models, shape.Model) && shape.Model != o.Model {
		e.Model = shape.Model
	}
}

// asksInSummarize computes the limit from the wanted number of words, unless the configuration
// sets the limit. Of several members with that name the last counts, as where the input is read.
func asksInSummarize(o Option, input json.RawMessage) int64 {
	var words int64
	gjson.ParseBytes(input).ForEach(func(name, value gjson.Result) bool {
		if name.Str == "max_words" {
			words = value.Int()
		}
		return true
	})
	if o.MaxOutputTokens > 0 || words <= 0 || words > maxSummaryWords {
		return 0
	}
	return int64(summaryTokens(int(words)))
}

// estimateEmbed counts the whole input and no output.
func estimateEmbed(_ json.RawMessage, size int64) forebay.CallEstimate {
	return forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken, MaxOutputTokens: -1}
}
