package tasks

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

func TestAnswersAreValidated(t *testing.T) {
	schema := `{"text":"x","schema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"k":{"enum":["a","b"]},"l":{"type":"array","items":{"type":["string","null"]}}}}}`
	for _, tt := range []struct{ task, input, answer, want string }{ // want "": malformed
		{"classify", `{"text":"x","labels":["Yes","no"]}`, "```json\n{\"label\":\" yes\"}\n```", `{"label":"Yes"}`},
		{"classify", `{"text":"x","labels":["Yes","no"]}`, "No.", `{"label":"no"}`},
		{"classify", `{"text":"x","labels":["Yes","no"]}`, `{"label":"maybe"}`, ""},
		{"classify", `{"text":"x","labels":["Yes","no"]}`, `{"label":7}`, ""},
		{"classify", `{"text":"x","labels":["Yes","no"]}`, `{}`, ""},
		{"classify", `{"text":"x","labels":["Yes","no"]}`, `It is hard to say`, ""},
		{"classify", `{"text":"x","labels":["Yes","no"],"multiple":true}`, `{"labels":["no","YES","no"]}`, `{"label":"no","labels":["no","Yes"]}`},
		{"classify", `{"text":"x","labels":["Yes","no"],"multiple":true}`, `{"labels":[]}`, ""},
		{"classify", `{"text":"x","labels":["Yes","no"],"multiple":true}`, `{"labels":["no","maybe"]}`, ""},
		{"sentiment", `"x"`, `{"sentiment":"Positive","score":1}`, `{"sentiment":"positive","score":1}`},
		{"sentiment", `"x"`, `{"sentiment":"great","score":1}`, ""},
		{"sentiment", `"x"`, `{"sentiment":"mixed","score":7}`, ""},
		{"sentiment", `"x"`, `{"sentiment":"mixed"}`, ""},
		{"sentiment", `"x"`, `positive`, ""},
		{"sentiment", `"x"`, "<think>\nMixed?\n</think>\n" + `{"sentiment":"mixed","score":0}`, `{"sentiment":"mixed","score":0}`},
		{"summarize", `"x"`, "<think>Hm.</think>\n\nIt is x.", `{"summary":"It is x.","finish_reason":"stop","model":"m"}`},
		{"summarize", `"x"`, "<think>Hm. Or is it", ""},
		{"chat", `"x"`, "<think>Hm.</think>x", `{"text":"<think>Hm.</think>x","finish_reason":"stop","model":"m"}`},
		{"summarize", `"x"`, " \n", ""},
		{"summarize", `"x"`, "a\xff\x00<b>", `{"summary":"a\ufffd\u0000<b>","finish_reason":"stop","model":"m"}`},
		{"extract", `"x"`, `{"entities":[]}`, `{"entities":[]}`},
		{"extract", `"x"`, `{"entities":[{"type":"person","text":""}]}`, ""},
		{"extract", `"x"`, `{"entities":null}`, ""},
		{"extract", schema, `{"n":12345678901234567890,"k":"b","l":["x",null],"more":"` + "\xff" + `"}`, `{"n":12345678901234567890,"k":"b","l":["x",null],"more":"�"}`},
		{"extract", schema, `{"n":1.5}`, ""},
		{"extract", schema, `{"k":"a"}`, ""},
		{"extract", schema, `{"n":1,"k":"c"}`, ""},
		{"extract", schema, `{"n":1,"l":["x",2]}`, ""},
		{"extract", schema, `[1]`, ""},
		{"extract", schema, `{"n":1,"deep":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, ""},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}}`, `{"a":1`, ""},
		{"chat", `"x"`, "\xff", `{"text":"\ufffd","finish_reason":"stop","model":"m"}`},
	} {
		p := canned{chat: model.ChatResponse{Text: tt.answer, FinishReason: "stop", Model: "m", Usage: forebay.TokenUsage{InputTokens: 3}}}
		all := build(t, Config{Models: &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: p}}})
		got, err := run(t, all[tt.task], tt.input)
		if tt.want != "" {
			if err != nil || string(got.Output) != tt.want {
				t.Errorf("%s %q: got %s, %v, want %s", tt.task, tt.answer, got.Output, err, tt.want)
			}
			if !utf8.Valid(got.Output) || !json.Valid(got.Output) {
				t.Errorf("%s %q: %q is not valid", tt.task, tt.answer, got.Output)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s %q became %s", tt.task, tt.answer, got.Output)
			continue
		}
		if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != "malformed_response" || got.Deployment != "east" || got.Usage.InputTokens != 3 {
			t.Errorf("%s %q: %+v, %+v", tt.task, tt.answer, e, got)
		}
	}
}

func TestFailuresKeepWhatWasSpent(t *testing.T) {
	price := forebay.Price{Input: 5, Output: 10, CachedInput: 1, CacheWrite: 6}
	usage := forebay.TokenUsage{InputTokens: 100, OutputTokens: 10}
	for name, tt := range map[string]struct {
		provider canned
		class    forebay.ErrorClass
		code     string
	}{
		"provider": {canned{chat: model.ChatResponse{Usage: usage}, err: &forebay.TaskError{Class: forebay.ClassThrottled, Code: "rate_limited"}}, forebay.ClassThrottled, "rate_limited"},
		"filter":   {canned{chat: model.ChatResponse{Usage: usage, CachedTokens: 60, CacheWrites: 30, Text: "x", FinishReason: "content_filter"}}, forebay.ClassPermanent, "content_filter"},
		"size":     {canned{chat: model.ChatResponse{Usage: usage, Text: strings.Repeat("x", 101)}}, forebay.ClassPermanent, "response_too_large"},
	} {
		all := build(t, Config{MaxOutputBytes: 100, Models: &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: tt.provider, Price: price}}})
		got, err := run(t, all["chat"], `"x"`)
		if e := taskError(t, err); e.Class != tt.class || e.Code != tt.code {
			t.Errorf("%s: %+v", name, e)
		}
		if got.Deployment != "east" || got.Usage != usage || got.Cost != price.CostWithCache(usage, tt.provider.chat.CachedTokens, tt.provider.chat.CacheWrites) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestVectorsAreValidated(t *testing.T) {
	for _, vectors := range [][][]float32{nil, {{1}}, {{1}, {}}, {{1}, {1, 2}}, {{1}, {float32(math.NaN())}}} {
		all := build(t, Config{Models: &oneDeployment{Deployment: model.Deployment{Provider: canned{embed: model.EmbedResponse{Vectors: vectors}}}}})
		_, err := run(t, all["embed"], `["a","b"]`)
		if e := taskError(t, err); e.Code != "malformed_response" {
			t.Errorf("%v: %+v", vectors, e)
		}
	}
}
