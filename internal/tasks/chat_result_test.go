package tasks

import (
	"encoding/json"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// Results carry what answers have besides their text, and answers in JSON are checked each.
func TestChatResults(t *testing.T) {
	const plain, structured = `{"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}}`
	calls := []model.Member{{Name: "tool_calls", Value: json.RawMessage(`[{"id":"c"}]`)}, {Name: "reasoning_content", Value: json.RawMessage(`"hm"`)}}
	for name, test := range map[string]struct {
		input   string
		choices []model.Choice
		want    string // "": malformed
	}{
		"tool calls":                 {plain, []model.Choice{{FinishReason: "tool_calls", Message: calls}}, `{"text":"","finish_reason":"tool_calls","tool_calls":[{"id":"c"}],"model":"m"}`},
		"tool calls are no JSON":     {structured, []model.Choice{{FinishReason: "tool_calls", Message: calls}}, `{"text":"","finish_reason":"tool_calls","tool_calls":[{"id":"c"}],"model":"m"}`},
		"a text beside them must be": {structured, []model.Choice{{Text: "no", FinishReason: "tool_calls", Message: calls}}, ""},
		"log probabilities": {
			plain, []model.Choice{{Text: "a", FinishReason: "stop", LogProbs: json.RawMessage(`{"content":[]}`)}},
			`{"text":"a","finish_reason":"stop","logprobs":{"content":[]},"model":"m"}`,
		},
		"several": {
			structured, []model.Choice{{Text: "{}", FinishReason: "stop"}, {Index: 1, FinishReason: model.CodeContentFilter}, {Index: 2, FinishReason: "stop", Refusal: "No."}},
			`{"text":"{}","finish_reason":"stop","model":"m","choices":[{"index":0,"text":"{}","finish_reason":"stop"},{"index":1,"text":"","finish_reason":"content_filter"},{"index":2,"text":"","finish_reason":"stop","refusal":"No."}]}`,
		},
		"several, one no JSON": {structured, []model.Choice{{Text: "{}", FinishReason: "stop"}, {Index: 1, Text: "{", FinishReason: "length"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := canned{chat: model.ChatResponse{Text: test.choices[0].Text, FinishReason: test.choices[0].FinishReason, Model: "m", Choices: test.choices}}
			got, err := run(t, build(t, Config{Models: &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: p}}})["chat"], test.input)
			if test.want == "" {
				if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != model.CodeMalformedResponse {
					t.Errorf("%+v", e)
				}
				return
			}
			if err != nil || string(got.Output) != test.want {
				t.Errorf("%s, %v\nwant %s", got.Output, err, test.want)
			}
		})
	}
}

// An input may name the models that its task allows, and no other.
func TestChatModels(t *testing.T) {
	models := &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: canned{chat: model.ChatResponse{Text: "a", FinishReason: "stop"}}}}
	task := build(t, Config{Models: models, ModelNames: []string{"chat", "fast", "other"}, Tasks: map[string]Option{"chat": {Models: []string{"fast"}}}})["chat"]
	for name, want := range map[string]string{"": "chat", `"model":"chat",`: "chat", `"model":"fast",`: "fast", `"model":null,`: "chat"} {
		input := `{` + name + `"messages":[{"role":"user","content":"x"}]}`
		if _, err := run(t, task, input); err != nil || models.model != want {
			t.Errorf("%s called %s, %v", input, models.model, err)
		}
		if e := task.Estimate(json.RawMessage(input), int64(len(input))); e.Model != want && (e.Model != "" || want != "chat") {
			t.Errorf("%s is planned for %q", input, e.Model)
		}
	}
	if err := task.Check(json.RawMessage(`{"model":"other","messages":[{"role":"user","content":"x"}]}`)); err == nil || forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a model that is not allowed: %v", err)
	}
	for _, o := range []Option{
		{Models: []string{"gone"}}, {Models: []string{"fast", "fast"}}, {Prompt: "{{.Input}}", Models: []string{"fast"}}, {Extends: "summarize", Models: []string{"fast"}},
	} {
		if _, err := New(Config{Models: models, ModelNames: []string{"chat", "fast", "embedding"}, Tasks: map[string]Option{"x": o}}); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
