package model

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// Bounds on the indexes in a stream. OpenAI's API has at most 128 choices and 128 tool calls.
const (
	maxChoiceIndex = 1 << 10
	maxItemIndex   = 1 << 12
	// maxMerged is how many values one answer may consist of.
	maxMerged = 1 << 16
)

// merged is a JSON value that arrives in parts. Strings are joined, members of objects are merged,
// and so are elements of lists that have the same "index". Other elements are appended, and
// other values replaced. This is how OpenAI's clients put streams together.
type merged struct {
	kind byte // '{', '[', '"' or 'l' for another literal; 0: nothing has arrived
	// text is that of a string or a literal. Of a list it is the elements without an index, as JSON.
	text    strings.Builder
	names   []string
	members map[string]*merged
	items   []*merged // with an index, as they came
	indexed map[int64]*merged
}

// merger counts the values of an answer.
type merger struct{ values int }

// add merges a part. It is false if the answer exceeds a bound.
func (g *merger) add(m *merged, part gjson.Result) bool {
	switch {
	case part.Type == gjson.Null:
	case part.Type == gjson.String:
		m.become('"')
		m.text.WriteString(validText(part.Str))
	case part.IsObject():
		m.become('{')
		ok := true
		part.ForEach(func(key, value gjson.Result) bool {
			ok = g.addMember(m, validText(key.Str), value)
			return ok
		})
		return ok
	case part.IsArray():
		m.become('[')
		ok := true
		part.ForEach(func(_, item gjson.Result) bool {
			ok = g.addItem(m, item)
			return ok
		})
		return ok
	default:
		*m = merged{kind: 'l'}
		m.text.WriteString(part.Raw)
	}
	return true
}

// become sets the kind. A value that changes its kind begins anew.
func (m *merged) become(kind byte) {
	if m.kind != kind {
		*m = merged{kind: kind}
	}
}

// whole are members whose text comes in one piece, which some servers repeat.
var whole = map[string]bool{"id": true, "type": true, "role": true, "name": true}

func (g *merger) addMember(m *merged, name string, value gjson.Result) bool {
	if m.members == nil {
		m.members = map[string]*merged{}
	}
	member := m.members[name]
	if member == nil {
		if g.values++; g.values > maxMerged {
			return false
		}
		member = &merged{}
		m.members[name] = member
		m.names = append(m.names, name)
	}
	if whole[name] && value.Type == gjson.String {
		if value.Str == "" && member.kind != 0 {
			return true
		}
		*member = merged{}
	}
	return g.add(member, value)
}

func (g *merger) addItem(m *merged, item gjson.Result) bool {
	var index gjson.Result
	if item.IsObject() {
		index = item.Get("index")
	}
	if index.Type != gjson.Number {
		if m.text.Len() > 0 {
			m.text.WriteByte(',')
		}
		m.text.WriteString(validText(item.Raw))
		return true
	}
	at := index.Int()
	if at < 0 || at > maxItemIndex {
		return false
	}
	if m.indexed == nil {
		m.indexed = map[int64]*merged{}
	}
	if m.indexed[at] == nil || m.indexed[at].ends(item) {
		if g.values++; g.values > maxMerged {
			return false
		}
		m.indexed[at] = &merged{}
		m.items = append(m.items, m.indexed[at])
	}
	return g.add(m.indexed[at], item)
}

// ends reports whether a piece with the index of this call of a tool begins another one. Some
// servers give all calls the same index, each whole at first. Others give each piece its own id.
func (m *merged) ends(piece gjson.Result) bool {
	id, function := m.members["id"], m.members["function"]
	if id == nil || function == nil || function.members["arguments"] == nil || piece.Get("function.name").Str == "" {
		return false
	}
	other := piece.Get("id").Str
	return other != "" && other != id.text.String() && objectStart([]byte(function.members["arguments"].text.String())) >= 0
}

// appendJSON appends the value.
func (m *merged) appendJSON(b []byte) []byte {
	switch m.kind {
	case '"':
		return appendText(b, m.text.String())
	case '{':
		b = append(b, '{')
		for i, name := range m.names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, name), ':')
			b = m.members[name].appendJSON(b)
		}
		return append(b, '}')
	case '[':
		b = append(append(b, '['), m.text.String()...)
		for i, item := range m.items {
			if i > 0 || m.text.Len() > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	case 'l':
		return append(b, m.text.String()...)
	}
	return append(b, "null"...)
}

// dropIndexes removes the member index from the elements of a list.
func (m *merged) dropIndexes() {
	for _, item := range m.items {
		delete(item.members, "index")
		item.names = slices.DeleteFunc(item.names, func(name string) bool { return name == "index" })
	}
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	quoted, err := forebay.EncodeJSON(text)
	if err != nil { // never: it is a string
		return strconv.AppendQuote(b, "")
	}
	return append(b, quoted...)
}

// answerChoice is one answer of a stream, besides the text and refusal of the first, which
// [chatAnswer] collects itself.
type answerChoice struct {
	message  merged // its members
	logProbs merged
	finish   string
}

// addMore reads what [parseChunk] leaves out: the choices after the first, and of each all that
// is no text. data is valid.
func (c *chatAnswer) addMore(data []byte) error {
	c.moreBytes += int64(len(data))
	ok := true
	gjson.GetBytes(data, "choices").ForEach(func(_, choice gjson.Result) bool {
		index := choice.Get("index").Int()
		if ok = choice.IsObject() && index >= 0 && index < maxChoiceIndex; !ok {
			return false
		}
		if c.more == nil {
			c.more = map[int64]*answerChoice{}
		}
		to := c.more[index]
		if to == nil {
			to = &answerChoice{}
			c.more[index] = to
		}
		if reason := choice.Get("finish_reason").Str; reason != "" {
			to.finish = validText(reason)
		}
		if ok = c.merger.add(&to.logProbs, choice.Get("logprobs")); !ok {
			return false
		}
		message := choice.Get("delta")
		if !message.Exists() {
			message = choice.Get("message")
		}
		message.ForEach(func(key, value gjson.Result) bool {
			if index == 0 && (key.Str == "content" || key.Str == "refusal") {
				return true
			}
			ok = key.Str == "role" || c.merger.addMember(&to.message, validText(key.Str), value)
			return ok
		})
		return ok
	})
	if !ok {
		return malformed("the answer is not the JSON it should be")
	}
	return nil
}

// choices returns the answers, if there is more than one text.
func (c *chatAnswer) choices() []Choice {
	if len(c.more) == 0 && c.refusal.Len() == 0 {
		return nil
	}
	first := Choice{Text: c.text.String(), Refusal: c.refusal.String(), FinishReason: c.finish}
	choices := []Choice{first}
	for index, from := range c.more {
		if index != 0 {
			choices = append(choices, Choice{Index: int(index), Text: from.take("content"), Refusal: from.take("refusal"), FinishReason: finishReason(from.finish)})
		}
	}
	slices.SortFunc(choices, func(a, b Choice) int { return a.Index - b.Index })
	for i := range choices {
		from := c.more[int64(choices[i].Index)]
		if from == nil {
			continue
		}
		if from.logProbs.kind != 0 {
			choices[i].LogProbs = from.logProbs.appendJSON(nil)
		}
		for _, name := range from.message.names {
			member := from.message.members[name]
			if member.empty() {
				continue
			}
			member.dropIndexes()
			choices[i].Message = append(choices[i].Message, Member{name, member.appendJSON(nil)})
		}
	}
	return choices
}

// take removes a text from the message.
func (a *answerChoice) take(name string) string {
	member := a.message.members[name]
	if member == nil {
		return ""
	}
	text := member.text.String()
	*member = merged{}
	return text
}

// empty reports whether the message has nothing but what [chatAnswer] collects. It may be nil.
func (a *answerChoice) empty() bool {
	if a == nil {
		return true
	}
	for _, member := range a.message.members {
		if !member.empty() {
			return false
		}
	}
	return true
}

// empty reports whether a value is null or an empty list.
func (m *merged) empty() bool {
	return m.kind == 0 || m.kind == '[' && m.text.Len() == 0 && len(m.items) == 0
}

// refused reports whether the message is a refusal.
func (a *answerChoice) refused() bool {
	refusal, content := a.message.members["refusal"], a.message.members["content"]
	return refusal != nil && refusal.text.Len() > 0 && (content == nil || content.text.Len() == 0)
}

// bytes returns the length of all texts in a value.
func (m *merged) bytes() int64 {
	total := int64(m.text.Len())
	for _, member := range m.members {
		total += member.bytes()
	}
	for _, item := range m.items {
		total += item.bytes()
	}
	return total
}
