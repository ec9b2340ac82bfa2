package model

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

func (u chatUsage) tokens() forebay.TokenUsage {
	return forebay.TokenUsage{InputTokens: max(u.PromptTokens, 0), OutputTokens: max(u.CompletionTokens, 0)}
}

// chatText is the part of a message (in a plain answer) or delta (in a stream) that matters here.
type chatText struct {
	Content string `json:"content"`
	Refusal string `json:"refusal"`
}

// chatChunk is one event of a stream, or a whole plain answer: they differ only in delta and message.
type chatChunk struct {
	chatHead
	Choices []chatChoice    `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

// chatHead is what every event repeats.
type chatHead struct {
	ID                string `json:"id"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
}

type chatChoice struct {
	Index        int      `json:"index"`
	Delta        chatText `json:"delta"`
	Message      chatText `json:"message"`
	FinishReason string   `json:"finish_reason"`
}

// chatAnswer collects one answer.
type chatAnswer struct {
	endpoint *endpoint
	texts    func() []string
	wantRaw  bool

	text, refusal strings.Builder
	chosen        bool // a choice was seen
	finish        string
	head          chatHead
	usage         json.RawMessage
	raw           json.RawMessage

	space [1]chatChoice // decoded into again and again
	frame textFrame
}

// textFrame is what stands around the text in the events of one stream. Most differ in their text
// alone: one that has the same frame as an event that was decoded, and a plain string between, needs
// no decoding.
type textFrame struct{ before, after []byte }

var contentKey = []byte(`"content":`)

// learn remembers the frame of an event that says nothing but text.
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

// text returns the text of an event with the frame: the bytes between its quotes, if they are plain.
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

// read reads an answer of either form: some compatible servers answer a request for a stream with
// one plain object.
func (c *chatAnswer) read(a answer) error {
	if kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); kind != "text/event-stream" {
		r := bufio.NewReader(&capped{a.body, wireFactor * c.endpoint.maxOutput})
		first, err := firstByte(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if first != ':' && first != 'd' && first != 'e' && first != 'i' && first != 'r' { // no field of an event
			return c.readPlain(r)
		}
		a.body = r
	}
	return c.readStream(a)
}

// firstByte peeks at the first byte that is not white space.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, r.UnreadByte()
		}
	}
}

func (c *chatAnswer) readPlain(r io.Reader) error {
	b, err := c.endpoint.readAll(r)
	if err != nil {
		return err
	}
	if _, err := c.add(b); err != nil {
		return err
	}
	if !c.chosen {
		return malformed("the answer holds no completion")
	}
	if c.finish == "" {
		c.finish = "stop"
	}
	if c.wantRaw {
		c.raw = b
	}
	return c.judge()
}

func (c *chatAnswer) readStream(a answer) error {
	stream := c.endpoint.events(a.body)
	defer stream.free()
	for {
		_, data, err := stream.next()
		if err != nil {
			if c.finish != "" { // all that matters was said
				break
			}
			if errors.Is(err, io.EOF) && c.chosen {
				return streamCut()
			}
			if errors.Is(err, io.EOF) {
				return malformed("the stream holds no completion")
			}
			return err
		}
		done, err := c.add(data)
		if err != nil {
			return err
		}
		if done {
			a.drain()
			break
		}
	}
	if !c.chosen {
		return malformed("the stream holds no completion")
	}
	if c.finish == "" { // said [DONE] and no reason
		c.finish = "stop"
	}
	return c.judge()
}

// add takes the data of one event; done is [DONE].
func (c *chatAnswer) add(data []byte) (done bool, err error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	if text, ok := c.frame.text(data); ok {
		c.text.Write(text)
		if int64(c.text.Len()+c.refusal.Len()) > c.endpoint.maxOutput {
			return false, c.endpoint.tooLarge()
		}
		return false, nil
	}
	c.space[0] = chatChoice{}
	chunk := chatChunk{Choices: c.space[:0]}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return false, malformed("the answer is not the JSON it should be")
	}
	if present(chunk.Error) {
		return false, c.endpoint.streamError(data, c.texts)
	}
	if c.head.Model == "" {
		c.head = chunk.chatHead
	}
	if present(chunk.Usage) {
		c.usage = chunk.Usage
	}
	if len(chunk.Choices) == 1 && chunk.Choices[0] == (chatChoice{Delta: chatText{Content: chunk.Choices[0].Delta.Content}}) &&
		chunk.Choices[0].Delta.Content != "" && !present(chunk.Usage) {
		c.frame.learn(data, chunk.Choices[0].Delta.Content)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		c.chosen = true
		c.text.WriteString(choice.Delta.Content)
		c.text.WriteString(choice.Message.Content)
		c.refusal.WriteString(choice.Delta.Refusal)
		c.refusal.WriteString(choice.Message.Refusal)
		if choice.FinishReason != "" {
			c.finish = choice.FinishReason
		}
	}
	if int64(c.text.Len()+c.refusal.Len()) > c.endpoint.maxOutput {
		return false, c.endpoint.tooLarge()
	}
	return false, nil
}

// judge turns endings that are failures into errors.
func (c *chatAnswer) judge() error {
	switch {
	case c.finish == "content_filter":
		return forebay.Permanent(CodeContentFilter, "the provider's content filter stopped the answer")
	case c.finish == "error":
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeServerError, Message: "the provider broke the answer off"}
	case c.refusal.Len() > 0 && c.text.Len() == 0:
		return forebay.Permanent(CodeRefused, "the model declined to answer")
	case c.finish == "function_call":
		c.finish = "tool_calls"
	}
	return nil
}

// response returns what was collected. Tokens that the provider did not report are estimated when
// the call succeeded.
func (c *chatAnswer) response(req ChatRequest, ok bool) ChatResponse {
	resp := ChatResponse{Text: c.text.String(), FinishReason: c.finish, Model: c.head.Model}
	var usage chatUsage
	if c.usage != nil && json.Unmarshal(c.usage, &usage) == nil && usage != (chatUsage{}) {
		resp.Usage = usage.tokens()
	} else if ok {
		resp.Usage = forebay.TokenUsage{InputTokens: req.promptTokens(), OutputTokens: int64(EstimateTokens(resp.Text))}
	}
	if ok && c.wantRaw {
		if resp.Raw = c.raw; resp.Raw == nil {
			resp.Raw = c.assemble(resp)
		}
	}
	return resp
}

// assemble writes the plain answer that the stream stands for.
func (c *chatAnswer) assemble(resp ChatResponse) json.RawMessage {
	object := map[string]any{
		"id": c.head.ID, "object": "chat.completion", "created": c.head.Created, "model": c.head.Model,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": c.finish,
			"message": map[string]any{"role": RoleAssistant, "content": resp.Text},
		}},
	}
	if c.head.SystemFingerprint != "" {
		object["system_fingerprint"] = c.head.SystemFingerprint
	}
	if c.usage != nil {
		object["usage"] = c.usage
	}
	raw, err := encode(object)
	if err != nil { // the only foreign part is usage, which was parsed
		return nil
	}
	return raw
}
