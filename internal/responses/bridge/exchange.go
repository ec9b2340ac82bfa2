package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// Paths of the API that an exchange asks for.
const (
	pathChat      = "chat/completions"
	pathResponses = "responses"
)

// ErrMalformed says that the answer is not what it should be: it is broken, or it has no end.
var ErrMalformed = errors.New("the provider's answer is not complete")

// State is where the stream of a response stands before a call.
type State struct {
	Sequence int64 // of the next event
	Place    int   // of the next item
}

// Exchange is one call for a response. It is not safe for concurrent use.
type Exchange struct {
	request *Request
	id      string
	created time.Time
	stream  bool // the provider is asked for a stream
	native  bool // the provider speaks Responses
	from    State

	asm      assembly
	body     []byte // of an answer in one piece
	whole    bool   // the answer comes in one piece
	begun    bool
	calls    map[int64]*toolCall // of chat completions, by index
	order    []*toolCall
	finish   string // of chat completions
	usage    json.RawMessage
	tier     json.RawMessage
	final    Object                  // what a provider that speaks Responses says in the end
	names    map[int]json.RawMessage // of functions, by place
	done     []json.RawMessage       // items that are complete
	announce bool                    // the beginning is told too
}

// NewExchange makes a call for a request. If the state is the first one, the exchange also tells
// of the beginning of the response.
func NewExchange(r *Request, id string, created time.Time, stream bool, from State) *Exchange {
	return &Exchange{request: r, id: id, created: created, stream: stream, from: from, announce: from == State{},
		asm: assembly{response: id, sequence: from.Sequence, place: from.Place}, calls: map[int64]*toolCall{}, names: map[int]json.RawMessage{}}
}

// Choose returns what a provider is asked for. The error is an [*Error].
func (x *Exchange) Choose(d Dialect) (path string, body []byte, err error) {
	if x.native = d.Responses; x.native {
		return pathResponses, x.request.native(x.stream), nil
	}
	body, err = x.request.chat(d, x.stream)
	return pathChat, body, err
}

// State is where the stream stands now.
func (x *Exchange) State() State { return State{x.asm.sequence, x.asm.place} }

// Write reads a part of the answer and returns the events that became known. Of a stream the part
// is one server-sent event.
func (x *Exchange) Write(b []byte) ([]Event, error) {
	if !x.begun {
		first := bytes.TrimLeft(b, " \t\r\n")
		if len(first) == 0 {
			return nil, nil
		}
		x.begun, x.whole = true, first[0] == '{'
		if x.announce {
			x.tellBegin()
		}
	}
	if x.whole {
		x.body = append(x.body, b...)
		return x.asm.take(), nil
	}
	data := clean(dataOf(b))
	if len(data) == 0 || string(data) == "[DONE]" {
		return x.asm.take(), nil
	}
	var err error
	if x.native {
		err = x.nativeEvent(data)
	} else {
		err = x.chatChunk(data)
	}
	return x.asm.take(), err
}

// clean replaces what is no UTF-8: clients could not read it.
func clean(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\uFFFD")) }

// dataOf returns the data of a server-sent event.
func dataOf(event []byte) (data []byte) {
	for line := range bytes.Lines(event) {
		value, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if !ok {
			continue
		}
		if data != nil {
			data = append(data, '\n')
		}
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	return data
}

func (x *Exchange) tellBegin() {
	base := encode(x.request.Base(x.id, x.created, StatusInProgress))
	x.asm.tell("response.created", Object{"response": base})
	x.asm.tell("response.in_progress", Object{"response": base})
}

// End is how a response ended.
type End struct {
	Status string // StatusCompleted or StatusIncomplete
	Object json.RawMessage
	Events []Event // before the one that ends the stream
}

// End ends an answer that the provider has completed. used is what the call used where the answer
// does not say it.
func (x *Exchange) End(used forebay.TokenUsage, at time.Time) (End, error) {
	if !x.begun {
		return End{}, ErrMalformed
	}
	var err error
	x.body = clean(x.body)
	switch {
	case x.native && x.whole:
		err = x.nativeBody()
	case x.whole:
		err = x.chatBody()
	}
	if err != nil {
		return End{}, err
	}
	var o Object
	if x.native {
		o, err = x.nativeObject()
	} else {
		o, err = x.chatObject(used)
	}
	if err != nil {
		return End{}, err
	}
	status := text(o["status"])
	if status == StatusCompleted {
		o["completed_at"] = or(o["completed_at"], number(at.Unix()))
	}
	return End{Status: status, Object: encode(o), Events: x.asm.take()}, nil
}

// Last returns the event that ends a stream, for the object in its final state. A cancelled
// response has none.
func Last(sequence int64, status string, object json.RawMessage) (Event, bool) {
	switch status {
	case StatusCompleted, StatusIncomplete, StatusFailed:
		return Lifecycle(sequence, status, object), true
	}
	return Event{}, false
}

// Lifecycle returns an event that tells of the response as a whole. what is a status, or
// "created".
func Lifecycle(sequence int64, what string, object json.RawMessage) Event {
	kind := "response." + what
	return Event{kind, encode(Object{"type": encode(kind), "sequence_number": number(sequence), "response": object})}
}

// Fail returns the events that end a stream whose call has failed. withError says that an error
// goes before the last one. SDKs differ in where they look for it, so that has it in both places.
func (x *Exchange) Fail(f Failure, withError bool) []Event {
	if x.announce && !x.begun {
		x.tellBegin()
	}
	if withError {
		code, message := encode(f.Code), encode(f.Message)
		x.asm.tell("error", Object{"code": code, "message": message, "param": null,
			"error": encode(Object{"type": encode("server_error"), "code": code, "message": message, "param": null})})
	}
	o := Failed(x.request.Base(x.id, x.created, StatusInProgress), f)
	events := x.asm.take()
	last, _ := Last(x.asm.sequence, StatusFailed, encode(o))
	return append(events, last)
}

// interrupted is an item that an earlier call has begun.
type interrupted struct {
	item Object
	text map[int]*strings.Builder // of its parts; that of a function call is the first
}

// said returns the text of a part.
func (it *interrupted) said(index int) string {
	if b := it.text[index]; b != nil {
		return b.String()
	}
	return ""
}

// Interrupted returns the events that close what an earlier call has begun and not ended. Another
// call can then go on, from the state that is returned. events are those of the earlier call.
func Interrupted(events []json.RawMessage, from State) ([]Event, State) {
	items := map[int]*interrupted{}
	for _, raw := range events {
		e := objectOf(raw)
		var place, index int
		if json.Unmarshal(e["output_index"], &place) != nil {
			continue
		}
		_ = json.Unmarshal(e["content_index"], &index)
		it := items[place]
		switch text(e["type"]) {
		case "response.output_item.added":
			if item := objectOf(e["item"]); item != nil {
				items[place] = &interrupted{item, map[int]*strings.Builder{}}
			}
		case "response.output_item.done":
			delete(items, place)
		case "response.output_text.delta", "response.refusal.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta":
			if it != nil {
				if it.text[index] == nil {
					it.text[index] = &strings.Builder{}
				}
				it.text[index].WriteString(text(e["delta"]))
			}
		case "response.content_part.added":
			if it != nil {
				it.item["content"] = encode(append(listOf(it.item["content"]), e["part"]))
			}
		}
	}
	a := assembly{sequence: from.Sequence, place: from.Place}
	places := []int{}
	for place := range items {
		places = append(places, place)
	}
	slices.Sort(places)
	for _, place := range places {
		it := items[place]
		it.item["status"] = encode(StatusIncomplete)
		parts := listOf(it.item["content"])
		for i := range parts {
			part := objectOf(parts[i])
			if part == nil {
				continue
			}
			member := "text"
			if text(part["type"]) == "refusal" {
				member = "refusal"
			}
			part[member] = encode(it.said(i))
			parts[i] = encode(part)
		}
		if parts != nil {
			it.item["content"] = encode(parts)
		}
		if text(it.item["type"]) == "function_call" {
			it.item["arguments"] = encode(it.said(0))
		}
		a.tell("response.output_item.done", Object{"output_index": number(int64(place)), "item": encode(it.item)})
	}
	return a.take(), State{a.sequence, a.place}
}
