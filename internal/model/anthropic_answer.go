package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

type messagesUsage struct {
	InputTokens         int64 `json:"input_tokens"`
	CacheCreationTokens int64 `json:"cache_creation_input_tokens"`
	CacheReadTokens     int64 `json:"cache_read_input_tokens"`
	OutputTokens        int64 `json:"output_tokens"`
}

// merge adds what a later event reports. Its counts are cumulative, and 0 means not reported.
func (u *messagesUsage) merge(o messagesUsage) {
	u.InputTokens = max(u.InputTokens, o.InputTokens)
	u.CacheCreationTokens = max(u.CacheCreationTokens, o.CacheCreationTokens)
	u.CacheReadTokens = max(u.CacheReadTokens, o.CacheReadTokens)
	u.OutputTokens = max(u.OutputTokens, o.OutputTokens)
}

// messagesObject is a whole message, in a plain answer or in message_start.
type messagesObject struct {
	ID         string            `json:"id"`
	Model      string            `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      messagesUsage     `json:"usage"`
}

// messagesEvent is one event of a stream, of any type.
type messagesEvent struct {
	Type    string         `json:"type"`
	Message messagesObject `json:"message"`
	Index   int            `json:"index"`
	// In content_block_delta, Delta has a part of the block. In message_delta it has a stop reason.
	Delta struct {
		Text        string          `json:"text"`
		PartialJSON string          `json:"partial_json"`
		Thinking    string          `json:"thinking"`
		Signature   string          `json:"signature"`
		Citation    json.RawMessage `json:"citation"`
		StopReason  string          `json:"stop_reason"`
	} `json:"delta"`
	ContentBlock json.RawMessage `json:"content_block"`
	Usage        messagesUsage   `json:"usage"`
}

// answerBlock is a part of an answer.
type answerBlock struct {
	begin     json.RawMessage // as it began
	kind      string
	text      strings.Builder // of a text
	input     strings.Builder // of a tool, as JSON
	thinking  strings.Builder
	signature string
	citations []json.RawMessage
}

// messagesAnswer collects one answer.
type messagesAnswer struct {
	endpoint *endpoint
	texts    func() []string
	forced   string // the tool whose input is the answer; "": none
	onText   func(all string)

	text   strings.Builder
	blocks []*answerBlock
	size   int64 // bytes of the blocks
	// answered says that the input of the forced tool is the text.
	answered bool
	id       string
	model    string
	stop     string
	usage    messagesUsage
	raw      json.RawMessage
}

func (c *messagesAnswer) read(a answer) error {
	if kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); kind == "application/json" {
		return c.readPlain(a.body)
	}
	stream := c.endpoint.events(a.body)
	defer stream.free()
	for {
		_, data, err := stream.next()
		switch {
		case err == nil:
		case c.stop != "": // everything needed has arrived
			return c.judge()
		case errors.Is(err, io.EOF) && c.model != "":
			return streamCut()
		case errors.Is(err, io.EOF):
			return malformed("the stream holds no message")
		default:
			return err
		}
		before := c.text.Len()
		done, err := c.add(data)
		if err != nil {
			return err
		}
		a.began(int(c.size))
		if c.onText != nil && c.forced == "" && c.text.Len() > before {
			c.onText(c.text.String())
		}
		if done {
			a.drain()
			return c.judge()
		}
	}
}

func (c *messagesAnswer) readPlain(r io.Reader) error {
	b, err := c.endpoint.readAll(r)
	if err != nil {
		return err
	}
	var m messagesObject
	if json.Unmarshal(b, &m) != nil {
		return malformed("the answer is not the JSON it should be")
	}
	if m.StopReason == "" {
		if f := parseFailure(b); f.kind != "" && f.message != "" {
			return c.endpoint.taskError(f, c.texts)
		}
		return malformed("the answer holds no message")
	}
	c.begin(m)
	c.stop, c.raw = m.StopReason, b
	if int64(len(c.blocks)) > maxBlocks {
		return c.endpoint.tooLarge()
	}
	return c.judge()
}

// maxBlocks is how many parts an answer may have.
const maxBlocks = 1 << 12

func (c *messagesAnswer) begin(m messagesObject) {
	c.id, c.model = m.ID, m.Model
	for _, block := range m.Content {
		c.beginBlock(block)
	}
	c.usage.merge(m.Usage)
}

// beginBlock adds a part of the answer. A streamed one is empty at first.
func (c *messagesAnswer) beginBlock(raw json.RawMessage) {
	block := gjson.ParseBytes(raw)
	b := &answerBlock{begin: raw, kind: block.Get("type").Str}
	c.blocks = append(c.blocks, b)
	c.size += int64(len(raw))
	switch b.kind {
	case "tool_use":
		if input := block.Get("input"); input.IsObject() && input.Raw != "{}" {
			b.input.WriteString(input.Raw)
		}
	case "thinking":
		b.thinking.WriteString(block.Get("thinking").Str)
		b.signature = block.Get("signature").Str
	default:
		c.addText(b, validText(block.Get("text").Str))
	}
}

func (c *messagesAnswer) addText(b *answerBlock, text string) {
	b.text.WriteString(text)
	c.text.WriteString(text)
}

// addDelta adds what an event has of a block.
func (c *messagesAnswer) addDelta(e *messagesEvent) bool {
	if len(c.blocks) == 0 && e.Index == 0 { // some servers begin no block
		c.beginBlock(json.RawMessage(`{"type":"text","text":""}`))
	}
	if e.Index < 0 || e.Index >= len(c.blocks) {
		return false
	}
	b := c.blocks[e.Index]
	c.addText(b, e.Delta.Text)
	b.input.WriteString(e.Delta.PartialJSON)
	b.thinking.WriteString(e.Delta.Thinking)
	if e.Delta.Signature != "" {
		b.signature = e.Delta.Signature
	}
	if e.Delta.Citation != nil {
		b.citations = append(b.citations, e.Delta.Citation)
	}
	c.size += int64(len(e.Delta.Text) + len(e.Delta.PartialJSON) + len(e.Delta.Thinking) + len(e.Delta.Signature) + len(e.Delta.Citation))
	return true
}

// add processes the data of one event. done reports message_stop.
func (c *messagesAnswer) add(data []byte) (done bool, err error) {
	var e messagesEvent
	if len(bytes.TrimSpace(data)) == 0 {
		return false, nil
	}
	if json.Unmarshal(data, &e) != nil {
		return false, malformed("an event of the stream is not the JSON it should be")
	}
	switch e.Type {
	case "message_start":
		c.begin(e.Message)
	case "content_block_start":
		if len(c.blocks) >= maxBlocks {
			return false, c.endpoint.tooLarge()
		}
		c.beginBlock(e.ContentBlock)
	case "content_block_delta":
		if !c.addDelta(&e) {
			return false, malformed("an event of the stream is about a block that has not begun")
		}
	case "message_delta":
		if e.Delta.StopReason != "" {
			c.stop = e.Delta.StopReason
		}
		c.usage.merge(e.Usage)
	case "message_stop":
		if c.stop == "" {
			return false, streamCut()
		}
		return true, nil
	case "error":
		return false, c.endpoint.streamError(data, c.texts)
	}
	if c.size > c.endpoint.maxOutput {
		return false, c.endpoint.tooLarge()
	}
	return false, nil
}

func (c *messagesAnswer) judge() error {
	if c.stop == "refusal" {
		return forebay.Permanent(CodeContentFilter, "the provider's safety filter stopped the answer")
	}
	return nil
}

func (c *messagesAnswer) finishReason() string {
	switch c.stop {
	case "end_turn", "stop_sequence", "pause_turn":
		return "stop"
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		if c.answered {
			return "stop"
		}
		return "tool_calls"
	case "refusal":
		return "content_filter"
	}
	return c.stop
}

func (c *messagesAnswer) response(ctx context.Context, req ChatRequest, ok bool) ChatResponse {
	u, choices := c.usage, c.choices()
	resp := ChatResponse{Text: c.text.String(), FinishReason: c.finishReason(), Model: c.model,
		Usage: forebay.TokenUsage{
			InputTokens:  max(u.InputTokens+u.CacheCreationTokens+u.CacheReadTokens, 0),
			OutputTokens: max(u.OutputTokens, 0),
		}}
	resp.CachedTokens = within(u.CacheReadTokens, resp.Usage.InputTokens)
	resp.CacheWrites = within(u.CacheCreationTokens, resp.Usage.InputTokens)
	if !ok {
		return resp
	}
	if u == (messagesUsage{}) {
		resp.Usage = forebay.TokenUsage{InputTokens: req.promptTokens(ctx), OutputTokens: textTokens(ctx, resp.Text)}
	}
	resp.Choices = choices
	if req.WantRaw {
		if resp.Raw = c.raw; resp.Raw == nil {
			resp.Raw, _ = forebay.EncodeJSON(map[string]any{
				"id": c.id, "type": "message", "role": RoleAssistant, "model": c.model, "stop_reason": c.stop,
				"content": c.content(), "usage": u,
			})
		}
	}
	return resp
}

// choices returns the answer in the shape of OpenAI's API, if it calls tools. The input of the
// forced tool is the text of the answer.
func (c *messagesAnswer) choices() []Choice {
	var calls []map[string]any
	for _, b := range c.blocks {
		if b.kind != "tool_use" {
			continue
		}
		begin := gjson.ParseBytes(b.begin)
		arguments := b.input.String()
		if arguments == "" {
			arguments = "{}"
		}
		name := begin.Get("name").Str
		if c.forced != "" && name == c.forced {
			c.text.Reset()
			c.text.WriteString(arguments)
			c.answered = true
			return nil
		}
		calls = append(calls, map[string]any{"id": begin.Get("id").Str, "type": "function", "function": map[string]string{"name": name, "arguments": arguments}})
	}
	if calls == nil {
		return nil
	}
	encoded, err := forebay.EncodeJSON(calls)
	if err != nil { // never: they are texts
		return nil
	}
	return []Choice{{Text: c.text.String(), FinishReason: c.finishReason(), Message: []Member{{"tool_calls", encoded}}}}
}

// content returns the blocks as an answer in one piece would have them.
func (c *messagesAnswer) content() []json.RawMessage {
	content := make([]json.RawMessage, len(c.blocks))
	for i, b := range c.blocks {
		content[i] = b.whole()
	}
	return content
}

func (b *answerBlock) whole() json.RawMessage {
	var block map[string]json.RawMessage
	if json.Unmarshal(b.begin, &block) != nil || block == nil {
		block = map[string]json.RawMessage{}
	}
	set := func(name, text string) {
		if text != "" {
			block[name] = appendText(nil, text)
		}
	}
	set("text", b.text.String())
	set("thinking", b.thinking.String())
	set("signature", b.signature)
	if input := b.input.String(); input != "" {
		if objectStart([]byte(input)) >= 0 {
			block["input"] = json.RawMessage(input)
		} else { // it was cut off
			block["input"] = appendText(nil, input)
		}
	}
	if b.citations != nil {
		block["citations"], _ = forebay.EncodeJSON(b.citations)
	}
	whole, err := forebay.EncodeJSON(block)
	if err != nil { // never: its members were parsed
		return b.begin
	}
	return whole
}
