package bridge

import (
	"encoding/json"
	"slices"
	"strings"
)

// Event is one event of a response's stream.
type Event struct {
	Type string
	Data json.RawMessage // the whole event
}

// assembly makes the items of a response from pieces, and the events that tell of them. An item is
// announced before its first piece.
type assembly struct {
	response string // id
	sequence int64  // of the next event
	place    int    // of the next item, among all that clients were told of
	items    []*assembled
	events   []Event // that nobody has taken yet
}

// assembled is an item in the making.
type assembled struct {
	id     string
	place  int
	kind   string
	parts  []*part // of a message or of reasoning
	callID string  // of a function call, as the next two
	called function
	args   strings.Builder
	ended  bool
	status string
	whole  json.RawMessage // of an item that came in one piece
}

type part struct {
	kind     string // output_text, refusal or reasoning_text
	text     strings.Builder
	logprobs []json.RawMessage
	ended    bool
}

// take returns the events since the last call.
func (a *assembly) take() []Event {
	events := a.events
	a.events = nil
	return events
}

// tell adds an event with the next sequence number. Members come in pairs of name and value.
func (a *assembly) tell(kind string, members Object) {
	if members == nil {
		members = Object{}
	}
	members["type"], members["sequence_number"] = encode(kind), number(a.sequence)
	a.sequence++
	a.events = append(a.events, Event{kind, encode(members)})
}

// about are the members that events of an item share.
func (it *assembled) about(more Object) Object {
	more["item_id"], more["output_index"] = encode(it.id), number(int64(it.place))
	return more
}

func (it *assembled) ofPart(index int, more Object) Object {
	more["content_index"] = number(int64(index))
	return it.about(more)
}

// open announces an item.
func (a *assembly) open(it *assembled) *assembled {
	it.place, it.status = a.place, StatusInProgress
	it.id = itemID(a.response, it.kind, it.place, false)
	a.place++
	a.items = append(a.items, it)
	a.tell("response.output_item.added", Object{"output_index": number(int64(it.place)), "item": it.object()})
	return it
}

// latest returns the item that pieces of this kind belong to. Another kind that is open ends.
func (a *assembly) latest(kind string) *assembled {
	for _, it := range a.items {
		if !it.ended && it.kind == kind {
			return it
		}
	}
	for _, it := range a.items {
		if !it.ended && it.kind != "function_call" {
			a.end(it, StatusCompleted)
		}
	}
	return a.open(&assembled{kind: kind})
}

// say adds a piece of text.
func (a *assembly) say(item, kind, piece string, logprobs []json.RawMessage) {
	if piece == "" && len(logprobs) == 0 {
		return
	}
	it := a.latest(item)
	index := len(it.parts) - 1
	if index < 0 || it.parts[index].kind != kind {
		if index >= 0 {
			a.endPart(it, index)
		}
		it.parts = append(it.parts, &part{kind: kind})
		index++
		a.tell("response.content_part.added", it.ofPart(index, Object{"part": it.parts[index].object()}))
	}
	p := it.parts[index]
	p.text.WriteString(piece)
	p.logprobs = append(p.logprobs, logprobs...)
	delta := it.ofPart(index, Object{"delta": encode(piece)})
	if kind == "output_text" {
		delta["logprobs"] = encode(slices.Concat([]json.RawMessage{}, logprobs))
		if len(logprobs) == 0 {
			delta["logprobs"] = noList
		}
	}
	a.tell("response."+kind+".delta", delta)
}

// call announces a call of a function.
func (a *assembly) call(id string, called function) *assembled {
	for _, it := range a.items {
		if !it.ended && it.kind != "function_call" {
			a.end(it, StatusCompleted)
		}
	}
	it := &assembled{kind: "function_call", callID: id, called: called}
	if id == "" {
		it.callID = "call_" + strings.TrimPrefix(itemID(a.response, "function_call", a.place, false), "fc_")
	}
	return a.open(it)
}

// argue adds a piece of a call's arguments.
func (a *assembly) argue(it *assembled, piece string) {
	if piece == "" {
		return
	}
	it.args.WriteString(piece)
	a.tell("response.function_call_arguments.delta", it.about(Object{"delta": encode(piece)}))
}

func (a *assembly) endPart(it *assembled, index int) {
	p := it.parts[index]
	if p.ended {
		return
	}
	p.ended = true
	said, member := it.ofPart(index, Object{}), "text"
	if p.kind == "refusal" {
		member = "refusal"
	}
	said[member] = encode(p.text.String())
	if p.kind == "output_text" {
		said["logprobs"] = p.allLogprobs()
	}
	a.tell("response."+p.kind+".done", said)
	a.tell("response.content_part.done", it.ofPart(index, Object{"part": p.object()}))
}

// end ends an item.
func (a *assembly) end(it *assembled, status string) {
	if it.ended {
		return
	}
	for i := range it.parts {
		a.endPart(it, i)
	}
	if it.kind == "function_call" {
		a.tell("response.function_call_arguments.done", it.about(Object{"name": encode(it.called.name), "arguments": encode(it.args.String())}))
	}
	it.ended, it.status = true, status
	a.tell("response.output_item.done", Object{"output_index": number(int64(it.place)), "item": it.object()})
}

// endAll ends all items. The last of them gets the status.
func (a *assembly) endAll(status string) {
	for i, it := range a.items {
		if i < len(a.items)-1 {
			a.end(it, StatusCompleted)
		} else {
			a.end(it, status)
		}
	}
}

// output returns all items.
func (a *assembly) output() json.RawMessage {
	list := []json.RawMessage{}
	for _, it := range a.items {
		list = append(list, it.object())
	}
	return encode(list)
}

func (it *assembled) object() json.RawMessage {
	if it.whole != nil {
		return it.whole
	}
	o := Object{"id": encode(it.id), "type": encode(it.kind), "status": encode(it.status)}
	parts := []json.RawMessage{}
	for _, p := range it.parts {
		parts = append(parts, p.object())
	}
	switch it.kind {
	case "message":
		o["role"], o["content"] = encode("assistant"), encode(parts)
	case "reasoning":
		o["summary"], o["content"] = noList, encode(parts)
	case "function_call":
		o["call_id"], o["name"], o["arguments"] = encode(it.callID), encode(it.called.name), encode(it.args.String())
		if it.called.namespace != "" {
			o["namespace"] = encode(it.called.namespace)
		}
	}
	return encode(o)
}

func (p *part) object() json.RawMessage {
	switch p.kind {
	case "refusal":
		return encode(Object{"type": encode("refusal"), "refusal": encode(p.text.String())})
	case "reasoning_text":
		return encode(Object{"type": encode("reasoning_text"), "text": encode(p.text.String())})
	}
	return encode(Object{"type": encode("output_text"), "text": encode(p.text.String()), "annotations": noList, "logprobs": p.allLogprobs()})
}

func (p *part) allLogprobs() json.RawMessage {
	if len(p.logprobs) == 0 {
		return noList
	}
	return encode(p.logprobs)
}
