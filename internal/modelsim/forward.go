package modelsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// Takes implements model.Forwarder.
func (p *Provider) Takes(path string) bool { return slices.Contains(model.ForwardPaths, path) }

// Forward implements model.Forwarder for chat completions and embeddings. Other paths are not
// found.
func (p *Provider) Forward(ctx context.Context, req model.ForwardRequest) (model.ForwardResponse, error) {
	req, err := req.Chosen(model.Dialect{CompletionTokens: true})
	if err != nil {
		return model.ForwardResponse{}, err
	}
	embeds := req.Path == "embeddings"
	if !embeds && req.Path != "chat/completions" {
		return refused(notFound("Invalid URL (POST /v1/"+clip(req.Path, 200)+")"), model.CodeNotFound)
	}
	r, err := parseRequest(req.Body)
	if err != nil {
		return refused(badRequest("", err.Error()), model.CodeBadRequest)
	}
	if param, complaint := r.invalid(openAI, embeds); complaint != "" {
		return refused(badRequest(param, complaint), model.CodeBadRequest)
	}
	if embeds {
		return p.forwardEmbed(ctx, req, r)
	}
	return p.forwardChat(ctx, req, r)
}

func (p *Provider) forwardChat(ctx context.Context, req model.ForwardRequest, r *request) (model.ForwardResponse, error) {
	asked := r.asked(r.maxOutput(DefaultMaxOutputTokens))
	contents := make([]string, len(asked.Messages))
	for i, m := range asked.Messages {
		contents[i] = m.Content
	}
	c := completion{api: openAI, created: created, model: p.model, choices: r.choices(), streamUsage: r.StreamOptions.IncludeUsage}
	resp := model.ForwardResponse{Model: p.model}
	err := p.call(ctx, slices.Values(contents), func() (usage forebay.TokenUsage, err error) {
		if c.text, c.finish, err = complete(asked); err != nil {
			return usage, forebay.Permanent(model.CodeBadRequest, err.Error())
		}
		c.text, c.finish, c.tool = strings.ToValidUTF8(c.text, "\uFFFD"), r.finished(c.finish), r.demanded().name
		for _, text := range contents {
			c.prompt += countTokens(text) + tokensPerMessage
		}
		c.tokens = countTokens(c.text)
		resp.Usage = forebay.TokenUsage{InputTokens: int64(c.prompt), OutputTokens: int64(c.tokens * c.choices)}
		return resp.Usage, nil
	})
	if err != nil {
		return failedForward(err)
	}
	resp.FinishReason = c.finish
	c.id = fmt.Sprintf("sim-%016x", fnv1a(fnvOffset, c.text))
	if !r.Stream {
		return answerForward(ctx, req, resp, "application/json", slices.Values([]string{string(c.body())}))
	}
	return answerForward(ctx, req, resp, "text/event-stream; charset=utf-8", c.events)
}

// events lists the events of the stream.
func (c *completion) events(yield func(string) bool) {
	parts := func(yield func(string) bool) {
		if !yield(c.firstEvents()) {
			return
		}
		for piece := range pieces(c.text, max(4, c.tokens/maxPieces)) {
			if !yield(c.textEvents(piece)) {
				return
			}
		}
		yield(c.lastEvents())
	}
	for part := range parts { // each has an event for each choice
		for event := range strings.SplitAfterSeq(part, "\n\n") {
			if event != "" && !yield(event) {
				return
			}
		}
	}
}

func (p *Provider) forwardEmbed(ctx context.Context, req model.ForwardRequest, r *request) (model.ForwardResponse, error) {
	texts := r.inputTexts()
	resp := model.ForwardResponse{Model: p.model}
	var vectors [][]float32
	err := p.call(ctx, slices.Values(texts), func() (usage forebay.TokenUsage, err error) {
		if vectors, err = embedAll(ctx, texts, cmp.Or(r.Dimensions, p.dimensions)); err != nil {
			return usage, err
		}
		for _, text := range texts {
			resp.Usage.InputTokens += int64(countTokens(text))
		}
		return resp.Usage, nil
	})
	if err != nil {
		return failedForward(err)
	}
	body := embedBody(vectors, r.EncodingFormat, p.model, int(resp.Usage.InputTokens))
	return answerForward(ctx, req, resp, "application/json", slices.Values([]string{string(body)}))
}

// answerForward passes on the parts of an answer.
func answerForward(ctx context.Context, req model.ForwardRequest, resp model.ForwardResponse, kind string, parts func(func(string) bool)) (model.ForwardResponse, error) {
	resp.Status, resp.Header = http.StatusOK, http.Header{"Content-Type": {kind}}
	err := req.Begin(resp.Status, resp.Header)
	for part := range parts {
		if err != nil {
			break
		}
		if ctx.Err() != nil {
			return resp, ctx.Err()
		}
		err = req.Write([]byte(part))
	}
	if err != nil {
		return resp, &forebay.TaskError{Class: forebay.ClassPermanent, Code: model.CodeClientGone, Message: "nobody takes the answer any more", Unmeasured: true, Err: err}
	}
	return resp, nil
}

// failedForward adds the answer that a service would give to an error of call, if it would answer.
func failedForward(err error) (model.ForwardResponse, error) {
	t, ok := errors.AsType[*forebay.TaskError](err)
	if !ok {
		return model.ForwardResponse{}, err
	}
	var r refusal
	switch t.Code {
	case model.CodeRateLimited:
		r = refusal{status: http.StatusTooManyRequests, kind: "requests", code: "rate_limit_exceeded", message: t.Message, wait: t.RetryAfter}
	case model.CodeServerError:
		r = refusal{status: http.StatusInternalServerError, kind: "server_error", message: t.Message}
	case model.CodeContentFilter:
		r = filteredRefusal
	case model.CodeBadRequest:
		r = badRequest("", t.Message)
	default:
		return model.ForwardResponse{}, err
	}
	return r.forwarded(), err
}

// refused returns a refusal and its error.
func refused(r refusal, code string) (model.ForwardResponse, error) {
	return r.forwarded(), forebay.Permanent(code, r.message)
}

func (r refusal) forwarded() model.ForwardResponse {
	header := http.Header{"Content-Type": {"application/json"}}
	if r.wait > 0 {
		header.Set("Retry-After", strconv.FormatInt(ceilSeconds(r.wait), 10))
		header.Set("Retry-After-Ms", strconv.FormatInt(ceilMillis(r.wait).Milliseconds(), 10))
	}
	return model.ForwardResponse{Status: r.status, Header: header, Body: encoded(r.openAIBody())}
}
