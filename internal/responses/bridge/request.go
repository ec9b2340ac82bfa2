package bridge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on a request.
const (
	MaxItems = 10_000 // of the input, and of the context that goes before it
	maxTools = 128
	// minOutputTokens is the API's own bound on max_output_tokens.
	minOutputTokens = 16
	// Limits on metadata, as for all objects of the API.
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// Request is a request for a response.
type Request struct {
	Model      string
	Stream     bool
	Background bool
	Store      bool
	Previous   string            // id of the response before; "": none
	Input      []json.RawMessage // items, each an object
	// Known are the items of the response before, where the caller has them. nil: it has not.
	Known []json.RawMessage
	// Context are the items that go before the input. Whoever knows the response before sets it.
	Context []json.RawMessage
	// Plain are the context and the input with the ids of files in place of their contents.
	Plain []json.RawMessage

	members Object
	names   names  // of the functions in chat completions
	grouped int    // functions of namespaces
	beyond  *Error // what only a provider that speaks Responses can do; nil: nothing
}

// Beyond returns why chat completions cannot answer the request, or nil.
func (r *Request) Beyond() error {
	if r.beyond == nil {
		return nil
	}
	return r.beyond
}

// Parse checks a request's body, which must be valid JSON and not too deep. model is the one that
// the address names; "": none. The error is an [*Error].
func Parse(body []byte, model string) (*Request, error) {
	r := &Request{Store: true}
	if json.Unmarshal(clean(body), &r.members) != nil || r.members == nil {
		return nil, invalid("", "", "The body of the request must be a JSON object.")
	}
	for _, check := range []func() *Error{r.readFlags, r.checkNumbers, r.checkObjects, r.readInput, r.checkTools, r.checkMetadata} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if r.Model = model; model == "" {
		if r.Model = text(r.members["model"]); r.Model == "" {
			return nil, invalid("model", "missing_required_parameter", "you must provide a model parameter")
		}
	}
	r.members["model"] = encode(r.Model)
	return r, nil
}

// readFlags reads what decides about the request as a whole.
func (r *Request) readFlags() *Error {
	for _, flag := range []struct {
		name string
		to   *bool
	}{{"stream", &r.Stream}, {"background", &r.Background}, {"store", &r.Store}} {
		if raw := r.members[flag.name]; !isNull(raw) && json.Unmarshal(raw, flag.to) != nil {
			return wrongType(flag.name, "a boolean")
		}
	}
	for _, name := range []string{"model", "instructions", "previous_response_id", "service_tier", "truncation", "user", "safety_identifier", "prompt_cache_key"} {
		if raw := r.members[name]; !isNull(raw) && raw[0] != '"' {
			return wrongType(name, "a string")
		}
	}
	r.Previous = text(r.members["previous_response_id"])
	switch {
	case r.Background && !r.Store:
		return invalid("background", "invalid_value", "A background response must be stored: 'store' must not be false.")
	case !isNull(r.members["conversation"]):
		return invalid("conversation", "not_supported", "Conversations are not served here; use 'previous_response_id'.")
	case !isNull(r.members["truncation"]) && !slices.Contains([]string{"auto", "disabled"}, text(r.members["truncation"])):
		return invalid("truncation", "invalid_value", "Invalid value for 'truncation': expected 'auto' or 'disabled'.")
	}
	for _, name := range []string{"prompt", "context_management", "moderation"} {
		if !isNull(r.members[name]) {
			r.needs(invalid(name, "unsupported_parameter", "No deployment of this model takes '%s': it needs a provider that speaks the Responses API.", name))
		}
	}
	return nil
}

// needs notes what only a provider that speaks Responses can do. The first one is reported.
func (r *Request) needs(e *Error) {
	if r.beyond == nil {
		r.beyond = e
	}
}

func wrongType(param, expected string) *Error {
	return invalid(param, "invalid_type", "Invalid type for '%s': expected %s.", param, expected)
}

func (r *Request) checkNumbers() *Error {
	for _, of := range []struct {
		name        string
		least, most int64
	}{{"max_output_tokens", minOutputTokens, 1 << 40}, {"top_logprobs", 0, 20}, {"max_tool_calls", 1, 1 << 40}} {
		raw := r.members[of.name]
		var n int64
		switch {
		case isNull(raw):
		case json.Unmarshal(raw, &n) != nil:
			return wrongType(of.name, "an integer")
		case n < of.least:
			return invalid(of.name, "integer_below_min_value", "Invalid '%s': integer below minimum value. Expected a value >= %d.", of.name, of.least)
		case n > of.most:
			return invalid(of.name, "integer_above_max_value", "Invalid '%s': integer above maximum value. Expected a value <= %d.", of.name, of.most)
		}
	}
	for _, name := range []string{"temperature", "top_p"} {
		var n float64
		if raw := r.members[name]; !isNull(raw) && json.Unmarshal(raw, &n) != nil {
			return wrongType(name, "a number")
		}
	}
	var parallel bool
	if raw := r.members["parallel_tool_calls"]; !isNull(raw) && json.Unmarshal(raw, &parallel) != nil {
		return wrongType("parallel_tool_calls", "a boolean")
	}
	return nil
}

func (r *Request) checkObjects() *Error {
	for _, name := range []string{"text", "reasoning", "stream_options"} {
		if raw := r.members[name]; !isNull(raw) && raw[0] != '{' {
			return wrongType(name, "an object")
		}
	}
	if raw := r.members["include"]; !isNull(raw) {
		var names []string
		if json.Unmarshal(raw, &names) != nil {
			return wrongType("include", "a list of strings")
		}
	}
	format := objectOf(objectOf(r.members["text"])["format"])
	if format == nil {
		return nil
	}
	switch kind := text(format["type"]); kind {
	case "text", "json_object":
	case "json_schema":
		if text(format["name"]) == "" {
			return invalid("text.format.name", "missing_required_parameter", "Missing required parameter: 'text.format.name'.")
		}
		if schema := format["schema"]; isNull(schema) || schema[0] != '{' {
			return invalid("text.format.schema", "missing_required_parameter", "Missing required parameter: 'text.format.schema'.")
		}
	default:
		r.needs(invalid("text.format.type", "invalid_value", "No deployment of this model takes the text format %.40q.", kind))
	}
	return nil
}

// readInput reads the items of the input. A string is one message.
func (r *Request) readInput() *Error {
	raw := r.members["input"]
	switch {
	case isNull(raw) && r.Previous == "" && isNull(r.members["prompt"]):
		return invalid("input", "missing_required_parameter", "Missing required parameter: 'input'.")
	case isNull(raw):
		return nil
	case raw[0] == '"':
		r.Input = []json.RawMessage{encode(Object{"role": encode("user"), "content": raw})}
		return nil
	case raw[0] != '[':
		return wrongType("input", "a string or a list of items")
	}
	r.Input = listOf(raw)
	if len(r.Input) > MaxItems {
		return invalid("input", "array_above_max_length", "Invalid 'input': at most %d items.", MaxItems)
	}
	for i, raw := range r.Input {
		param := fmt.Sprintf("input[%d]", i)
		item := objectOf(raw)
		if item == nil {
			return wrongType(param, "an object")
		}
		if err := r.checkItem(param, item); err != nil {
			return err
		}
	}
	return nil
}

// kindOf returns the type of an item. That of a message may be absent.
func kindOf(item Object) string {
	if kind := text(item["type"]); kind != "" || isNull(item["role"]) {
		return kind
	}
	return "message"
}

func (r *Request) checkItem(param string, item Object) *Error {
	missing := func(names ...string) *Error {
		for _, name := range names {
			if raw := item[name]; isNull(raw) || raw[0] != '"' {
				return invalid(param+"."+name, "missing_required_parameter", "Missing required parameter: '%s.%s'.", param, name)
			}
		}
		return nil
	}
	switch kind := kindOf(item); kind {
	case "message":
		return r.checkMessage(param, item)
	case "function_call":
		return missing("call_id", "name", "arguments")
	case "function_call_output":
		if err := missing("call_id"); err != nil {
			return err
		}
		return r.checkParts(param+".output", item["output"])
	case "item_reference":
		return missing("id")
	case "reasoning":
		return nil
	case "compaction":
		if err := missing("encrypted_content"); err != nil || Sealed(item) != "" {
			return err
		}
		r.needs(invalid(param+".encrypted_content", "unsupported_value", "No deployment of this model reads this compaction: it was made by another server, and needs a provider that speaks the Responses API."))
	case "":
		return invalid(param+".type", "missing_required_parameter", "Missing required parameter: '%s.type'.", param)
	default:
		r.needs(invalid(param+".type", "unsupported_value", "No deployment of this model takes items of type %.40q: they need a provider that speaks the Responses API.", kind))
	}
	return nil
}

func (r *Request) checkMessage(param string, item Object) *Error {
	if role := text(item["role"]); !slices.Contains([]string{"user", "system", "developer", "assistant"}, role) {
		return invalid(param+".role", "invalid_value", "Invalid value for '%s.role': expected 'user', 'assistant', 'system' or 'developer'.", param)
	}
	return r.checkParts(param+".content", item["content"])
}

// checkParts checks a text or a list of parts.
func (r *Request) checkParts(param string, raw json.RawMessage) *Error {
	switch {
	case isNull(raw):
		return invalid(param, "missing_required_parameter", "Missing required parameter: '%s'.", param)
	case raw[0] == '"':
		return nil
	case raw[0] != '[':
		return wrongType(param, "a string or a list of parts")
	}
	for i, raw := range listOf(raw) {
		at := fmt.Sprintf("%s[%d]", param, i)
		part := objectOf(raw)
		if part == nil {
			return wrongType(at, "an object")
		}
		if id := part["file_id"]; !isNull(id) && id[0] != '"' {
			return wrongType(at+".file_id", "a string")
		}
		byID := !isNull(part["file_id"])
		switch kind := text(part["type"]); kind {
		case "input_text", "output_text", "refusal", "input_image":
			if kind == "input_image" && strings.HasSuffix(param, ".output") {
				r.needs(invalid(at+".type", "unsupported_value", "No deployment of this model takes images as output of tools."))
			}
			if member := textOf[kind]; isNull(part[member]) && !byID {
				return invalid(at+"."+member, "missing_required_parameter", "Missing required parameter: '%s.%s'.", at, member)
			}
		case "input_file":
			if isNull(part["file_data"]) && !byID {
				r.needs(invalid(at+".file_url", "unsupported_value", "No deployment of this model takes files by URL; send 'file_data'."))
			}
		case "":
			return invalid(at+".type", "missing_required_parameter", "Missing required parameter: '%s.type'.", at)
		default:
			r.needs(invalid(at+".type", "unsupported_value", "No deployment of this model takes parts of type %.40q.", kind))
		}
	}
	return nil
}

// textOf names the member of a part that holds what it says.
var textOf = map[string]string{"input_text": "text", "output_text": "text", "refusal": "refusal", "input_image": "image_url"}

// checkTools checks the tools and the choice of them. Hosted tools are the provider's.
func (r *Request) checkTools() *Error {
	raw := r.members["tools"]
	if !isNull(raw) && raw[0] != '[' {
		return wrongType("tools", "a list of tools")
	}
	tools := listOf(raw)
	if len(tools) > maxTools {
		return invalid("tools", "array_above_max_length", "Invalid 'tools': at most %d tools.", maxTools)
	}
	for i, raw := range tools {
		if err := r.checkTool(fmt.Sprintf("tools[%d]", i), raw, false); err != nil {
			return err
		}
	}
	r.names = newNames(tools)
	choice := r.members["tool_choice"]
	if isNull(choice) || choice[0] == '"' {
		return nil
	}
	if choice[0] != '{' {
		return wrongType("tool_choice", "a string or an object")
	}
	if kind := text(objectOf(choice)["type"]); kind != "function" && kind != "allowed_tools" {
		r.needs(invalid("tool_choice.type", "unsupported_value", "No deployment of this model has the tool %.40q.", kind))
	}
	return nil
}

// checkTool checks a tool, which may be one of a namespace.
func (r *Request) checkTool(param string, raw json.RawMessage, grouped bool) *Error {
	tool := objectOf(raw)
	if tool == nil {
		return wrongType(param, "an object")
	}
	switch kind := text(tool["type"]); {
	case kind == "function":
		if text(tool["name"]) == "" {
			return invalid(param+".name", "missing_required_parameter", "Missing required parameter: '%s.name'.", param)
		}
	case kind == "namespace" && !grouped:
		return r.checkNamespace(param, tool)
	case kind == "":
		return invalid(param+".type", "missing_required_parameter", "Missing required parameter: '%s.type'.", param)
	default:
		r.needs(invalid(param+".type", "unsupported_value", "No deployment of this model has the tool %.40q: it needs a provider that speaks the Responses API.", kind))
	}
	return nil
}

func (r *Request) checkMetadata() *Error {
	raw := r.members["metadata"]
	if isNull(raw) {
		return nil
	}
	var pairs map[string]string
	if json.Unmarshal(raw, &pairs) != nil {
		return wrongType("metadata", "an object of strings")
	}
	if len(pairs) > maxMetadata {
		return invalid("metadata", "object_above_max_properties", "Invalid 'metadata': at most %d pairs.", maxMetadata)
	}
	for key, value := range pairs {
		if utf8.RuneCountInString(key) > maxMetadataKey || utf8.RuneCountInString(value) > maxMetadataValue {
			return invalid("metadata", "string_above_max_length", "Invalid 'metadata': keys have at most %d characters, values %d.", maxMetadataKey, maxMetadataValue)
		}
	}
	return nil
}
