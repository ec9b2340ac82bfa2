package bridge

import (
	"encoding/json"
)

// nativeEvent passes on an event of a provider that speaks Responses, with this response's
// numbers.
func (x *Exchange) nativeEvent(data []byte) error {
	e := objectOf(data)
	kind := text(e["type"])
	if e == nil || kind == "" {
		return ErrMalformed
	}
	switch kind {
	case "response.created", "response.queued", "response.in_progress": // this server has told of it
		return nil
	case "response.completed", "response.incomplete":
		if x.final = objectOf(e["response"]); x.final == nil {
			return ErrMalformed
		}
		return nil
	case "response.failed", "error": // the call fails with it
		return nil
	}
	place := -1
	if raw := e["output_index"]; !isNull(raw) {
		if json.Unmarshal(raw, &place) != nil || place < 0 || place >= MaxItems {
			return ErrMalformed
		}
		place += x.from.Place
		e["output_index"] = number(int64(place))
		x.asm.place = max(x.asm.place, place+1)
	}
	x.fill(kind, place, e)
	x.asm.tell(kind, e)
	return nil
}

// fill adds to an event what some servers leave out and clients need.
func (x *Exchange) fill(kind string, place int, e Object) {
	switch kind {
	case "response.output_text.delta", "response.output_text.done":
		e["logprobs"] = or(e["logprobs"], noList)
	case "response.content_part.added", "response.content_part.done":
		e["part"] = filledPart(e["part"])
	case "response.output_item.added":
		e["item"] = filledItem(e["item"], StatusInProgress)
		x.names[place] = objectOf(e["item"])["name"]
	case "response.output_item.done":
		e["item"] = filledItem(e["item"], StatusCompleted)
		x.done = append(x.done, e["item"])
	case "response.function_call_arguments.done":
		e["name"] = or(e["name"], or(x.names[place], encode("")))
	}
}

// nativeBody reads a response in one piece, and tells of its items.
func (x *Exchange) nativeBody() error {
	if x.final = objectOf(x.body); x.final == nil || isNull(x.final["output"]) {
		return ErrMalformed
	}
	for i, raw := range listOf(x.final["output"]) {
		item := objectOf(filledItem(raw, StatusCompleted))
		if item == nil {
			return ErrMalformed
		}
		if isNull(item["id"]) {
			item["id"] = encode(itemID(x.id, text(item["type"]), i, false))
		}
		x.tellItem(item)
	}
	return nil
}

// tellItem tells of an item that is complete.
func (x *Exchange) tellItem(item Object) {
	place := number(int64(x.asm.place))
	x.asm.place++
	about := func(more Object) Object {
		more["item_id"], more["output_index"] = item["id"], place
		return more
	}
	begun := Object{}
	for name, raw := range item {
		begun[name] = raw
	}
	if !isNull(item["status"]) {
		begun["status"] = encode(StatusInProgress)
	}
	kind := text(item["type"])
	switch kind {
	case "message":
		begun["content"] = noList
	case "function_call":
		begun["arguments"] = encode("")
	}
	x.asm.tell("response.output_item.added", Object{"output_index": place, "item": encode(begun)})
	switch kind {
	case "message":
		for i, raw := range listOf(item["content"]) {
			x.tellPart(number(int64(i)), raw, about)
		}
	case "function_call":
		x.asm.tell("response.function_call_arguments.delta", about(Object{"delta": item["arguments"]}))
		x.asm.tell("response.function_call_arguments.done", about(Object{"name": item["name"], "arguments": item["arguments"]}))
	}
	whole := encode(item)
	x.done = append(x.done, whole)
	x.asm.tell("response.output_item.done", Object{"output_index": place, "item": whole})
}

// tellPart tells of a part of a message that is complete.
func (x *Exchange) tellPart(index, raw json.RawMessage, about func(Object) Object) {
	part := objectOf(raw)
	kind, member := text(part["type"]), "text"
	if kind == "refusal" {
		member = "refusal"
	}
	begun := Object{}
	for name, value := range part {
		begun[name] = value
	}
	begun[member] = encode("")
	x.asm.tell("response.content_part.added", about(Object{"content_index": index, "part": encode(begun)}))
	delta, done := Object{"content_index": index, "delta": part[member]}, Object{"content_index": index, member: part[member]}
	if kind == "output_text" {
		delta["logprobs"], done["logprobs"] = part["logprobs"], part["logprobs"]
	}
	x.asm.tell("response."+kind+".delta", about(delta))
	x.asm.tell("response."+kind+".done", about(done))
	x.asm.tell("response.content_part.done", about(Object{"content_index": index, "part": raw}))
}

// nativeObject returns the response as the provider ended it.
func (x *Exchange) nativeObject() (Object, error) {
	if x.final == nil {
		return nil, ErrMalformed
	}
	status := text(x.final["status"])
	if status == "" {
		status = StatusCompleted
	}
	if status != StatusCompleted && status != StatusIncomplete {
		return nil, ErrMalformed
	}
	if x.whole || len(listOf(x.final["output"])) == 0 {
		x.final["output"] = encode(append([]json.RawMessage{}, x.done...))
	}
	x.final["status"] = encode(status)
	return overlaid(x.request.Base(x.id, x.created, status), x.final), nil
}
