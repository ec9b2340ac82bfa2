package model

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"strings"

	"github.com/forebayhq/forebay"
)

// chatAnswer collects one answer.
type chatAnswer struct {
	endpoint *endpoint
	texts    func() []string
	wantRaw  bool
	onText   func(all string) // may be nil

	text, refusal strings.Builder
	chosen        bool // a choice has arrived
	finish        string
	head          chatHead
	usage         string // JSON
	raw           json.RawMessage

	answers   int                     // how many were asked for
	more      map[int64]*answerChoice // by index: what is more than the first choice's text
	moreBytes int64                   // of the events with it
	merger    merger

	frame textFrame
}

// read reads an answer of either form. Some compatible servers answer a request for a stream with
// one plain object.
func (c *chatAnswer) read(a answer) error {
	if kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); kind != "text/event-stream" {
		r := bufio.NewReader(&capped{a.body, wireFactor * c.endpoint.maxOutput})
		first, err := firstByte(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		// Not the beginning of a field of an event.
		if first != ':' && first != 'd' && first != 'e' && first != 'i' && first != 'r' {
			return c.readPlain(r)
		}
		a.body = r
	}
	return c.readStream(a)
}

// firstByte returns the first byte that is not white space, without consuming it.
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
			if c.finished() { // everything needed has arrived
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
		before := c.text.Len()
		done, err := c.add(data)
		if err != nil {
			return err
		}
		a.began(c.text.Len() + int(c.moreBytes))
		if c.onText != nil && c.text.Len() > before {
			c.onText(c.text.String())
		}
		if done {
			a.drain()
			break
		}
	}
	if !c.chosen {
		return malformed("the stream holds no completion")
	}
	if c.finish == "" { // [DONE] came without a reason
		c.finish = "stop"
	}
	return c.judge()
}

// add processes the data of one event. done reports [DONE].
func (c *chatAnswer) add(data []byte) (done bool, err error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	if len(bytes.TrimSpace(data)) == 0 { // some proxies keep the connection open with such events
		return false, nil
	}
	if text, ok := c.frame.text(data); ok {
		c.text.Write(text)
		if int64(c.text.Len()+c.refusal.Len()) > c.endpoint.maxOutput {
			return false, c.endpoint.tooLarge()
		}
		return false, nil
	}
	chunk, ok := parseChunk(data)
	if !ok {
		return false, malformed("the answer is not the JSON it should be")
	}
	if chunk.failed {
		return false, c.endpoint.streamError(data, c.texts)
	}
	if c.head.model == "" {
		c.head = chunk.chatHead
	}
	if chunk.usage != "" {
		c.usage = chunk.usage
	}
	if chunk.content != "" && chunk == (chatChunk{chatHead: chunk.chatHead, chosen: true, content: chunk.content}) {
		c.frame.learn(data, chunk.content)
	}
	c.chosen = c.chosen || chunk.chosen
	c.text.WriteString(chunk.content)
	c.refusal.WriteString(chunk.refusal)
	if chunk.finish != "" {
		c.finish = chunk.finish
	}
	if chunk.more {
		if err := c.addMore(data); err != nil {
			return false, err
		}
	}
	if int64(c.text.Len()+c.refusal.Len()) > c.endpoint.maxOutput || c.moreBytes > moreFactor*c.endpoint.maxOutput {
		return false, c.endpoint.tooLarge()
	}
	return false, nil
}

// moreFactor limits the bytes of events that hold more than text, such as log probabilities, in
// relation to the text that an answer may have.
const moreFactor = 8

// finished reports whether all answers have ended.
func (c *chatAnswer) finished() bool {
	ended := 0
	for index, choice := range c.more {
		if index != 0 && choice.finish == "" {
			return false
		} else if index != 0 {
			ended++
		}
	}
	return c.finish != "" && ended+1 >= c.answers
}

// judge returns an error if the answer ended in a failure. Of several answers, each must have
// failed.
func (c *chatAnswer) judge() error {
	err := c.failure()
	for index, choice := range c.more {
		if index != 0 && choice.finish == "" { // [DONE] came without a reason
			choice.finish = "stop"
		}
	}
	if c.finish = finishReason(c.finish); err == nil {
		return nil
	}
	if forebay.AsTaskError(err).Class == forebay.ClassPermanent {
		for index, choice := range c.more {
			if index != 0 && choice.finish != "content_filter" && !choice.refused() {
				return nil
			}
		}
	}
	return err
}

// failure returns why the first answer is none.
func (c *chatAnswer) failure() error {
	switch {
	case c.finish == "content_filter":
		return forebay.Permanent(CodeContentFilter, "the provider's content filter stopped the answer")
	case c.finish == "error":
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeServerError, Message: "the provider broke the answer off"}
	case c.refusal.Len() > 0 && c.text.Len() == 0 && c.more[0].empty():
		return forebay.Permanent(CodeRefused, "the model declined to answer")
	}
	return nil
}

// finishReason returns the reason in the words of tools.
func finishReason(said string) string {
	if said == "function_call" {
		return "tool_calls"
	}
	return said
}

// response returns the collected answer. If the call succeeded, tokens that the provider did not
// report are estimated.
func (c *chatAnswer) response(ctx context.Context, req ChatRequest, ok bool) ChatResponse {
	resp := ChatResponse{Text: c.text.String(), FinishReason: c.finish, Model: c.head.model}
	if usage := parseUsage(c.usage); usage != (chatUsage{}) {
		resp.Usage, resp.CachedTokens = usage.tokens(), usage.CachedTokens
	} else if ok {
		resp.Usage = forebay.TokenUsage{InputTokens: req.promptTokens(ctx), OutputTokens: textTokens(ctx, resp.Text)}
		for _, choice := range c.more {
			resp.Usage.OutputTokens += choice.message.bytes() / forebay.BytesPerToken
		}
	}
	if !ok {
		return resp
	}
	resp.Choices = c.choices()
	if c.wantRaw {
		if resp.Raw = c.raw; resp.Raw == nil {
			resp.Raw = c.assemble(resp)
		}
	}
	return resp
}

// assemble writes the plain answer that is equivalent to the stream.
func (c *chatAnswer) assemble(resp ChatResponse) json.RawMessage {
	choices := resp.Choices
	if choices == nil {
		choices = []Choice{{Text: resp.Text, FinishReason: c.finish}}
	}
	written := make([]map[string]any, len(choices))
	for i, choice := range choices {
		message := map[string]any{"role": RoleAssistant, "content": choice.Text}
		if choice.Text == "" && resp.Choices != nil {
			message["content"] = nil
		}
		if choice.Refusal != "" {
			message["refusal"] = choice.Refusal
		}
		for _, m := range choice.Message {
			message[m.Name] = m.Value
		}
		written[i] = map[string]any{"index": choice.Index, "finish_reason": choice.FinishReason, "message": message}
		if choice.LogProbs != nil {
			written[i]["logprobs"] = choice.LogProbs
		}
	}
	object := map[string]any{
		"id": c.head.id, "object": "chat.completion", "created": c.head.created, "model": c.head.model, "choices": written,
	}
	if c.head.fingerprint != "" {
		object["system_fingerprint"] = c.head.fingerprint
	}
	if c.usage != "" {
		object["usage"] = json.RawMessage(c.usage)
	}
	raw, err := forebay.EncodeJSON(object)
	if err != nil { // never: the only foreign part is usage, which was parsed
		return nil
	}
	return raw
}
