package modelsim

import (
	"fmt"
	"strconv"
	"strings"
)

// quoted writes a JSON string that holds the bytes of s, valid UTF-8 or not.
func quoted(s string) string {
	at := indexEscaped(s)
	if at < 0 {
		return `"` + s + `"`
	}
	b := append(make([]byte, 0, len(s)+16), '"')
	for ; at >= 0; at = indexEscaped(s) {
		b = append(b, s[:at]...)
		switch c := s[at]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
		s = s[at+1:]
	}
	return string(append(append(b, s...), '"'))
}

// indexEscaped is where the first byte of s is that a JSON string cannot hold as it is, or -1.
func indexEscaped(s string) int {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			return i
		}
	}
	return -1
}

// completion is the answer to a chat with all that its shapes hold.
type completion struct {
	answer
	api            api
	id             string // without the prefix of its shape
	created        int64
	model          string
	prompt, cached int // tokens
	choices        int
	streamUsage    bool   // a stream ends with the usage
	head           string // of the chunks of a stream, once one was made
}

const (
	safe         = `{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}`
	promptFilter = `"prompt_filter_results":[{"prompt_index":0,"content_filter_results":` + safe + `}]`
)

// filter is the content filter's results, which Azure adds to each choice.
func (c *completion) filter(results string) string {
	if c.api != azure {
		return ""
	}
	return `"content_filter_results":` + results + `,`
}

func (c *completion) usage(tokens int) string {
	if c.api == anthropic {
		return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d,"service_tier":"standard"}`, c.prompt-c.cached, c.cached, tokens)
	}
	output := tokens * c.choices
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`,
		c.prompt, output, c.prompt+output, c.cached)
}

// stopReason is Anthropic's name of what ended the answer.
func (c *completion) stopReason() string {
	switch {
	case c.finish == "length":
		return "max_tokens"
	case c.tool != "":
		return "tool_use"
	}
	return "end_turn"
}

// body is the whole answer.
func (c *completion) body() []byte {
	text := quoted(c.text)
	if c.api == anthropic {
		block := `{"type":"text","text":` + text + `}`
		if c.tool != "" {
			block = `{"type":"tool_use","id":` + c.toolID(0) + `,"name":` + quoted(c.tool) + `,"input":` + c.toolInput() + `}`
		}
		return []byte(`{"id":` + quoted("msg_"+c.id) + `,"type":"message","role":"assistant","model":` + quoted(c.model) +
			`,"content":[` + block + `],"stop_reason":"` + c.stopReason() + `","stop_sequence":null,"usage":` + c.usage(c.tokens) + `}`)
	}
	var b strings.Builder
	b.WriteString(`{"id":` + quoted("chatcmpl-"+c.id) + `,"object":"chat.completion","created":` + strconv.FormatInt(c.created, 10) +
		`,"model":` + quoted(c.model) + `,`)
	if c.api == azure {
		b.WriteString(promptFilter + `,`)
	}
	b.WriteString(`"choices":[`)
	for i := range c.choices {
		if i > 0 {
			b.WriteByte(',')
		}
		content := text
		if c.tool != "" {
			content = `null,"tool_calls":[{"id":` + c.toolID(i) + `,"type":"function","function":{"name":` + quoted(c.tool) + `,"arguments":` + text + `}}]`
		}
		b.WriteString(`{"index":` + strconv.Itoa(i) + `,` + c.filter(safe) + `"message":{"role":"assistant","content":` + content +
			`,"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"` + c.finish + `"}`)
	}
	b.WriteString(`],"usage":` + c.usage(c.tokens) + `,"service_tier":"default","system_fingerprint":"fp_sim"}`)
	return []byte(b.String())
}

// event is one server-sent event of Anthropic. They have names.
func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// chunk is one server-sent event of OpenAI. rest is its choices and what follows them.
func (c *completion) chunk(rest string) string {
	if c.head == "" {
		c.head = `data: {"id":"chatcmpl-` + c.id + `","object":"chat.completion.chunk","created":` + strconv.FormatInt(c.created, 10) +
			`,"model":` + quoted(c.model) + `,"service_tier":"default","system_fingerprint":"fp_sim",`
	}
	return c.head + rest + "}\n\n"
}

// deltas is one chunk for each choice.
func (c *completion) deltas(delta func(choice int) string, finish, results string) string {
	tail := `,"logprobs":null,"finish_reason":` + finish + `}]`
	if c.streamUsage {
		tail += `,"usage":null`
	}
	var all string
	for i := range c.choices {
		all += c.chunk(`"choices":[{"index":` + strconv.Itoa(i) + `,` + c.filter(results) + `"delta":` + delta(i) + tail)
	}
	return all
}

// firstEvents are the events before the first text.
func (c *completion) firstEvents() string {
	if c.api == anthropic {
		start := `{"type":"message_start","message":{"id":` + quoted("msg_"+c.id) + `,"type":"message","role":"assistant","model":` + quoted(c.model) +
			`,"content":[],"stop_reason":null,"stop_sequence":null,"usage":` + c.usage(1) + `}}`
		block := `{"type":"text","text":""}`
		if c.tool != "" {
			block = `{"type":"tool_use","id":` + c.toolID(0) + `,"name":` + quoted(c.tool) + `,"input":{}}`
		}
		return event("message_start", start) +
			event("content_block_start", `{"type":"content_block_start","index":0,"content_block":`+block+`}`) +
			event("ping", `{"type":"ping"}`)
	}
	first := ""
	if c.api == azure {
		first = `data: {"choices":[],"created":0,"id":"","model":"","object":"",` + promptFilter + "}\n\n"
	}
	return first + c.deltas(func(choice int) string {
		if c.tool == "" {
			return `{"role":"assistant","content":"","refusal":null}`
		}
		return `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":` + c.toolID(choice) + `,"type":"function","function":{"name":` + quoted(c.tool) + `,"arguments":""}}],"refusal":null}`
	}, "null", "{}")
}

// same is a delta that all choices have.
func same(delta string) func(int) string { return func(int) string { return delta } }

func (c *completion) textEvents(piece string) string {
	if c.api == anthropic {
		delta := `{"type":"text_delta","text":` + quoted(piece) + `}`
		if c.tool != "" {
			delta = `{"type":"input_json_delta","partial_json":` + quoted(piece) + `}`
		}
		return event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":`+delta+`}`)
	}
	delta := `{"content":` + quoted(piece) + `}`
	if c.tool != "" {
		delta = `{"tool_calls":[{"index":0,"function":{"arguments":` + quoted(piece) + `}}]}`
	}
	return c.deltas(same(delta), "null", safe)
}

func (c *completion) lastEvents() string {
	if c.api == anthropic {
		return event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
			event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"%s","stop_sequence":null},"usage":{"output_tokens":%d}}`, c.stopReason(), c.tokens)) +
			event("message_stop", `{"type":"message_stop"}`)
	}
	last := c.deltas(same(`{}`), `"`+c.finish+`"`, "{}")
	if c.streamUsage {
		last += c.chunk(`"choices":[],"usage":` + c.usage(c.tokens))
	}
	return last + "data: [DONE]\n\n"
}
