package model

import (
	"bytes"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// chatHead is the part that every event of a stream repeats.
type chatHead struct {
	id          string
	created     int64
	model       string
	fingerprint string
}

// chatChunk is the relevant part of one event of a stream, or of a whole plain answer. These
// differ only in the name delta or message. Of several choices, the one with index 0 counts.
type chatChunk struct {
	chatHead
	chosen           bool // there is a choice
	more             bool // there is another choice, or more than a text
	content, refusal string
	finish           string
	usage            string // JSON; "": none
	failed           bool   // there is an error
}

// parseChunk parses a chunk. ok is false if data is not JSON of the expected shape. A stream has
// one chunk for each token, and reflection would cost half of a call.
func parseChunk(data []byte) (c chatChunk, ok bool) {
	if jsoncheck.Depth(data) > forebay.MaxJSONDepth || !gjson.ValidBytes(data) {
		return c, false
	}
	object := gjson.ParseBytes(data)
	m := members{ok: object.IsObject()}
	object.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "id":
			c.id = m.text(value)
		case "created":
			c.created = value.Int()
		case "model":
			c.model = m.text(value)
		case "system_fingerprint":
			c.fingerprint = m.text(value)
		case "choices":
			m.ok = m.ok && (value.IsArray() || value.Type == gjson.Null)
			value.ForEach(func(_, choice gjson.Result) bool { return c.addChoice(&m, choice) })
		case "usage":
			if value.Type != gjson.Null {
				c.usage = value.Raw
			}
		case "error":
			c.failed = value.Type != gjson.Null
		}
		return m.ok
	})
	return c, m.ok
}

func (c *chatChunk) addChoice(m *members, choice gjson.Result) bool {
	if choice.Get("index").Int() != 0 {
		c.more = true
		return true
	}
	c.chosen, m.ok = true, m.ok && choice.IsObject()
	choice.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "finish_reason":
			c.finish = m.text(value)
		case "logprobs":
			c.more = c.more || value.Type != gjson.Null
		case "delta", "message":
			m.ok = m.ok && (value.IsObject() || value.Type == gjson.Null)
			value.ForEach(func(key, value gjson.Result) bool {
				switch key.Str {
				case "content":
					c.content += m.text(value)
				case "refusal":
					c.refusal += m.text(value)
				case "role":
				default:
					c.more = c.more || value.Type != gjson.Null
				}
				return m.ok
			})
		}
		return m.ok
	})
	return m.ok
}

// members reads members of an object. ok becomes false at the first one with a wrong type.
type members struct{ ok bool }

// text reads a string, or null.
func (m *members) text(value gjson.Result) string {
	if value.Type != gjson.String && value.Type != gjson.Null {
		m.ok = false
	}
	return validText(value.Str)
}

// validText returns s with each byte that is not valid UTF-8 as U+FFFD.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	CachedTokens     int64 `json:"-"` // tokens of the prompt
	ReasoningTokens  int64 `json:"-"` // output that is not in the answer
}

// wholeOutput is an output with the reasoning that some servers leave out of it. They charge for
// it, and their total has it.
func wholeOutput(input, output, total int64) int64 {
	if input <= 0 || total <= input {
		return output
	}
	return max(output, total-input)
}

func (u chatUsage) tokens() forebay.TokenUsage {
	return forebay.TokenUsage{InputTokens: max(u.PromptTokens, 0), OutputTokens: max(u.CompletionTokens, 0)}
}

// parseUsage parses the usage that parseChunk found.
func parseUsage(usage string) chatUsage {
	u := chatUsage{PromptTokens: gjson.Get(usage, "prompt_tokens").Int(), CompletionTokens: gjson.Get(usage, "completion_tokens").Int()}
	said := u.CompletionTokens
	u.CompletionTokens = wholeOutput(u.PromptTokens, said, gjson.Get(usage, "total_tokens").Int())
	u.CachedTokens = within(gjson.Get(usage, "prompt_tokens_details.cached_tokens").Int(), u.PromptTokens)
	u.ReasoningTokens = max(u.CompletionTokens-said, gjson.Get(usage, "completion_tokens_details.reasoning_tokens").Int())
	return u
}

// textFrame is the JSON around the text in the events of one stream. Most events differ only in
// their text. An event with a known frame and a plain string inside needs no decoding.
type textFrame struct{ before, after []byte }

var contentKey = []byte(`"content":`)

// learn stores the frame of an event that contains only text.
func (f *textFrame) learn(data []byte, text string) {
	at := bytes.Index(data, contentKey)
	if at < 0 || bytes.LastIndex(data, contentKey) != at {
		return
	}
	start := at + len(contentKey)
	if literal := len(text) + 2; len(data) >= start+literal && data[start] == '"' && data[start+literal-1] == '"' && string(data[start+1:start+literal-1]) == text {
		f.before = append(f.before[:0], data[:start]...)
		f.after = append(f.after[:0], data[start+literal:]...)
	}
}

// text returns the text of an event with this frame: the bytes between its quotes, if they are
// plain.
func (f *textFrame) text(data []byte) (text []byte, ok bool) {
	if len(f.before) == 0 || len(data) < len(f.before)+len(f.after)+2 || !bytes.HasPrefix(data, f.before) || !bytes.HasSuffix(data, f.after) {
		return nil, false
	}
	literal := data[len(f.before) : len(data)-len(f.after)]
	if literal[0] != '"' || literal[len(literal)-1] != '"' {
		return nil, false
	}
	text = literal[1 : len(literal)-1]
	for _, c := range text {
		if c == '"' || c == '\\' || c < 0x20 {
			return nil, false
		}
	}
	return text, utf8.Valid(text)
}
