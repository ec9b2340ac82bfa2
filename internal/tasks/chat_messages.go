package tasks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay/internal/model"
)

// maxToolCalls is how many calls one message may hold.
const maxToolCalls = 1024

// parseMessage reads one message. What is more than a role and a text is kept as it is.
func parseMessage(path string, raw json.RawMessage) (model.Message, error) {
	in := readObject(path, raw)
	if in.err != nil {
		return model.Message{}, in.err
	}
	var m model.Message
	role := in.needText("role")
	switch role {
	case "system", "developer": // the name in newer models of OpenAI
		m.Role = model.RoleSystem
	case "user", "assistant", "tool", "function":
		m.Role = model.Role(role)
	default:
		in.fail("role", "must be system, developer, user, assistant, tool or function")
	}
	more := m.Role == "function"
	for name := range in.values {
		more = more || name != "role" && name != "content" && in.present(name)
	}
	in.text("name")
	switch m.Role {
	case model.RoleAssistant:
		checkToolCalls(in)
		in.text("refusal")
	case model.RoleTool:
		more = true
		in.needText("tool_call_id")
	}
	parts := parseContent(in, &m)
	if !more && !parts {
		return m, in.err
	}
	if m.Object = raw; role == "developer" {
		m.Object = model.WithMember(raw, "role", `"system"`)
	}
	return m, in.err
}

// answers are the fields of an assistant's message that stand for its content.
var answers = []string{"tool_calls", "function_call", "refusal", "audio"}

// parseContent reads a message's texts. It reports whether there is more than texts.
func parseContent(in *object, m *model.Message) (more bool) {
	raw, ok := in.has("content")
	result := m.Role == model.RoleTool || m.Role == "function"
	optional := m.Role == model.RoleAssistant && slices.ContainsFunc(answers, in.present)
	switch {
	case !ok && optional:
		return true
	case kindOf(raw) == "a list":
	case result && ok, optional: // a tool may have nothing to say
		m.Content = in.text("content")
		return false
	default:
		m.Content = in.needText("content")
		return false
	}
	var b strings.Builder
	for i, raw := range in.list("content", 1, maxMessages) {
		if in.err != nil {
			return more
		}
		part := readObject(fmt.Sprintf("%s.content[%d]", in.path, i), raw)
		switch kind := part.needText("type"); kind {
		case "text":
			if result {
				b.WriteString(part.text("text"))
			} else {
				b.WriteString(part.needText("text"))
			}
			more = more || len(part.values) > 2
		case "image_url":
			more = true
			image := readObject(part.path+".image_url", rawOf(part, "image_url"))
			image.needText("url")
			image.text("detail")
			part.adopt(image)
		case "input_audio", "file":
			more = true
			if part.err == nil {
				part.adopt(readObject(part.path+"."+kind, rawOf(part, kind)))
			}
		default: // the provider knows
			more = true
		}
		in.adopt(part)
	}
	m.Content = b.String()
	return more
}

func checkToolCalls(in *object) {
	for i, raw := range in.list("tool_calls", 1, maxToolCalls) {
		if in.err != nil {
			return
		}
		call := readObject(fmt.Sprintf("%s.tool_calls[%d]", in.path, i), raw)
		call.needText("id")
		if kind := call.text("type"); kind == "" || kind == "function" {
			called := readObject(call.path+".function", rawOf(call, "function"))
			called.needText("name")
			called.text("arguments")
			call.adopt(called)
		}
		in.adopt(call)
	}
}
