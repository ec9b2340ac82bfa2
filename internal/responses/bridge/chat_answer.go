package bridge

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// toolCall is a call in an answer of chat completions. Its name may come after its first piece.
type toolCall struct {
	id, name string
	waiting  strings.Builder // arguments that came before the name
	item     *assembled      // nil: the name is not known yet
}

// chatChunk reads a chunk of a stream.
func (x *Exchange) chatChunk(data []byte) error {
	if !gjson.ValidBytes(data) {
		return ErrMalformed
	}
	chunk := gjson.ParseBytes(data)
	x.noteChat(chunk)
	for _, choice := range chunk.Get("choices").Array() {
		if choice.Get("index").Int() == 0 {
			x.chatChoice(choice, choice.Get("delta"))
		}
	}
	return nil
}

// chatBody reads an answer in one piece.
func (x *Exchange) chatBody() error {
	if !gjson.ValidBytes(x.body) {
		return ErrMalformed
	}
	answer := gjson.ParseBytes(x.body)
	choice := answer.Get("choices.0")
	if !choice.Get("message").IsObject() {
		return ErrMalformed
	}
	x.noteChat(answer)
	x.chatChoice(choice, choice.Get("message"))
	if x.finish == "" { // some servers leave it out
		x.finish = "stop"
	}
	return nil
}

// noteChat notes what chunks and answers say besides their choices.
func (x *Exchange) noteChat(answer gjson.Result) {
	if used := answer.Get("usage"); used.IsObject() {
		x.usage = json.RawMessage(used.Raw)
	}
	if tier := answer.Get("service_tier"); tier.Type == gjson.String {
		x.tier = json.RawMessage(tier.Raw)
	}
}

// chatChoice reads what a choice adds to the answer.
func (x *Exchange) chatChoice(choice, said gjson.Result) {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if thought := said.Get(name); thought.Type == gjson.String && thought.Str != "" {
			x.asm.say("reasoning", "reasoning_text", thought.Str, nil)
			break
		}
	}
	var logprobs []json.RawMessage
	for _, token := range choice.Get("logprobs.content").Array() {
		logprobs = append(logprobs, logprob(token))
	}
	x.asm.say("message", "output_text", contentOf(said.Get("content")), logprobs)
	x.asm.say("message", "refusal", said.Get("refusal").Str, nil)
	for i, call := range said.Get("tool_calls").Array() {
		index := int64(i)
		if given := call.Get("index"); given.Exists() {
			index = given.Int()
		}
		x.chatCall(index, call)
	}
	if reason := choice.Get("finish_reason"); reason.Type == gjson.String && reason.Str != "" {
		x.finish = reason.Str
	}
}

// logprob returns a token's log probability as responses have it: always with its bytes and its
// alternatives. Chat completions have null where a token has no bytes of its own.
func logprob(token gjson.Result) json.RawMessage {
	o := withBytes(token)
	if o == nil {
		return json.RawMessage(token.Raw)
	}
	others := []json.RawMessage{}
	for _, other := range token.Get("top_logprobs").Array() {
		if o := withBytes(other); o != nil {
			others = append(others, encode(o))
		}
	}
	o["top_logprobs"] = encode(others)
	return encode(o)
}

// withBytes returns an alternative of a token; nil: it is none.
func withBytes(token gjson.Result) Object {
	o := objectOf(json.RawMessage(token.Raw))
	if o != nil {
		o["bytes"] = or(o["bytes"], noList)
	}
	return o
}

// contentOf returns the text of a content. Some servers send it in parts.
func contentOf(content gjson.Result) string {
	if !content.IsArray() {
		return content.Str
	}
	var b strings.Builder
	for _, part := range content.Array() {
		if part.Get("type").Str == "text" {
			b.WriteString(part.Get("text").Str)
		}
	}
	return b.String()
}

// chatCall reads a piece of a call.
func (x *Exchange) chatCall(index int64, piece gjson.Result) {
	c := x.calls[index]
	if c == nil || c.ends(piece) {
		c = &toolCall{}
		x.calls[index] = c
		x.order = append(x.order, c)
	}
	if id := piece.Get("id").Str; c.id == "" {
		c.id = id
	}
	arguments := piece.Get("function.arguments").Str
	if c.item != nil {
		x.asm.argue(c.item, arguments)
		return
	}
	c.name += piece.Get("function.name").Str
	c.waiting.WriteString(arguments)
	if c.name != "" {
		c.item = x.asm.call(c.id, x.request.names.function(c.name))
		x.asm.argue(c.item, c.waiting.String())
	}
}

// ends reports whether a piece with the index of this call begins another one. Some servers give
// all calls the same index, each whole at first. Others give each piece an id of its own.
func (c *toolCall) ends(piece gjson.Result) bool {
	id := piece.Get("id").Str
	return c.item != nil && id != "" && id != c.id && piece.Get("function.name").Str != "" && objectOf(json.RawMessage(c.item.args.String())) != nil
}

// chatUsage is the usage of chat completions.
type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Total         int64 `json:"total_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// chatObject returns the response that the answer has become.
func (x *Exchange) chatObject(used forebay.TokenUsage) (Object, error) {
	for _, c := range x.order {
		if c.item == nil {
			return nil, ErrMalformed // a call of nothing
		}
	}
	o := x.request.Base(x.id, x.created, StatusCompleted)
	switch x.finish {
	case "":
		return nil, ErrMalformed
	case "length":
		o["status"], o["incomplete_details"] = encode(StatusIncomplete), encode(Object{"reason": encode("max_output_tokens")})
	case "content_filter":
		o["status"], o["incomplete_details"] = encode(StatusIncomplete), encode(Object{"reason": encode("content_filter")})
	}
	x.asm.endAll(text(o["status"]))
	o["output"] = x.asm.output()
	var c chatUsage
	if json.Unmarshal(x.usage, &c) != nil || c.Prompt+c.Completion == 0 {
		c.Prompt, c.Completion, c.Total = used.InputTokens, used.OutputTokens, 0
	}
	u := usage{Input: c.Prompt, Output: c.Completion, Total: c.Total}
	if c.Prompt > 0 { // some servers leave reasoning out of the completion, but not of the total
		u.Output = max(u.Output, c.Total-c.Prompt)
	}
	if u.Total == 0 {
		u.Total = u.Input + u.Output
	}
	u.InputDetails.Cached, u.OutputDetails.Reasoning = c.PromptDetails.Cached, c.CompletionDetails.Reasoning
	o["usage"] = encode(u)
	o["service_tier"] = or(x.tier, o["service_tier"])
	return o, nil
}
