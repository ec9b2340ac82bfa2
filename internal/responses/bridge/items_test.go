package bridge

import (
	"encoding/json"
	"testing"
	"time"
)

// Listed input items have the keys that both schemas of items require, whatever the client left
// out.
func TestInputItemsAreWhole(t *testing.T) {
	t.Parallel()
	r, err := Parse([]byte(`{"model":"m","input":[
		{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]},
		{"type":"reasoning","encrypted_content":"e"},
		{"role":"assistant","content":[{"type":"output_text","text":"t"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://example.com/a.png"}]}]}`), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"content":[{"detail":"auto","file_id":"file-1","image_url":null,"type":"input_image"}],"id":"msg_00000000000000000000000001i0000","role":"user","status":"completed","type":"message"}`,
		`{"encrypted_content":"e","id":"rs_00000000000000000000000001i0001","summary":[],"type":"reasoning"}`,
		`{"content":[{"annotations":[],"logprobs":[],"text":"t","type":"output_text"}],"id":"msg_00000000000000000000000001i0002","role":"assistant","status":"completed","type":"message"}`,
		`{"arguments":"{}","call_id":"c","id":"fc_00000000000000000000000001i0003","name":"f","status":"completed","type":"function_call"}`,
		`{"call_id":"c","id":"fco_00000000000000000000000001i0004","output":[{"detail":"auto","image_url":"https://example.com/a.png","type":"input_image"}],"status":"completed","type":"function_call_output"}`,
	}
	for i, item := range r.InputItems(testID) {
		if string(item) != want[i] {
			t.Errorf("item %d is\n%s\nand not\n%s", i, item, want[i])
		}
	}
}

// The settings of a response are whole, however little of them a provider or a client says.
func TestSettingsAreWhole(t *testing.T) {
	t.Parallel()
	const whole = `{"format":{"description":null,"name":"p","schema":{},"strict":false,"type":"json_schema"},"verbosity":"medium"}`
	r, err := Parse([]byte(`{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"p","schema":{}}}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		`{}`:               whole,
		`{"text":null}`:    whole,
		`{"text":{}}`:      whole,
		`{"text":"plain"}`: whole,
		`{"text":{"format":{"type":"text"},"verbosity":null,"more":1}}`: `{"format":{"type":"text"},"more":1,"verbosity":"medium"}`,
	} {
		o := overlaid(r.Base(testID, time.Unix(1, 0), StatusCompleted), objectOf(json.RawMessage(said)))
		if string(o["text"]) != want {
			t.Errorf("%s became %s", said, o["text"])
		}
	}
}
