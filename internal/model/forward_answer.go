package model

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// heldBytes is how much of an answer in one piece waits for its end. A call whose small answer is
// cut or broken can so be made again.
const heldBytes = 64 << 10

// forwardAnswer passes on one answer, and reads from it what accounting needs.
type forwardAnswer struct {
	endpoint  *endpoint
	req       ForwardRequest
	hideUsage bool // the client did not ask for it
	texts     func() []string
	resp      ForwardResponse

	watch       *watch
	begun       bool // Begin was called
	written     bool // Write was called
	unsent      bool // Write was called after the latest Flush
	usage       forwardUsage
	outputBytes int64 // of texts and arguments in the answer

	seen     bool           // an event with data
	done     bool           // [DONE]
	finished map[int64]bool // by the choices seen
}

type forwardUsage struct{ input, output, cached, written, reasoning int64 }

func (u forwardUsage) tokens() forebay.TokenUsage {
	return forebay.TokenUsage{InputTokens: u.input, OutputTokens: u.output}
}

// read passes on an answer of either form. Its type says which one it is, or else its first byte.
func (f *forwardAnswer) read(a answer) error {
	f.watch, f.resp.Status, f.resp.Header = a.watch, a.status, a.header
	if encoding := a.header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return malformed("the answer is compressed, which was not asked for")
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream" && f.req.Path != PathCountTokens:
		return f.readStream(a)
	case kind == "application/json" || !f.req.Stream:
		return f.readBody(a.body)
	}
	r := bufio.NewReader(a.body)
	if first, _ := r.Peek(1); len(first) > 0 && (first[0] == 'd' || first[0] == 'e' || first[0] == ':') {
		a.body = r
		return f.readStream(a)
	}
	return f.readBody(r) // which meets the error of Peek too
}

func (f *forwardAnswer) begin(header http.Header) error {
	f.begun = true
	if err := f.req.Begin(f.resp.Status, header); err != nil {
		return clientGone(err)
	}
	return nil
}

// write passes on a part of the answer. A client that reads slowly is no silence of the endpoint.
func (f *forwardAnswer) write(b []byte) error {
	if !f.begun {
		if err := f.begin(f.resp.Header); err != nil {
			return err
		}
	}
	f.written, f.unsent = true, true
	f.watch.timer.Stop()
	err := f.req.Write(b)
	f.watch.moved(1)
	if err != nil {
		return clientGone(err)
	}
	return nil
}

// readBody passes on an answer in one piece. White space at its beginning is not held: some
// servers send it to keep the connection open.
func (f *forwardAnswer) readBody(r io.Reader) error {
	if length, err := strconv.ParseInt(f.resp.Header.Get("Content-Length"), 10, 64); err == nil && length > f.endpoint.maxOutput {
		return f.endpoint.tooLarge()
	}
	var body []byte
	held, sent := int64(heldBytes), 0
	if f.req.Path == pathEmbeddings {
		held = f.endpoint.maxOutput // they may be changed
	}
	for buffer := make([]byte, 16<<10); ; {
		n, err := r.Read(buffer)
		body = append(body, buffer[:n]...)
		if int64(len(body)) > f.endpoint.maxOutput {
			return f.endpoint.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			return f.endBody(body, sent)
		}
		if err != nil {
			return err
		}
		begins := skipSpace(body, 0)
		if all := begins == len(body); n > 0 && held == heldBytes && (all || int64(len(body)-begins) > held) {
			if err := f.write(body[sent:]); err != nil {
				return err
			}
			sent = len(body)
		}
	}
}

// endBody passes on the rest of an answer in one piece, and judges it.
func (f *forwardAnswer) endBody(body []byte, sent int) error {
	start := objectStart(body)
	if start < 0 {
		return malformed("the answer is not the JSON object it should be")
	}
	object := gjson.ParseBytes(body)
	described := object.Get("object").Str == "response" // with a failure of its own
	failed := object.Get("error").Type != gjson.Null
	if failed && !described && sent <= start {
		return f.endpoint.streamError(body, f.texts)
	}
	switch f.req.Path {
	case pathMessages:
		f.noteMessage(object)
	case PathCountTokens:
		if object.Get("input_tokens").Type != gjson.Number { // clients take any success for a count
			return malformed("the answer has no number of tokens")
		}
	}
	f.resp.Model = object.Get("model").Str
	f.addUsage(object.Get("usage"))
	f.addChoices(object.Get("choices"))
	f.addOutput(object)
	if f.req.Path == pathEmbeddings {
		changed, ok := encodeEmbeddings(body, start, askedEncoding(f.req.Body, objectStart(f.req.Body)))
		if !ok {
			return malformed("the embeddings are neither numbers nor base64")
		}
		if len(changed) != len(body) {
			f.resp.Header = contentLength(f.resp.Header, len(changed))
		}
		body = changed
	}
	if err := f.write(body[sent:]); err != nil {
		return err
	}
	if failed {
		f.resp.Passed = true
		return f.endpoint.streamError([]byte(`{"error":`+object.Get("error").Raw+`}`), f.texts)
	}
	return nil
}

// readStream passes on a stream, event by event.
func (f *forwardAnswer) readStream(a answer) error {
	if a.header.Get("Content-Length") != "" { // events may be left out
		f.resp.Header = a.header.Clone()
		f.resp.Header.Del("Content-Length")
	}
	if err := f.begin(f.resp.Header); err != nil {
		return err
	}
	f.finished = map[int64]bool{}
	stream := readRawEvents(&capped{a.body, max(wireFactor*f.endpoint.maxOutput, maxForwardedEvent)}, maxForwardedEvent)
	defer stream.free()
	for !f.done {
		if err := f.flush(stream); err != nil {
			return err
		}
		if err := stream.next(); err != nil {
			return f.endOfStream(err)
		}
		if stream.lines == 0 {
			if stream.cut {
				continue
			}
			if err := f.write(stream.raw); err != nil {
				return err
			}
			continue
		}
		if err := f.event(&a, stream); err != nil {
			return err
		}
	}
	if err := f.flush(nil); err != nil {
		return err
	}
	a.drain()
	return nil
}

// flush has what was passed on sent, unless the next event of the stream is here already.
func (f *forwardAnswer) flush(stream *rawEvents) error {
	if !f.unsent || f.req.Flush == nil || stream != nil && stream.arrived() {
		return nil
	}
	f.unsent = false
	f.watch.timer.Stop()
	err := f.req.Flush()
	f.watch.moved(1)
	if err != nil {
		return clientGone(err)
	}
	return nil
}

// endOfStream judges a stream that ended without [DONE].
func (f *forwardAnswer) endOfStream(err error) error {
	switch {
	case f.complete():
		return nil
	case errors.Is(err, errTooLarge):
		return err
	case f.seen:
		return streamCutBy(err)
	case errors.Is(err, io.EOF):
		return malformed("the stream holds no completion")
	}
	return err
}

// complete reports whether each choice has ended.
func (f *forwardAnswer) complete() bool {
	for _, finished := range f.finished {
		if !finished {
			return false
		}
	}
	return len(f.finished) > 0
}

// event reads one event with data and passes it on.
func (f *forwardAnswer) event(a *answer, stream *rawEvents) error {
	data := stream.data()
	if string(data) == "[DONE]" {
		f.seen, f.done = true, true
		if stream.cut {
			stream.complete()
		}
		return f.write(stream.raw)
	}
	start := objectStart(data)
	if skipSpace(data, 0) == len(data) && !stream.cut { // it keeps the connection open
		return f.write(stream.raw)
	}
	if start < 0 {
		if stream.cut {
			return f.endOfStream(io.ErrUnexpectedEOF)
		}
		return malformed("an event of the stream is not the JSON it should be")
	}
	f.seen = true
	e := readForwardEvent(gjson.ParseBytes(data))
	failure := e.failure()
	hide := f.note(e) && f.hideUsage
	a.began(int(f.outputBytes))
	if hide {
		return nil
	}
	if stream.cut {
		stream.complete()
	}
	raw := stream.raw
	if f.hideUsage && stream.lines == 1 && e.usage.Raw == "null" {
		if shorter := withoutNullUsage(data, start); len(shorter) != len(data) {
			raw = spliced(raw, []splice{{stream.from, stream.to, string(shorter)}})
		}
	}
	if failure != "" {
		raw = f.endpoint.cleanBody(raw)
	}
	if err := f.write(raw); err != nil {
		return err
	}
	if failure != "" {
		f.resp.Passed = true
		return f.endpoint.streamError([]byte(failure), f.texts)
	}
	return nil
}

// forwardEvent is an event of any of the APIs, with those of its members that are read. Events are
// many and small, so each is read once.
type forwardEvent struct {
	gjson.Result
	kind, failed, response, model, choices, usage, delta gjson.Result
}

func readForwardEvent(object gjson.Result) forwardEvent {
	e := forwardEvent{Result: object}
	object.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "type":
			e.kind = value
		case "error":
			e.failed = value
		case "response":
			e.response = value
		case "model":
			e.model = value
		case "choices":
			e.choices = value
		case "usage":
			e.usage = value
		case "delta":
			e.delta = value
		}
		return true
	})
	return e
}

// failure returns the error that an event reports, as a body with an error, or "".
func (e forwardEvent) failure() string {
	switch kind := e.kind.Str; {
	case e.failed.Type != gjson.Null, kind == "error":
		return e.Raw
	case kind == "response.failed":
		return `{"error":` + cmp.Or(e.response.Get("error").Raw, `{}`) + `}`
	}
	return ""
}

// note reads an event for accounting. It reports whether the event contains nothing but the usage
// that was asked for.
func (f *forwardAnswer) note(e forwardEvent) (onlyUsage bool) {
	if f.req.Path == pathMessages {
		f.noteMessages(e.Result)
		return false
	}
	if e.response.IsObject() { // of the Responses API
		f.noteResponse(e.kind.Str, e.response)
		return false
	}
	if f.resp.Model == "" {
		f.resp.Model = e.model.Str
	}
	f.addUsage(e.usage)
	f.addChoices(e.choices)
	f.addText(e.delta)
	return e.usage.IsObject() && e.choices.IsArray() && e.choices.Get("#").Int() == 0
}

func (f *forwardAnswer) noteResponse(kind string, response gjson.Result) {
	f.resp.Model = cmp.Or(response.Get("model").Str, f.resp.Model)
	f.addUsage(response.Get("usage"))
	switch kind {
	case "response.completed", "response.incomplete", "response.failed":
		f.finished[0] = true
		f.resp.FinishReason = responseFinish(response)
	default:
		f.finished[0] = false
	}
}

// responseFinish translates how a response ended into the words of chat completions.
func responseFinish(response gjson.Result) string {
	switch response.Get("status").Str {
	case "completed":
		return "stop"
	case "incomplete":
		if response.Get("incomplete_details.reason").Str == "content_filter" {
			return "content_filter"
		}
		return "length"
	}
	return ""
}

// addUsage keeps a usage of any of the APIs.
func (f *forwardAnswer) addUsage(usage gjson.Result) {
	if !usage.IsObject() {
		return
	}
	first := func(names ...string) int64 {
		for _, name := range names {
			if n := usage.Get(name).Int(); n > 0 {
				return n
			}
		}
		return 0
	}
	u := forwardUsage{input: first("prompt_tokens", "input_tokens"), output: first("completion_tokens", "output_tokens")}
	switch total := usage.Get("total_tokens").Int(); f.req.Path {
	case pathEmbeddings:
		if u.input == 0 { // some servers say the total alone
			u.input = max(total, 0)
		}
	default:
		said := u.output
		u.output = wholeOutput(u.input, said, total)
		u.reasoning = u.output - said
	}
	if f.req.Path == pathMessages { // which counts what the cache has beside the rest
		u = f.messagesUsage(usage)
	} else {
		u.cached = within(first("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"), u.input)
		u.reasoning = max(u.reasoning, first("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"))
	}
	if u != (forwardUsage{}) {
		f.usage = u
	}
}

// addChoices notes the texts of choices, and which of them have ended.
func (f *forwardAnswer) addChoices(choices gjson.Result) {
	choices.ForEach(func(_, choice gjson.Result) bool {
		var index, reason, delta, message gjson.Result
		choice.ForEach(func(key, value gjson.Result) bool {
			switch key.Str {
			case "index":
				index = value
			case "finish_reason":
				reason = value
			case "text":
				f.addText(value)
			case "delta":
				delta = value
			case "message":
				message = value
			}
			return true
		})
		if f.finished != nil {
			f.finished[index.Int()] = f.finished[index.Int()] || reason.Str != ""
		}
		if index.Int() == 0 && reason.Str != "" {
			f.resp.FinishReason = reason.Str
		}
		if delta.Exists() {
			message = delta
		}
		f.addMessage(message)
		return true
	})
}

// addMessage notes the texts of a message, or of what is added to one.
func (f *forwardAnswer) addMessage(message gjson.Result) {
	message.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "content", "refusal", "reasoning_content", "reasoning":
			f.addText(value)
		case "function_call":
			f.addText(value.Get("arguments"))
		case "tool_calls":
			value.ForEach(func(_, call gjson.Result) bool {
				f.addText(call.Get("function.arguments"))
				return true
			})
		}
		return true
	})
}

// addOutput notes the texts of a response of the Responses API in one piece.
func (f *forwardAnswer) addOutput(response gjson.Result) {
	if response.Get("object").Str != "response" {
		return
	}
	f.resp.FinishReason = responseFinish(response)
	response.Get("output").ForEach(func(_, item gjson.Result) bool {
		f.addText(item.Get("arguments"))
		item.Get("content").ForEach(func(_, part gjson.Result) bool {
			f.addText(part.Get("text"))
			return true
		})
		return true
	})
}

func (f *forwardAnswer) addText(v gjson.Result) {
	if v.Type == gjson.String {
		f.outputBytes += int64(len(v.Str))
	}
}
