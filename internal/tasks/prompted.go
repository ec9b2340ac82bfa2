package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"text/template"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/turns"
)

// prompted is a task that asks a model for text.
type prompted struct {
	kind           kind
	option         Option
	system, prompt *template.Template   // nil: none
	own            []*template.Template // those from the configuration, which may not fit an input
	models         Models
	forwards       func(model string) bool
	maxOutputBytes int64
	// thinks says how a model has used up the task's own limit before it wrote anything. From then
	// on calls have the deployment's limit instead.
	thinks atomic.Int32
}

// How a model thinks. What is thought in a text may have been put there by what a tenant wrote. So
// a next answer without it takes that back, or other tenants would lose the task's limit by it.
const (
	thinksNot = iota
	thinksInText
	thinksInSilence
)

// answersFactor limits a result with more than a text, in relation to the text that it may have.
const answersFactor = 2

// kind is what all tasks made from one built-in task share.
type kind struct {
	description    string
	model          string
	system, prompt string
	// maxTokens limits the answer, without what a model thinks before it; 0: the deployment's limit.
	maxTokens int
	// asks returns how many output tokens an input, which is an object, asks for. 0 means that the
	// input does not say. asks may be nil.
	asks func(o Option, input json.RawMessage) int64
	// refine makes an estimate exact by what an input, which is an object, says. It may be nil.
	refine func(o Option, input json.RawMessage, e *forebay.CallEstimate)
	// sample is data in the form that parse returns, for trying templates. It is nil if the fields
	// are not known beforehand.
	sample map[string]any
	// parse checks an input. Its errors are *forebay.Error values that name the field.
	parse func(o Option, input json.RawMessage) (request, error)
}

// request is a checked input.
type request struct {
	data map[string]any    // for the templates: .Input is the text
	chat model.ChatRequest // from the input; Messages are those of a conversation
	// model is the one that the input names; "": the task's. onlyOpenAI is the field that only
	// deployments with OpenAI's API take; "": there is none.
	model, onlyOpenAI string
	// result turns the model's answer into the task's output.
	result func(model.ChatResponse) (any, error)
}

func (p *prompted) check(input json.RawMessage) error {
	req, err := p.kind.parse(p.option, input)
	if err != nil {
		return err
	}
	if name := cmp.Or(req.model, p.option.Model); req.onlyOpenAI != "" && p.forwards != nil && !p.forwards(name) {
		return forebay.Invalid("input."+req.onlyOpenAI, "no deployment of the model %s can do this", name)
	}
	for _, t := range p.own {
		if err := t.Execute(io.Discard, req.data); err != nil {
			return templateError(err)
		}
	}
	return nil
}

// templateError says that an input lacks what the prompt of the task needs. It does not quote the
// prompt.
func templateError(err error) error {
	e := forebay.Invalid("input", "does not fit the task's prompt")
	if _, name, ok := strings.Cut(err.Error(), "map has no entry for key "); ok {
		e.Message = "lacks the field " + name + ", which the task's prompt needs"
	}
	return e.Caused(err)
}

func (p *prompted) messages(req request) ([]model.Message, error) {
	var out []model.Message
	add := func(role model.Role, t *template.Template) error {
		if t == nil {
			return nil
		}
		var b strings.Builder
		if err := t.Execute(&b, req.data); err != nil {
			return templateError(err)
		}
		out = append(out, model.Message{Role: role, Content: b.String()})
		return nil
	}
	if err := add(model.RoleSystem, p.system); err != nil {
		return nil, err
	}
	if len(req.chat.Messages) > 0 {
		return append(out, req.chat.Messages...), nil
	}
	return out, add(model.RoleUser, p.prompt)
}

func (p *prompted) run(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	var req request
	var chat model.ChatRequest
	var err error
	stopped := turns.Parse(ctx, len(call.Input), func() {
		if req, err = p.kind.parse(p.option, call.Input); err == nil {
			chat = req.chat
			chat.Messages, err = p.messages(req)
		}
	})
	if stopped != nil {
		return forebay.TaskResult{}, stopped
	}
	if err != nil {
		return forebay.TaskResult{}, invalidInput(err)
	}
	own := p.limit(&chat)
	if chat.Temperature == nil {
		chat.Temperature = p.option.Temperature
	}
	chat.CostLeft, chat.TokensLeft, chat.OnText = call.CostLeft, call.TokensLeft, call.Written

	var resp model.ChatResponse
	var deployment *model.Deployment
	err = underTimeout(ctx, p.option.Timeout, func(ctx context.Context) (err error) {
		resp, deployment, err = p.models.Chat(ctx, cmp.Or(req.model, p.option.Model), chat)
		return err
	})
	var result forebay.TaskResult
	deployment.Charge(&result, resp.Usage, resp.CachedTokens, resp.CacheWrites)
	switch {
	case err != nil:
		return result, err
	case resp.FinishReason == model.CodeContentFilter && len(resp.Choices) < 2:
		return result, forebay.Permanent(model.CodeContentFilter, "the content filter stopped the answer")
	case int64(len(resp.Text)) > p.maxOutputBytes:
		return result, forebay.Permanent(model.CodeResponseTooLarge, "the answer is over the size limit")
	}
	answer := resp
	if p.kind.maxTokens > 0 { // chat's answers are the model's, as they are
		answer.Text = afterThoughts(resp.Text)
	}
	output, err := req.result(answer)
	if err != nil {
		if how := thought(resp); own && how != thinksNot {
			p.thinks.Store(how)
		}
		return result, cutAt(chat.MaxOutputTokens, resp, err)
	}
	if !beginsToThink(resp.Text) {
		p.thinks.CompareAndSwap(thinksInText, thinksNot)
	}
	if result.Output, err = forebay.EncodeJSON(output); err != nil {
		return result, malformed("the answer cannot be written as JSON")
	}
	if resp.Choices != nil && int64(len(result.Output)) > answersFactor*p.maxOutputBytes {
		result.Output = nil
		return result, forebay.Permanent(model.CodeResponseTooLarge, "the answer is over the size limit")
	}
	return result, nil
}

// limit sets the limit of a call that asks for none. It reports whether that is the task's own.
func (p *prompted) limit(chat *model.ChatRequest) (own bool) {
	if p.kind.maxTokens == 0 || p.option.MaxOutputTokens > 0 {
		chat.MaxOutputTokens = cmp.Or(chat.MaxOutputTokens, p.option.MaxOutputTokens)
		return false
	}
	if p.thinks.Load() != thinksNot {
		chat.MaxOutputTokens = 0
		return false
	}
	chat.MaxOutputTokens = cmp.Or(chat.MaxOutputTokens, p.kind.maxTokens)
	return true
}

// thought says how the model was still thinking when its answer ended at its limit. What it thinks
// is left out of the text, or begins it in a tag.
func thought(resp model.ChatResponse) (how int32) {
	switch {
	case resp.FinishReason != "length":
		return thinksNot
	case resp.Text == "":
		return thinksInSilence
	case beginsToThink(resp.Text):
		return thinksInText
	}
	return thinksNot
}

func beginsToThink(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "<think>")
}

// afterThoughts returns what a text says after the thoughts that it begins with, if it does.
func afterThoughts(text string) string {
	if !beginsToThink(text) {
		return text
	}
	_, said, _ := strings.Cut(text, "</think>")
	return said
}

// cutAt adds to an error of an answer that it ended at its limit.
func cutAt(limit int, resp model.ChatResponse, err error) error {
	t, ok := errors.AsType[*forebay.TaskError](err)
	if resp.FinishReason != "length" || !ok {
		return err
	}
	cut := *t
	cut.Message += "; it was cut off at its token limit"
	if limit > 0 {
		cut.Message += " of " + strconv.Itoa(limit)
	}
	if thought(resp) != thinksNot {
		cut.Message += ", which what the model thinks counts for"
	}
	return &cut
}
