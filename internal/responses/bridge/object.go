package bridge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Statuses of a response.
const (
	StatusQueued     = "queued"
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete"
	StatusFailed     = "failed"
	StatusCancelled  = "cancelled"
)

// IDPrefix is what ids of responses begin with. What follows is in the ids of their items too.
const IDPrefix = "resp_"

// itemPrefixes are what the ids of items begin with, by type.
var itemPrefixes = map[string]string{"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_", "compaction": "cmp_"}

// itemID returns the id of an item of a response. It names the response, so that the item can be
// found again.
func itemID(response, kind string, place int, input bool) string {
	prefix, side := itemPrefixes[kind], "o"
	if prefix == "" {
		prefix = "item_"
	}
	if input {
		side = "i"
	}
	return fmt.Sprintf("%s%s%s%04d", prefix, strings.TrimPrefix(response, IDPrefix), side, place)
}

// ResponseOf returns the id of the response that the id of an item names, or "".
func ResponseOf(item string) string {
	_, rest, _ := strings.Cut(item, "_")
	if len(rest) <= 5 {
		return ""
	}
	return IDPrefix + rest[:len(rest)-5]
}

// Base returns the response as it is before there is an answer. It has every key that a client may
// expect.
func (r *Request) Base(id string, created time.Time, status string) Object {
	m := r.members
	reasoning := objectOf(m["reasoning"])
	if reasoning == nil {
		reasoning = Object{}
	}
	reasoning["effort"], reasoning["summary"] = or(reasoning["effort"], null), or(reasoning["summary"], null)
	o := Object{
		"id": encode(id), "object": encode("response"), "created_at": number(created.Unix()), "completed_at": null, "status": encode(status),
		"background": boolean(r.Background), "store": boolean(r.Store), "error": null, "incomplete_details": null,
		"instructions": or(m["instructions"], null), "model": encode(r.Model), "previous_response_id": or(m["previous_response_id"], null),
		"parallel_tool_calls": or(m["parallel_tool_calls"], boolean(true)), "tools": echoedTools(m["tools"]), "tool_choice": echoedChoice(m["tool_choice"]),
		"temperature": or(m["temperature"], one), "top_p": or(m["top_p"], one), "presence_penalty": zero, "frequency_penalty": zero,
		"top_logprobs": or(m["top_logprobs"], zero), "max_output_tokens": or(m["max_output_tokens"], null), "max_tool_calls": or(m["max_tool_calls"], null),
		"truncation": or(m["truncation"], encode("disabled")), "service_tier": or(m["service_tier"], encode("default")), "metadata": or(m["metadata"], noObject),
		"reasoning": encode(reasoning), "text": echoedText(m["text"]), "safety_identifier": or(m["safety_identifier"], null),
		"prompt_cache_key": or(m["prompt_cache_key"], null), "output": noList, "usage": null,
	}
	if user := m["user"]; !isNull(user) {
		o["user"] = user
	}
	return o
}

// echoedText returns the settings of texts with all keys that a client may expect. OpenAI's server
// says that a format's description is null, and Open Responses wants the key to be there.
func echoedText(raw json.RawMessage) json.RawMessage {
	settings := objectOf(raw)
	if settings == nil {
		settings = Object{}
	}
	format := objectOf(settings["format"])
	if format == nil {
		format = Object{"type": encode("text")}
	}
	if text(format["type"]) == "json_schema" {
		format["description"], format["strict"] = or(format["description"], null), or(format["strict"], boolean(false))
	}
	settings["format"], settings["verbosity"] = encode(format), or(settings["verbosity"], encode("medium"))
	return encode(settings)
}

// echoedChoice returns the choice of tools with all keys that a client may expect.
func echoedChoice(raw json.RawMessage) json.RawMessage {
	choice := objectOf(raw)
	if text(choice["type"]) != "allowed_tools" {
		return or(raw, encode("auto"))
	}
	choice["mode"] = or(choice["mode"], encode("auto"))
	return encode(choice)
}

// echoedTools returns the tools with all keys that a client may expect.
func echoedTools(raw json.RawMessage) json.RawMessage {
	list := []json.RawMessage{}
	for _, raw := range listOf(raw) {
		tool := objectOf(raw)
		if text(tool["type"]) == "function" {
			for _, name := range []string{"description", "parameters", "strict"} {
				tool[name] = or(tool[name], null)
			}
			raw = encode(tool)
		}
		list = append(list, raw)
	}
	return encode(list)
}

// InputItems returns the items of the input as a client can list them: with ids, and with content
// in parts.
func (r *Request) InputItems(response string) []json.RawMessage {
	list := make([]json.RawMessage, len(r.Input))
	for i, raw := range r.Input {
		item := objectOf(raw)
		kind := kindOf(item)
		item["type"] = encode(kind)
		if isNull(item["id"]) {
			item["id"] = encode(itemID(response, kind, i, true))
		}
		if kind == "message" {
			part := "input_text"
			if text(item["role"]) == "assistant" {
				part = "output_text"
			}
			if content := or(item["content"], noList); content[0] == '"' {
				item["content"] = encode([]Object{{"type": encode(part), "text": content}})
			}
			item["content"] = filledParts(item["content"])
		}
		switch kind {
		case "function_call_output":
			if output := item["output"]; !isNull(output) && output[0] == '[' {
				item["output"] = filledParts(output)
			}
		case "reasoning":
			item["summary"] = or(item["summary"], noList)
		}
		if kind != "item_reference" && kind != "reasoning" && kind != "compaction" {
			item["status"] = or(item["status"], encode(StatusCompleted))
		}
		list[i] = encode(item)
	}
	return list
}

// Whole returns the body of the request with the known earlier items at the beginning of its
// input. input is as the client has sent it.
func (r *Request) Whole(input []json.RawMessage) []byte {
	body := maps.Clone(r.members)
	delete(body, "previous_response_id")
	body["input"] = encode(slices.Concat(r.Known, input))
	return encode(body)
}

// Prepared returns the events of a response for which no model was called, and the response.
func (r *Request) Prepared(id string, at time.Time) ([]Event, json.RawMessage) {
	x := NewExchange(r, id, at, true, State{})
	x.tellBegin()
	o := r.Base(id, at, StatusCompleted)
	o["completed_at"], o["usage"] = number(at.Unix()), encode(usage{})
	object := encode(o)
	return append(x.asm.take(), Lifecycle(x.asm.sequence, StatusCompleted, object)), object
}

// Now returns a base as it is by now. The base was made before the response was stored.
func Now(base json.RawMessage, created time.Time, status string, f *Failure) (json.RawMessage, error) {
	var o Object
	if err := json.Unmarshal(base, &o); err != nil {
		return nil, err
	}
	o["created_at"], o["status"] = number(created.Unix()), encode(status)
	if f != nil {
		o = Failed(o, *f)
	}
	return encode(o), nil
}

// Failed returns a response with why it has failed.
func Failed(o Object, f Failure) Object {
	o["status"], o["error"] = encode(StatusFailed), encode(Object{"code": encode(f.Code), "message": encode(f.Message)})
	return o
}

// Failure is why a response failed. Its code is one of the API's own for responses.
type Failure struct{ Code, Message string }

// Codes of failures.
const (
	CodeServerError   = "server_error"
	CodeRateLimit     = "rate_limit_exceeded"
	CodeInvalidPrompt = "invalid_prompt"
)

// usage is how many tokens an answer took.
type usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
		Write  int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// overlaid returns the response with what a provider that speaks Responses says of it. Ids and
// storing are this server's.
func overlaid(base, upstream Object) Object {
	for name, raw := range upstream {
		switch name {
		case "id", "object", "created_at", "background", "store", "previous_response_id", "model", "conversation", "input":
			continue
		}
		if isNull(raw) && !isNull(base[name]) {
			continue
		}
		if name == "text" || name == "reasoning" { // some servers send a part of them, or nothing
			raw = completed(raw, base[name])
		}
		base[name] = raw
	}
	base["tools"], base["tool_choice"], base["text"] = echoedTools(base["tools"]), echoedChoice(base["tool_choice"]), echoedText(base["text"])
	base["metadata"] = or(base["metadata"], noObject)
	if raw := base["usage"]; !isNull(raw) {
		var u usage
		if json.Unmarshal(raw, &u) == nil {
			base["usage"] = encode(filled(objectOf(raw), objectOf(encode(u))))
		}
	}
	list := []json.RawMessage{}
	for _, raw := range listOf(base["output"]) {
		list = append(list, filledItem(raw, StatusCompleted))
	}
	base["output"] = encode(list)
	return base
}

// completed returns an object with the members of another that it lacks. What is no object is
// replaced.
func completed(raw, with json.RawMessage) json.RawMessage {
	o := objectOf(raw)
	if o == nil {
		return with
	}
	for name, value := range objectOf(with) {
		o[name] = or(o[name], value)
	}
	return encode(o)
}

// filled adds to an object what it lacks, also within objects.
func filled(o, with Object) Object {
	for name, raw := range with {
		inner, known := objectOf(raw), objectOf(o[name])
		switch {
		case isNull(o[name]):
			o[name] = raw
		case inner != nil && known != nil:
			o[name] = encode(filled(known, inner))
		}
	}
	return o
}

// filledItem returns an item of an answer with the keys that a client may expect.
func filledItem(raw json.RawMessage, status string) json.RawMessage {
	item := objectOf(raw)
	switch text(item["type"]) {
	case "message":
		item["role"], item["status"] = or(item["role"], encode("assistant")), or(item["status"], encode(status))
		item["content"] = filledParts(or(item["content"], noList))
	case "function_call":
		item["status"], item["arguments"] = or(item["status"], encode(status)), or(item["arguments"], encode(""))
	case "reasoning":
		item["summary"] = or(item["summary"], noList)
	default:
		return raw
	}
	return encode(item)
}

func filledParts(raw json.RawMessage) json.RawMessage {
	parts := listOf(raw)
	for i := range parts {
		parts[i] = filledPart(parts[i])
	}
	if parts == nil {
		return raw
	}
	return encode(parts)
}

func filledPart(raw json.RawMessage) json.RawMessage {
	part := objectOf(raw)
	switch text(part["type"]) {
	case "output_text":
		part["annotations"], part["logprobs"] = or(part["annotations"], noList), or(part["logprobs"], noList)
	case "input_image":
		part["detail"], part["image_url"] = or(part["detail"], encode("auto")), or(part["image_url"], null)
	default:
		return raw
	}
	return encode(part)
}
