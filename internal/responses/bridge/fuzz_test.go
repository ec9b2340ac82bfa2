package bridge

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// seeds are the requests and the answers of the golden tests.
func seeds(f *testing.F, add func(request, answer []byte)) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		in, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		request, answer, _ := bytes.Cut(in, []byte("\n---\n"))
		add(request, answer)
	}
}

// Whatever a client sends is refused, or it becomes JSON.
func FuzzParse(f *testing.F) {
	seeds(f, func(request, _ []byte) { f.Add(request) })
	f.Add([]byte(`{"model":"m","input":[{"type":"item_reference","id":"a"},{"role":"user","content":null}]}`))
	f.Add([]byte(`{"model":"m","input":[],"tools":[{}],"tool_choice":{},"text":{"format":{"type":1}},"reasoning":{"effort":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body, "")
		if err != nil {
			return
		}
		valid := func(what string, raw []byte) {
			if !json.Valid(raw) || !utf8.Valid(raw) {
				t.Errorf("%s is %q", what, raw)
			}
		}
		valid("the response", encode(r.Base(testID, time.Unix(1, 0), StatusQueued)))
		items := r.InputItems(testID)
		for _, item := range items {
			valid("an item", item)
		}
		r.Context = items
		valid("the request", r.Native())
		if r.Beyond() == nil {
			chat, err := r.chat(Dialect{}, true)
			if err != nil {
				t.Fatal(err)
			}
			valid("the request for chat completions", chat)
		}
	})
}

// Whatever a provider answers, events have numbers without a gap, and the end is JSON. A client
// that follows the events of the bridge gets the items that the response has.
func FuzzAnswer(f *testing.F) {
	seeds(f, func(request, answer []byte) {
		f.Add(request, answer, true)
		f.Add(request, answer, false)
	})
	f.Fuzz(func(t *testing.T, request, answer []byte, native bool) {
		r, err := Parse(request, "")
		if err != nil {
			return
		}
		x := NewExchange(r, testID, time.Unix(1, 0), true, State{})
		if _, _, err := x.Choose(Dialect{Responses: native}); err != nil {
			return
		}
		next, client := int64(0), follower{}
		check := func(events []Event) {
			for _, e := range events {
				var o struct {
					Type     string
					Sequence int64 `json:"sequence_number"`
				}
				if err := json.Unmarshal(e.Data, &o); err != nil || o.Sequence != next || o.Type != e.Type || !utf8.Valid(e.Data) {
					t.Fatalf("event %d: %v %s", next, err, e.Data)
				}
				next++
			}
			if !native { // what it announces is the provider's business
				client.follow(t, events)
			}
		}
		var parts [][]byte
		if bytes.HasPrefix(answer, []byte("data:")) {
			for line := range bytes.Lines(answer) {
				parts = append(parts, line)
			}
		} else {
			parts = [][]byte{answer}
		}
		for _, part := range parts {
			events, err := x.Write(part)
			check(events)
			if err != nil {
				check(x.Fail(Failure{CodeServerError, "m"}, true))
				return
			}
		}
		end, err := x.End(forebay.TokenUsage{}, time.Unix(2, 0))
		if err != nil {
			check(x.Fail(Failure{CodeServerError, "m"}, true))
			return
		}
		check(end.Events)
		if !json.Valid(end.Object) || !utf8.Valid(end.Object) {
			t.Fatalf("%q", end.Object)
		}
		last, ok := Last(x.State().Sequence, end.Status, end.Object)
		if !ok {
			t.Fatal(end.Status)
		}
		check([]Event{last})
		if !native {
			client.ended(t, end, last)
		}
	})
}

// What an attempt has begun and not ended is closed, with what it had said.
func FuzzInterrupted(f *testing.F) {
	f.Add([]byte(`{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"message","content":[]}}
{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}
{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"x"}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		var events []json.RawMessage
		for line := range bytes.Lines(lines) {
			events = append(events, line)
		}
		closed, then := Interrupted(events, State{7, 3})
		if then.Sequence != 7+int64(len(closed)) || then.Place != 3 {
			t.Errorf("%d events lead to %+v", len(closed), then)
		}
	})
}
