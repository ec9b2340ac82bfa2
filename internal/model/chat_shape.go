package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/quota"
)

// ChatShape is what a request in the shape of OpenAI's chat completions says about who can answer
// it, and how large it is.
type ChatShape struct {
	Model   string
	Answers int64 // at least 1
	Output  int64 // tokens that one answer may have; 0: not said
	// OnlyOpenAI is the path of a field that only servers with OpenAI's API take; "": all
	// providers can do what is asked.
	OnlyOpenAI string
	// MediaBytes is the length of the parts with pictures, recordings and files. They count
	// MediaTokens instead.
	MediaBytes, MediaTokens int64
}

// ReadChatShape reads a request, which must be valid JSON. It is fast: it runs while jobs are
// claimed. Texts are not decoded.
func ReadChatShape(body []byte) ChatShape {
	s := ChatShape{Answers: 1}
	older := int64(0)
	start := skipSpace(body, 0)
	if start >= len(body) || body[start] != '{' {
		return s
	}
	for m := range membersOf(body, start) {
		if m.is(body, "null") {
			continue
		}
		if m.key == "messages" {
			s.readMessages(body, m.at)
			continue
		}
		value := gjson.ParseBytes(body[m.at:m.end])
		switch m.key {
		case "model":
			s.Model = value.Str
		case "max_completion_tokens":
			s.Output = value.Int()
		case "max_tokens":
			older = value.Int()
		case "n":
			s.Answers = min(max(value.Int(), 1), maxClaimedAnswers)
		}
		if s.OnlyOpenAI == "" && !translated(m.key, value) {
			s.OnlyOpenAI = validText(m.key)
		}
	}
	s.Output = cmp.Or(s.Output, older)
	return s
}

// readMessages reads the list of messages at b[at].
func (s *ChatShape) readMessages(b []byte, at int) {
	if b[at] != '[' {
		return
	}
	i := 0
	for from := range elementsOf(b, at) {
		if b[from] == '{' {
			s.readMessage(i, b, from)
		}
		i++
	}
}

// MaxOutput is what all answers may have together, where one may have so much; 0: not said.
func (s ChatShape) MaxOutput(one int64) int64 {
	if one == 0 && s.Answers > 1 {
		one = quota.AssumedOutputTokens
	}
	return one * s.Answers
}

// translated reports whether every provider can do what a field of a request asks for, or may
// leave it out.
func translated(name string, v gjson.Result) bool {
	switch name {
	case "model", "max_tokens", "max_completion_tokens", "top_p", "response_format", "raw", "stream", "stream_options",
		"parallel_tool_calls", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention":
		return true
	case "temperature": // Anthropic's ends at 1
		return v.Num <= 1
	case "stop": // Anthropic wants more than white space
		if v.Type == gjson.String {
			return strings.TrimSpace(v.Str) != ""
		}
		blank := false
		v.ForEach(func(_, text gjson.Result) bool {
			blank = blank || strings.TrimSpace(text.Str) == ""
			return true
		})
		return !blank
	case "tools":
		return all(v, func(tool gjson.Result) bool { return tool.Get("type").Str == "function" })
	case "tool_choice":
		return v.Type == gjson.String || v.Get("type").Str == "function"
	case "reasoning_effort":
		_, ok := efforts[v.Str]
		return ok
	case "n":
		return v.Num == 1
	case "logprobs", "store":
		return v.Type == gjson.False
	case "top_logprobs", "presence_penalty", "frequency_penalty":
		return v.Num == 0
	case "logit_bias":
		return all(v, func(gjson.Result) bool { return false }) // it is empty
	case "service_tier":
		return v.Str == "auto" || v.Str == "default"
	case "modalities":
		return all(v, func(kind gjson.Result) bool { return kind.Str == "text" })
	}
	return false
}

// all reports whether each element or member is so.
func all(v gjson.Result, is func(gjson.Result) bool) bool {
	ok := true
	v.ForEach(func(_, element gjson.Result) bool {
		ok = is(element)
		return ok
	})
	return ok
}

func (s *ChatShape) readMessage(i int, b []byte, at int) {
	refuse := func(format string, args ...any) {
		if s.OnlyOpenAI == "" {
			s.OnlyOpenAI = fmt.Sprintf("messages[%d].", i) + fmt.Sprintf(format, args...)
		}
	}
	for m := range membersOf(b, at) {
		if m.is(b, "null") {
			continue
		}
		switch m.key {
		case "role":
			if m.is(b, `"function"`) {
				refuse("role")
			}
		case "content":
			if b[m.at] != '[' {
				continue
			}
			part := 0
			for from, end := range elementsOf(b, m.at) {
				s.readPart(gjson.ParseBytes(b[from:end]), func() { refuse("content[%d]", part) })
				part++
			}
		case "tool_call_id", "annotations":
		case "tool_calls":
			if !all(gjson.ParseBytes(b[m.at:m.end]), translatedCall) {
				refuse("tool_calls")
			}
		default:
			refuse("%s", validText(m.key))
		}
	}
}

// translatedCall reports whether a call of a tool is one of a function, with an object.
func translatedCall(call gjson.Result) bool {
	kind, arguments := call.Get("type").Str, call.Get("function.arguments").Str
	return (kind == "" || kind == "function") && (strings.TrimSpace(arguments) == "" || objectStart([]byte(arguments)) >= 0)
}

func (s *ChatShape) readPart(part gjson.Result, refuse func()) {
	kind := part.Get("type").Str
	switch kind {
	case "text":
		members := 0
		part.ForEach(func(_, _ gjson.Result) bool {
			members++
			return true
		})
		if members > 2 {
			refuse()
		}
		return
	case "image_url", "input_audio", "file":
		s.MediaBytes += int64(len(part.Raw))
		s.MediaTokens += mediaTokens
	}
	switch kind {
	case "image_url":
		if _, ok := readImage(part.Get("image_url.url").Str); !ok || part.Get("image_url.detail").Str == "low" {
			refuse()
		}
	case "file":
		if _, ok := readPDF(part.Get("file.file_data").Str); !ok {
			refuse()
		}
	default:
		refuse()
	}
}

// source is where the bytes of a picture or a document are: in base64, or at an address.
type source struct{ kind, media, data, url string }

// readImage reads the address of a picture that Anthropic takes.
func readImage(address string) (source, bool) {
	if strings.HasPrefix(address, "https://") {
		return source{kind: "url", url: address}, true
	}
	for _, media := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
		if data, ok := strings.CutPrefix(address, "data:"+media+";base64,"); ok {
			return source{kind: "base64", media: media, data: data}, data != ""
		}
	}
	return source{}, false
}

// readPDF reads a data URL of the one kind of file that Anthropic takes.
func readPDF(address string) (source, bool) {
	data, ok := strings.CutPrefix(address, "data:application/pdf;base64,")
	return source{kind: "base64", media: "application/pdf", data: data}, ok && data != ""
}

// efforts are Anthropic's words for the reasoning effort of OpenAI's API; "": it is left out.
var efforts = map[string]string{"none": "", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}

// WithMember returns an object with another value for its member.
func WithMember(object json.RawMessage, name, value string) json.RawMessage {
	var edits []splice
	for m := range membersOf(object, skipSpace(object, 0)) {
		if m.key == name {
			edits = append(edits, splice{m.at, m.end, value})
		}
	}
	return spliced(object, edits)
}
