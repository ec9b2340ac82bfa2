package model

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
)

// messagesHeaders are the headers of a client that Anthropic gets.
var messagesHeaders = []string{"Anthropic-Version", "Anthropic-Beta"}

// Takes implements Forwarder.
func (p *anthropic) Takes(path string) bool { return path == pathMessages || path == PathCountTokens }

// Forward implements Forwarder for requests of the messages API.
func (p *anthropic) Forward(ctx context.Context, req ForwardRequest) (ForwardResponse, error) {
	start := objectStart(req.Body)
	if err := checkForward(p, req.Path, start); err != nil {
		return ForwardResponse{}, err
	}
	body, _ := forwardedBody(req.Body, start, p.model, false)
	need := sync.OnceValue(func() *forwardNeed { return readNeed(req.Path, req.Body) })
	at := p.endpoint
	if req.Path == PathCountTokens {
		at.maxOutput = min(at.maxOutput, maxCountBytes)
	}
	f := forwardAnswer{endpoint: &at, req: req, texts: func() []string { return need().texts }}
	out := outgoing{url: strings.TrimSuffix(p.url, pathMessages) + req.Path, body: body, texts: f.texts, limits: f.resp.Limits.into(req.OnLimits), refused: f.refused, header: http.Header{}}
	for _, name := range messagesHeaders {
		if values := req.Header.Values(name); len(values) > 0 {
			out.header[name] = values
		}
	}
	if !req.Stream {
		out.patience = max(answerPatience, p.idle)
	}
	err := at.post(ctx, out, f.read)
	return f.ended(ctx, p.model, need, err), err
}

// noteMessages reads an event of a stream of the messages API.
func (f *forwardAnswer) noteMessages(event gjson.Result) {
	switch event.Get("type").Str {
	case "message_start":
		f.finished[0] = false
		f.resp.Model = event.Get("message.model").Str
		f.addUsage(event.Get("message.usage"))
	case "content_block_delta":
		for _, name := range []string{"delta.text", "delta.partial_json", "delta.thinking"} {
			f.addText(event.Get(name))
		}
	case "message_delta":
		f.addUsage(event.Get("usage"))
		f.stopped(event.Get("delta.stop_reason").Str)
	case "message_stop":
		f.finished[0], f.done = true, true
	}
}

// noteMessage reads an answer of the messages API in one piece.
func (f *forwardAnswer) noteMessage(message gjson.Result) {
	f.stopped(message.Get("stop_reason").Str)
	message.Get("content").ForEach(func(_, block gjson.Result) bool {
		f.addText(block.Get("text"))
		f.addText(block.Get("thinking"))
		f.outputBytes += int64(len(block.Get("input").Raw))
		return true
	})
}

// stopped notes why a message ended, in the words of chat completions.
func (f *forwardAnswer) stopped(reason string) {
	if reason != "" {
		f.resp.FinishReason = (&messagesAnswer{stop: reason}).finishReason()
	}
}

// messagesUsage adds a usage of the messages API to what events before have said. Its counts are
// cumulative, and 0 means not said.
func (f *forwardAnswer) messagesUsage(usage gjson.Result) forwardUsage {
	of := func(name string) int64 { return max(usage.Get(name).Int(), 0) }
	u := f.usage
	cached := max(u.cached, of("cache_read_input_tokens"))
	input := of("input_tokens") + of("cache_creation_input_tokens") + of("cache_read_input_tokens")
	written := max(u.written, of("cache_creation_input_tokens"))
	input = max(u.input, input)
	return forwardUsage{input: input, output: max(u.output, of("output_tokens")), cached: within(cached, input), written: within(written, input)}
}
