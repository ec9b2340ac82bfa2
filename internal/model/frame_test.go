package model

import (
	"encoding/json"
	"strings"
	"testing"
)

// An event of which only the text differs is read without decoding; it must come to the same.
func FuzzTextFrame(f *testing.F) {
	f.Add("Hello", `{"id":"x","choices":[{"index":0,"delta":{"content":" there"},"finish_reason":null}]}`)
	f.Add("a", `{"id":"x","choices":[{"index":0,"delta":{"content":"say \"hi\""},"finish_reason":null}]}`)
	f.Add("a", `{"id":"x","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`)
	f.Add("a", `{"id":"x","choices":[{"index":0,"delta":{"content":"b","refusal":"c"},"finish_reason":null}]}`)
	f.Add("a", `{"id":"x","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]`)
	f.Add("\u2028\\", "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"},\"finish_reason\":null}]}")
	f.Add(`","content":"`, `{"id":"x","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		literal, err := json.Marshal(first)
		if err != nil {
			t.Skip()
		}
		opening := []byte(`{"id":"x","choices":[{"index":0,"delta":{"content":` + string(literal) + `},"finish_reason":null}]}`)
		read := func(framed bool) (string, bool, string) {
			c := chatAnswer{endpoint: &endpoint{maxOutput: 1 << 20}, texts: func() []string { return nil }}
			var failed error
			for _, event := range [][]byte{opening, []byte(second), []byte(second), opening} {
				if !framed {
					c.frame = textFrame{}
				}
				if _, err := c.add(event); err != nil && failed == nil {
					failed = err
				}
			}
			return c.text.String(), failed != nil, c.finish
		}
		text, failed, finish := read(true)
		plainText, plainFailed, plainFinish := read(false)
		if text != plainText || failed != plainFailed || finish != plainFinish {
			t.Errorf("%q then %q: %q %v %q, decoded %q %v %q", first, second, text, failed, finish, plainText, plainFailed, plainFinish)
		}
	})
}

func TestFrameSavesDecoding(t *testing.T) {
	c := chatAnswer{endpoint: &endpoint{maxOutput: 1 << 20}}
	for _, word := range strings.Fields("water finds its own level") {
		data := []byte(`{"id":"x","choices":[{"index":0,"delta":{"content":"` + word + ` "},"finish_reason":null}]}`)
		if _, err := c.add(data); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.frame.text(data); !ok {
			t.Errorf("%s has no frame", data)
		}
	}
	if c.text.String() != "water finds its own level " {
		t.Errorf("read %q", c.text.String())
	}
}
