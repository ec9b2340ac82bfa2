package tasks

import (
	"bytes"
	"encoding/json"

	"github.com/forebayhq/forebay/internal/model"
)

// chatResult is the result of a chat.
type chatResult struct {
	chatAnswer
	Model   string          `json:"model"`
	Choices []chatAnswer    `json:"choices,omitempty"`
	Raw     json.RawMessage `json:"raw,omitempty"`
}

// chatAnswer is one answer. Its parts besides the text have the shape of OpenAI's API.
type chatAnswer struct {
	Index        *int            `json:"index,omitempty"`
	Text         string          `json:"text"`
	FinishReason string          `json:"finish_reason"`
	Refusal      string          `json:"refusal,omitempty"`
	ToolCalls    json.RawMessage `json:"tool_calls,omitempty"`
	FunctionCall json.RawMessage `json:"function_call,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	Audio        json.RawMessage `json:"audio,omitempty"`
	LogProbs     json.RawMessage `json:"logprobs,omitempty"`
}

// reply makes the result of a chat.
func reply(structured, raw bool) func(model.ChatResponse) (any, error) {
	return func(resp model.ChatResponse) (any, error) {
		out := chatResult{chatAnswer: chatAnswer{Text: resp.Text, FinishReason: resp.FinishReason}, Model: resp.Model}
		for i := range resp.Choices {
			answer := chatAnswerOf(&resp.Choices[i])
			if i == 0 {
				out.chatAnswer = answer
			}
			if len(resp.Choices) > 1 {
				answer.Index = &resp.Choices[i].Index
				out.Choices = append(out.Choices, answer)
			}
		}
		if structured {
			if err := out.checkJSON(); err != nil {
				return nil, err
			}
		}
		if raw && len(resp.Raw) > 0 {
			if out.Raw = bytes.ToValidUTF8(resp.Raw, []byte("\uFFFD")); !json.Valid(out.Raw) {
				return nil, malformed("the raw response is no JSON")
			}
		}
		return out, nil
	}
}

func chatAnswerOf(c *model.Choice) chatAnswer {
	return chatAnswer{Text: c.Text, FinishReason: c.FinishReason, Refusal: c.Refusal, ToolCalls: c.Member("tool_calls"),
		FunctionCall: c.Member("function_call"), Annotations: c.Member("annotations"), Audio: c.Member("audio"), LogProbs: c.LogProbs}
}

// checkJSON checks that each answer is JSON, unless it calls a tool or is none.
func (r *chatResult) checkJSON() error {
	all := r.Choices
	if all == nil {
		all = []chatAnswer{r.chatAnswer}
	}
	for _, a := range all {
		called := a.ToolCalls != nil || a.FunctionCall != nil
		if called && blank(a.Text) || a.Refusal != "" || r.Choices != nil && a.FinishReason == model.CodeContentFilter {
			continue
		}
		if !json.Valid(jsonPart(a.Text)) {
			return malformed("the answer is no JSON")
		}
	}
	return nil
}
