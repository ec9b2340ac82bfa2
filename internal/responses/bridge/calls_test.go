package bridge

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// Some servers give all calls of a stream the same index. Each is a call of its own.
func TestCallsWithTheSameIndex(t *testing.T) {
	t.Parallel()
	r, err := Parse([]byte(`{"model":"chat","input":"hi"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	x := NewExchange(r, testID, time.Unix(1700000000, 0), true, State{})
	if _, _, err := x.Choose(Dialect{}); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{
		`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`,
		`{"index":0,"id":"c2","type":"function","function":{"name":"g","arguments":"{\"b\":"}}`,
		`{"index":0,"id":"c2","function":{"name":"g","arguments":"2}"}}`,
	} {
		if _, err := x.Write([]byte(`data: {"choices":[{"index":0,"delta":{"tool_calls":[` + call + "]},\"finish_reason\":null}]}\n\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n")); err != nil {
		t.Fatal(err)
	}
	end, err := x.End(forebay.TokenUsage{}, time.Unix(1700000009, 0))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	gjson.GetBytes(end.Object, "output").ForEach(func(_, item gjson.Result) bool {
		got += item.Get("call_id").Str + " " + item.Get("name").Str + item.Get("arguments").Str + ";"
		return true
	})
	if want := `c1 f{"a":1};c2 g{"b":2};`; got != want {
		t.Errorf("the calls are %s, want %s", got, want)
	}
}

// Reasoning that a server leaves out of completion_tokens is output of the response.
func TestReasoningInTheUsage(t *testing.T) {
	t.Parallel()
	r, err := Parse([]byte(`{"model":"chat","input":"hi"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	x := NewExchange(r, testID, time.Unix(1700000000, 0), false, State{})
	if _, _, err := x.Choose(Dialect{}); err != nil {
		t.Fatal(err)
	}
	const usage = `{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`
	if _, err := x.Write([]byte(`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":` + usage + `}`)); err != nil {
		t.Fatal(err)
	}
	end, err := x.End(forebay.TokenUsage{}, time.Unix(1700000009, 0))
	if err != nil {
		t.Fatal(err)
	}
	if u := gjson.GetBytes(end.Object, "usage"); u.Get("output_tokens").Int() != 103 || u.Get("total_tokens").Int() != 135 {
		t.Errorf("the usage is %s", u)
	}
}

// A provider stores nothing, so it cannot find the items of earlier answers by their ids. A client
// that sends them back need not know that.
func TestItemsSentBack(t *testing.T) {
	t.Parallel()
	for item, want := range map[string]string{
		`{"type":"reasoning","id":"rs_1","summary":[]}`:                                                          ``,
		`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}`:                                 ``,
		`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA"}`:                                 `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA"}`,
		`{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"I think"}]}`:   `{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"I think"}]}`,
		`{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"}`:                        `{"arguments":"{}","call_id":"c1","name":"f","type":"function_call"}`,
		`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"I look."}]}`: `{"content":[{"type":"output_text","text":"I look."}],"role":"assistant","type":"message"}`,
		`{"role":"user","content":"x"}`:                                                                          `{"role":"user","content":"x"}`,
		`{"type":"web_search_call","id":"ws_1","status":"completed"}`:                                            `{"type":"web_search_call","id":"ws_1","status":"completed"}`,
	} {
		r, err := Parse([]byte(`{"model":"chat","input":[{"role":"user","content":"hi"},`+item+`]}`), "")
		if err != nil {
			t.Fatal(item, err)
		}
		var sent struct{ Input []json.RawMessage }
		if err := json.Unmarshal(r.Native(), &sent); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(sent.Input) > 1 {
			got = string(sent.Input[1])
		}
		if got != want {
			t.Errorf("%s was sent as %s, want %s", item, got, want)
		}
	}
}
