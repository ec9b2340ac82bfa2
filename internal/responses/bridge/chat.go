package bridge

import (
	"encoding/json"
	"slices"
	"strings"
)

// Dialect says how a provider is to be asked.
type Dialect struct {
	Responses bool // it speaks the Responses API
	// CompletionTokens says that the provider knows max_completion_tokens. Older ones know
	// max_tokens.
	CompletionTokens bool
}

// straight are the members that mean the same in both APIs.
var straight = []string{"model", "temperature", "top_p", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"}

// chat returns the request for chat completions. The error is an [*Error].
func (r *Request) chat(d Dialect, stream bool) ([]byte, error) {
	if r.beyond != nil {
		return nil, r.beyond
	}
	body := Object{"messages": encode(r.messages()), "store": boolean(false), "stream": boolean(stream)}
	for _, name := range straight {
		if raw := r.members[name]; !isNull(raw) {
			body[name] = raw
		}
	}
	if raw := r.members["max_output_tokens"]; !isNull(raw) {
		name := "max_tokens"
		if d.CompletionTokens {
			name = "max_completion_tokens"
		}
		body[name] = raw
	}
	if raw := objectOf(r.members["reasoning"])["effort"]; !isNull(raw) {
		body["reasoning_effort"] = raw
	}
	r.chatText(body)
	r.chatTools(body)
	var include []string
	_ = json.Unmarshal(r.members["include"], &include)
	if raw := r.members["top_logprobs"]; !isNull(raw) && string(raw) != "0" {
		body["logprobs"], body["top_logprobs"] = boolean(true), raw
	} else if slices.Contains(include, "message.output_text.logprobs") {
		body["logprobs"] = boolean(true)
	}
	return encode(body), nil
}

func (r *Request) chatText(body Object) {
	settings := objectOf(r.members["text"])
	if raw := settings["verbosity"]; !isNull(raw) {
		body["verbosity"] = raw
	}
	format := objectOf(settings["format"])
	switch text(format["type"]) {
	case "json_object":
		body["response_format"] = encode(Object{"type": encode("json_object")})
	case "json_schema":
		body["response_format"] = encode(Object{"type": encode("json_schema"), "json_schema": encode(picked(format, "name", "description", "schema", "strict"))})
	}
}

// picked returns those of the members that are there.
func picked(from Object, names ...string) Object {
	to := Object{}
	for _, name := range names {
		if raw := from[name]; !isNull(raw) {
			to[name] = raw
		}
	}
	return to
}

// chatTools adds the tools. Whether a schema is strict is said only where the request says it: the
// defaults of the two APIs differ.
func (r *Request) chatTools(body Object) {
	var tools []json.RawMessage
	for _, raw := range listOf(r.members["tools"]) {
		tools = append(tools, r.names.chatFunctions(objectOf(raw))...)
	}
	if len(tools) == 0 { // providers refuse the rest without tools
		return
	}
	body["tools"] = encode(tools)
	if raw := r.members["parallel_tool_calls"]; !isNull(raw) {
		body["parallel_tool_calls"] = raw
	}
	raw := r.members["tool_choice"]
	if isNull(raw) {
		return
	}
	choice := objectOf(raw)
	switch text(choice["type"]) {
	case "function":
		raw = r.names.chatFunction(functionOf(choice))
	case "allowed_tools":
		allowed := Object{"mode": or(choice["mode"], encode("auto"))}
		functions := []json.RawMessage{}
		for _, f := range r.names.allowed(listOf(choice["tools"])) {
			functions = append(functions, r.names.chatFunction(f))
		}
		allowed["tools"] = encode(functions)
		raw = encode(Object{"type": encode("allowed_tools"), "allowed_tools": encode(allowed)})
	}
	body["tool_choice"] = raw
}

func (n names) chatFunction(f function) json.RawMessage {
	return encode(Object{"type": encode("function"), "function": encode(Object{"name": encode(n.of(f))})})
}

// messages returns the messages that stand for the instructions, the context and the input.
func (r *Request) messages() []Object {
	list := []Object{}
	if raw := r.members["instructions"]; !isNull(raw) {
		list = append(list, Object{"role": encode("system"), "content": raw})
	}
	calls := false // the latest message was followed by calls of the same turn, or may be
	var pending []json.RawMessage
	flush := func() {
		if len(pending) == 0 {
			return
		}
		last := len(list) - 1
		if last < 0 || !calls {
			list = append(list, Object{"role": encode("assistant"), "content": null})
			last++
		}
		list[last]["tool_calls"] = encode(pending)
		pending, calls = nil, false
	}
	for _, raw := range slices.Concat(r.Context, r.Input) {
		item := objectOf(raw)
		switch kindOf(item) {
		case "function_call":
			pending = append(pending, encode(Object{"id": item["call_id"], "type": encode("function"),
				"function": encode(Object{"name": encode(r.names.of(functionOf(item))), "arguments": or(item["arguments"], encode(""))})}))
			continue
		case "message":
			flush()
			list = append(list, chatMessage(item))
			calls = text(item["role"]) == "assistant"
			continue
		case "function_call_output":
			flush()
			list = append(list, Object{"role": encode("tool"), "tool_call_id": item["call_id"], "content": encode(joined(item["output"]))})
		case "reasoning": // chat completions have none
			continue
		}
		calls = false
	}
	flush()
	return list
}

// chatMessage translates a message. What an assistant has said is one text.
func chatMessage(item Object) Object {
	role, content := item["role"], or(item["content"], encode(""))
	if content[0] == '"' {
		return Object{"role": role, "content": content}
	}
	parts := listOf(content)
	if text(role) == "assistant" {
		m := Object{"role": role, "content": encode(joined(content))}
		for _, raw := range parts {
			if part := objectOf(raw); text(part["type"]) == "refusal" {
				m["refusal"] = part["refusal"]
			}
		}
		if _, refused := m["refusal"]; refused && string(m["content"]) == `""` {
			m["content"] = null
		}
		return m
	}
	list := make([]json.RawMessage, len(parts))
	for i, raw := range parts {
		part := objectOf(raw)
		switch text(part["type"]) {
		case "input_image":
			image := picked(part, "detail")
			image["url"] = part["image_url"]
			list[i] = encode(Object{"type": encode("image_url"), "image_url": encode(image)})
		case "input_file":
			list[i] = encode(Object{"type": encode("file"), "file": encode(picked(part, "file_data", "filename"))})
		default:
			list[i] = encode(Object{"type": encode("text"), "text": or(part["text"], or(part["refusal"], encode("")))})
		}
	}
	if len(list) == 1 && text(objectOf(list[0])["type"]) == "text" { // servers that know no parts take it
		return Object{"role": role, "content": objectOf(list[0])["text"]}
	}
	return Object{"role": role, "content": encode(list)}
}

// joined returns the text of a string or of all text parts of a list.
func joined(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw)
	}
	var b strings.Builder
	for _, raw := range listOf(raw) {
		part := objectOf(raw)
		if kind := text(part["type"]); kind == "input_text" || kind == "output_text" || kind == "text" {
			b.WriteString(text(part["text"]))
		}
	}
	return b.String()
}

// native returns the request for a provider that speaks Responses. What is not this server's
// business is kept. The provider stores nothing, and gets the context as input.
func (r *Request) native(stream bool) []byte {
	body := Object{}
	for name, raw := range r.members {
		body[name] = raw
	}
	delete(body, "previous_response_id")
	delete(body, "background")
	body["store"], body["stream"] = boolean(false), boolean(stream)
	if len(r.Context) > 0 || !isNull(body["input"]) && body["input"][0] == '[' {
		var items []json.RawMessage
		for _, raw := range r.Context {
			if raw = unnamed(raw); raw != nil {
				items = append(items, raw)
			}
		}
		for _, raw := range r.Input {
			if raw = sentBack(raw); raw != nil {
				items = append(items, raw)
			}
		}
		body["input"] = encode(items)
	}
	if !stream {
		delete(body, "stream_options")
	}
	return encode(body)
}

// unnamed returns an item of the context without its id, which the provider does not know; nil: it
// can say nothing to the provider.
func unnamed(raw json.RawMessage) json.RawMessage {
	item := objectOf(raw)
	switch kindOf(item) {
	case "reasoning":
		if isNull(item["encrypted_content"]) {
			return nil
		}
		return raw
	case "message", "function_call", "function_call_output":
		delete(item, "id")
		return encode(item)
	}
	return raw
}

// sentBack is unnamed for an item of the input, which the client may have from an earlier answer.
// Reasoning in plain text is kept for servers that read it.
func sentBack(raw json.RawMessage) json.RawMessage {
	item := objectOf(raw)
	if isNull(item["id"]) || kindOf(item) == "reasoning" && len(listOf(item["content"])) > 0 {
		return raw
	}
	return unnamed(raw)
}

// Native returns the request as a provider that speaks Responses would get it, without a stream.
func (r *Request) Native() []byte { return r.native(false) }
