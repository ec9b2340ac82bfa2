package tasks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

const (
	maxAnswers      = 128
	maxTools        = 1024
	maxToolName     = 64
	maxFieldName    = 100
	maxTopLogProbs  = 20
	maxModelName    = 100
	maxLogitBias    = 100
	maxPenalty      = 2
	maxBiasedTokens = 1024
)

// chatOwn are the fields of a chat that Forebay reads and writes anew for the provider.
var chatOwn = []string{"messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "response_format", "raw",
	"model", "stream", "stream_options"}

// chatCounted are the fields that decide what is sent, and what it is estimated to cost.
var chatCounted = append(slices.Clip(chatOwn), "n")

// chatFields check the other fields of OpenAI's chat completions that are known. They reach the
// provider as they are.
var chatFields = map[string]func(in *object, name string){
	"tools":                  checkTools,
	"tool_choice":            checkToolChoice,
	"parallel_tool_calls":    isBoolean,
	"functions":              isList,
	"function_call":          isTextOrObject,
	"n":                      func(in *object, name string) { in.integer(name, maxAnswers) },
	"seed":                   isWhole,
	"logprobs":               isBoolean,
	"top_logprobs":           func(in *object, name string) { in.number(name, 0, maxTopLogProbs) },
	"logit_bias":             checkLogitBias,
	"presence_penalty":       isPenalty,
	"frequency_penalty":      isPenalty,
	"reasoning_effort":       isText,
	"verbosity":              isText,
	"user":                   isText,
	"safety_identifier":      isText,
	"prompt_cache_key":       isText,
	"prompt_cache_retention": isText,
	"service_tier":           isText,
	"store":                  isBoolean,
	"metadata":               isObject,
	"modalities":             func(in *object, name string) { in.texts(name, 1, maxStops) },
	"audio":                  isObject,
	"prediction":             isObject,
	"web_search_options":     isObject,
}

func isBoolean(in *object, name string) { in.boolean(name) }
func isText(in *object, name string)    { in.text(name) }
func isList(in *object, name string)    { in.list(name, 1, maxTools) }
func isPenalty(in *object, name string) { in.number(name, -maxPenalty, maxPenalty) }

func isObject(in *object, name string) {
	if raw, _ := in.has(name); kindOf(raw) != "an object" {
		in.fail(name, "must be an object, not %s", kindOf(raw))
	}
}

func isTextOrObject(in *object, name string) {
	if raw, _ := in.has(name); kindOf(raw) != "a string" {
		isObject(in, name)
	}
}

// isWhole accepts a whole number of any size.
func isWhole(in *object, name string) {
	raw, _ := in.has(name)
	if digits := strings.TrimPrefix(strings.TrimSpace(string(raw)), "-"); digits == "" || strings.Trim(digits, "0123456789") != "" {
		in.fail(name, "must be a whole number")
	}
}

func checkLogitBias(in *object, name string) {
	raw, _ := in.has(name)
	bias := readObject(in.path+"."+name, raw)
	if len(bias.values) > maxBiasedTokens {
		in.fail(name, "must be at most %d tokens", maxBiasedTokens)
	}
	for _, token := range slices.Sorted(maps.Keys(bias.values)) {
		if bias.err == nil {
			bias.number(clip(token, maxFieldName), -maxLogitBias, maxLogitBias)
		}
	}
	in.adopt(bias)
}

// checkTools checks the tools that the model may call. Kinds of tools that are not known pass.
func checkTools(in *object, name string) {
	for i, raw := range in.list(name, 1, maxTools) {
		if in.err != nil {
			return
		}
		path := fmt.Sprintf("%s.%s[%d]", in.path, name, i)
		tool := readObject(path, raw)
		if kind := tool.needText("type"); kind == "function" || kind == "custom" {
			raw, _ := tool.has(kind)
			named := readObject(path+"."+kind, raw)
			checkToolName(named)
			if _, ok := named.has("parameters"); ok {
				isObject(named, "parameters")
			}
			named.boolean("strict")
			named.text("description")
			tool.adopt(named)
		}
		in.adopt(tool)
	}
}

func checkToolName(named *object) {
	if name := named.needText("name"); named.err == nil && !toolName(name) {
		named.fail("name", "must be 1 to %d of a-z A-Z 0-9 _ - .", maxToolName)
	}
}

func toolName(s string) bool {
	return len(s) <= maxToolName && schemaName(strings.ReplaceAll(s, ".", "_"))
}

func checkToolChoice(in *object, name string) {
	raw, _ := in.has(name)
	if kindOf(raw) == "a string" {
		if choice := in.text(name); !slices.Contains([]string{"none", "auto", "required"}, choice) {
			in.fail(name, "must be none, auto, required or an object")
		}
		return
	}
	choice := readObject(in.path+"."+name, raw)
	if kind := choice.needText("type"); kind == "function" || kind == "custom" {
		raw, _ := choice.has(kind)
		named := readObject(choice.path+"."+kind, raw)
		checkToolName(named)
		choice.adopt(named)
	}
	in.adopt(choice)
}

// parseExtra reads the fields that are not chatOwn. Those that are not known are kept.
func parseExtra(in *object, chat *model.ChatRequest) {
	for _, name := range slices.Sorted(maps.Keys(in.values)) {
		if in.err != nil {
			return
		}
		if slices.Contains(chatOwn, name) {
			continue
		}
		// Servers written in Go read names in any case.
		if i := slices.IndexFunc(chatCounted, func(own string) bool { return strings.EqualFold(own, name) && own != name }); i >= 0 {
			in.unknown(name, "the name of the field is "+chatCounted[i])
			return
		}
		raw, ok := in.has(name)
		if !ok {
			continue
		}
		if check := chatFields[name]; check != nil {
			check(in, name)
		} else if !forebay.ValidText(name, maxFieldName) {
			in.unknown(name, fmt.Sprintf("the name of a field is at most %d bytes of text", maxFieldName))
		}
		chat.Extra = append(chat.Extra, model.Member{Name: name, Value: raw})
	}
	chat.Answers = in.integer("n", maxAnswers)
	if in.present("top_logprobs") && !in.boolean("logprobs") {
		in.fail("top_logprobs", "needs logprobs to be true")
	}
	chat.Whole = in.present("audio") // OpenAI streams no more than one of its formats
}

// parseStream refuses what only a caller that waits could use.
func parseStream(in *object) {
	if in.boolean("stream") {
		in.fail("stream", "must be false: a job's answer is its result, and its events carry what is written meanwhile")
	}
	if in.present("stream_options") {
		in.fail("stream_options", "is only for a stream")
	}
}

// parseModel reads the model that the answer is to come from. "" is the task's.
func parseModel(o Option, in *object) string {
	name := in.text("model")
	switch {
	case !in.present("model") || name == o.Model:
		return ""
	case !slices.Contains(o.Models, name):
		allowed := o.Models
		if o.Model != "" && !slices.Contains(allowed, o.Model) {
			allowed = append([]string{o.Model}, allowed...)
		}
		in.fail("model", "must be a model that the task allows: %s", strings.Join(allowed, ", "))
	}
	return name
}

// checkModels reports why these cannot be the models that inputs of a task may name.
func checkModels(names, known []string) error {
	for i, name := range names {
		switch {
		case known != nil && !slices.Contains(known, name):
			return fmt.Errorf("no model is named %.*q", maxModelName, name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%.*q is there twice", maxModelName, name)
		}
	}
	return nil
}

// rawOf returns a field as it is, or nil.
func rawOf(in *object, name string) json.RawMessage {
	raw, _ := in.has(name)
	return raw
}
