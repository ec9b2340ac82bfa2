package bridge

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// follower reads a stream as a client does: it builds the items from their pieces, and fails where
// an event does not fit what it knows. https://www.openresponses.org/specification, "Items are
// streamable", has the order of events.
type follower struct {
	next  int64
	types []string
	items []*followed
}

type followed struct {
	id, kind, arguments string
	parts               []followedPart
	done                map[string]any
}

type followedPart struct {
	kind, text  string
	said, ended bool
}

// event is what all events of a stream may have.
type event struct {
	Type      string
	Sequence  int64  `json:"sequence_number"`
	ItemID    string `json:"item_id"`
	Place     int    `json:"output_index"`
	Index     int    `json:"content_index"`
	Item      map[string]any
	Part      map[string]any
	Delta     string
	Text      *string
	Refusal   *string
	Arguments string
}

func (f *follower) follow(t *testing.T, events []Event) {
	t.Helper()
	for _, told := range events {
		var e event
		if err := json.Unmarshal(told.Data, &e); err != nil || e.Type != told.Type || e.Sequence != f.next {
			t.Fatalf("event %d: %v %s", f.next, err, told.Data)
		}
		f.next++
		f.types = append(f.types, e.Type)
		if wrong := f.fits(e); wrong != "" {
			t.Fatalf("%s: %s", wrong, told.Data)
		}
	}
}

// fits takes an event in, and returns what is wrong with it.
func (f *follower) fits(e event) string {
	switch {
	case e.Type == "response.output_item.added":
		kind, _ := e.Item["type"].(string)
		id, _ := e.Item["id"].(string)
		if e.Place != len(f.items) || id == "" || slices.ContainsFunc(f.items, func(it *followed) bool { return it.id == id }) || e.Item["status"] != StatusInProgress {
			return "it is no new item"
		}
		f.items = append(f.items, &followed{id: id, kind: kind})
		return ""
	case e.ItemID == "" && e.Item == nil:
		return "" // of the response as a whole
	case e.Place >= len(f.items):
		return "it was not announced"
	}
	it := f.items[e.Place]
	switch {
	case it.done != nil:
		return "the item is done"
	case e.Type == "response.output_item.done":
		return it.end(e.Item)
	case e.ItemID != it.id:
		return "it is of another item"
	case e.Type == "response.function_call_arguments.delta":
		it.arguments += e.Delta
	case e.Type == "response.function_call_arguments.done":
		if e.Arguments != it.arguments {
			return "the arguments are not what was said"
		}
	default:
		return it.say(e)
	}
	return ""
}

// say takes an event of a part in.
func (it *followed) say(e event) string {
	if e.Type == "response.content_part.added" {
		kind, _ := e.Part["type"].(string)
		if e.Index != len(it.parts) || len(it.parts) > 0 && !it.parts[e.Index-1].ended || textIn(e.Part) != "" {
			return "it is no new part"
		}
		it.parts = append(it.parts, followedPart{kind: kind})
		return ""
	}
	if e.Index != len(it.parts)-1 {
		return "the part is not open"
	}
	p := &it.parts[e.Index]
	switch e.Type {
	case "response." + p.kind + ".delta":
		p.text += e.Delta
		if p.said {
			return "the text is done"
		}
	case "response." + p.kind + ".done":
		said := e.Text
		if said == nil {
			said = e.Refusal
		}
		if p.said = true; said == nil || *said != p.text {
			return "the text is not what was said"
		}
	case "response.content_part.done":
		if p.ended = true; !p.said || textIn(e.Part) != p.text {
			return "the part is not what was said"
		}
	default:
		return "nobody knows it"
	}
	return ""
}

// end takes the end of an item in.
func (it *followed) end(item map[string]any) string {
	it.done = item
	content, _ := item["content"].([]any)
	if item["id"] != it.id || item["type"] != it.kind || len(content) != len(it.parts) || it.kind == "function_call" && item["arguments"] != it.arguments {
		return "the item is another"
	}
	for i, p := range it.parts {
		if part, _ := content[i].(map[string]any); !p.ended || textIn(part) != p.text {
			return "a part is not what was said"
		}
	}
	return ""
}

func textIn(part map[string]any) string {
	for _, member := range []string{"text", "refusal"} {
		if said, ok := part[member].(string); ok {
			return said
		}
	}
	return ""
}

// ended checks the end of a stream that did not fail.
func (f *follower) ended(t *testing.T, end End, last Event) {
	t.Helper()
	if len(f.types) < 3 || f.types[0] != "response.created" || f.types[1] != "response.in_progress" || last.Type != "response."+end.Status {
		t.Fatalf("%v ends with %s", f.types, last.Type)
	}
	var o struct {
		Output []map[string]any
		Usage  json.RawMessage
	}
	if err := json.Unmarshal(end.Object, &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Output) != len(f.items) || isNull(o.Usage) {
		t.Fatalf("%d items were told of: %s", len(f.items), end.Object)
	}
	for i, it := range f.items {
		if !reflect.DeepEqual(it.done, o.Output[i]) {
			t.Fatalf("item %d was told of as %v: %v", i, it.done, o.Output[i])
		}
	}
	if strings.Count(strings.Join(f.types, " ")+" ", "response.output_item.done ") != len(f.items) {
		t.Fatal(f.types)
	}
}
