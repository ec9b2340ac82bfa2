package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// jobInput is the input of a job that makes a response.
type jobInput struct {
	Response        string `json:"response"`
	PromptTokens    int64  `json:"prompt_tokens"`
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`
	AsResponses     bool   `json:"as_responses,omitempty"`
}

// taskPrefix begins the tasks of background responses. No task of a configuration has a slash.
const taskPrefix = "/v1/responses/background:"

// TaskName is the task of background responses of a model.
func TaskName(model string) string { return taskPrefix + model }

// Forwarder makes calls of logical models as they are asked for. The deployment is nil if none was
// called.
type Forwarder interface {
	Forward(ctx context.Context, model string, req model.ForwardRequest) (model.ForwardResponse, *model.Deployment, error)
}

// Tasks returns the tasks of background responses of these models.
func (s *Service) Tasks(forwarder Forwarder, models []string) (tasks []forebay.Task) {
	for _, name := range models {
		run := func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			return s.run(ctx, forwarder, name, call)
		}
		tasks = append(tasks, forebay.Task{Name: TaskName(name), Description: "OpenAI's POST /v1/responses, in the background", Model: name,
			Queue: s.Queue, Estimate: estimate, Check: check, Run: run})
	}
	return tasks
}

func check(input json.RawMessage) error {
	var in jobInput
	if json.Unmarshal(input, &in) != nil || !knownID(in.Response) || in.PromptTokens < 0 {
		return forebay.Invalid("task", "is only for background responses")
	}
	return nil
}

func estimate(input json.RawMessage, size int64) forebay.CallEstimate {
	var in jobInput
	if json.Unmarshal(input, &in) != nil {
		return forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken, AsOpenAI: true}
	}
	return forebay.CallEstimate{PromptTokens: in.PromptTokens, MaxOutputTokens: in.MaxOutputTokens, AsOpenAI: true, AsResponses: in.AsResponses}
}

// recordFor bounds recording the end of a response that is paid for.
const recordFor = 30 * time.Second

// output is the result of a job whose response has that status.
func output(status string) json.RawMessage { return encode(map[string]string{"response": status}) }

// run makes a response, or goes on after an attempt that broke off.
func (s *Service) run(ctx context.Context, forwarder Forwarder, name string, call forebay.TaskCall) (result forebay.TaskResult, err error) {
	var in jobInput
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return result, uncalled("invalid_input", "the input is not that of a background response")
	}
	tenant, err := s.Store.EnsureTenant(ctx, call.Tenant)
	if err != nil {
		return result, err
	}
	runner := rand.Int64()
	row, err := s.Store.Begin(ctx, tenant, in.Response, runner, call.JobID)
	switch {
	case forebay.CodeOf(err) == forebay.CodeNotFound:
		return forebay.TaskResult{Output: output("deleted")}, nil
	case err != nil:
		return result, failure(err)
	case row.Over(): // an earlier attempt has ended it
		return forebay.TaskResult{Output: output(row.Status)}, nil
	}
	req, err := s.request(ctx, row)
	if err != nil {
		return result, failure(err)
	}
	if err := s.Complete(ctx, call.Tenant, req); err != nil {
		return result, failure(err)
	}
	begins, state, err := s.goesOn(ctx, row)
	if err != nil {
		return result, failure(err)
	}
	w := newWriter(context.WithoutCancel(ctx), s.Store, writing{no: row.No, tenant: tenant, seq: row.Seq, id: row.ID, runner: runner}, row.State)
	defer func() { _, _ = w.rest() }() // also after a panic
	x := bridge.NewExchange(req, row.ID, row.CreatedAt, true, state)
	end, err := s.answer(ctx, forwarder, name, call, req, x, w, begins, &result)
	group, stored := w.rest()
	if err == nil {
		err = stored
	}
	if err != nil {
		if len(group.Data) > 0 && stored == nil { // what is known of a broken answer is kept too
			keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
			defer cancel()
			_ = s.Store.Append(keep, w.of, group)
		}
		return result, failure(err)
	}
	result, err = s.finish(ctx, w.of, group, x, end, result)
	if err == nil && row.Object.Blob != "" { // the answer is in its place
		s.Payloads.Remove(ctx, row.Object.Blob)
	}
	return result, err
}

// goesOn returns the first events of an attempt, and how the stream stands after them.
func (s *Service) goesOn(ctx context.Context, row Row) ([]bridge.Event, bridge.State, error) {
	state := row.State
	if state.Sequence <= 2 {
		state.Sequence++
		return []bridge.Event{{Type: typeInProgress, Data: bytes.TrimSuffix(marker(typeInProgress), []byte("\n"))}}, state, nil
	}
	var before []json.RawMessage
	for from := int64(0); from < state.Sequence; {
		rows, err := s.Store.Events(ctx, row, from, eventRows)
		if err != nil {
			return nil, state, err
		}
		for _, group := range rows {
			for line := range bytes.Lines(group.Data) {
				before = append(before, line)
			}
			from = group.First + int64(bytes.Count(group.Data, []byte("\n")))
		}
		if len(rows) == 0 {
			break
		}
	}
	events, state := bridge.Interrupted(before, state)
	return events, state, nil
}

// answer calls a provider and stores the events of its answer.
func (s *Service) answer(ctx context.Context, forwarder Forwarder, name string, call forebay.TaskCall, req *bridge.Request, x *bridge.Exchange, w *writer, begins []bridge.Event, result *forebay.TaskResult) (end bridge.End, err error) {
	begin := sync.OnceValue(func() error { return w.add(begins, x.State()) })
	var broken error
	resp, deployment, err := forwarder.Forward(ctx, name, model.ForwardRequest{
		Path: "responses", Body: req.Native(), Stream: true, CostLeft: call.CostLeft, TokensLeft: call.TokensLeft, WantUsage: true, Again: true,
		Choose: func(d model.Dialect) (string, []byte, error) { return x.Choose(bridge.Dialect(d)) },
		Begin: func(int, http.Header) error {
			broken = begin()
			return broken
		},
		Write: func(part []byte) error {
			events, err := x.Write(part)
			if err == nil && len(events) > 0 {
				err = w.add(events, x.State())
			}
			broken = err
			return err
		},
	})
	deployment.Charge(result, resp.Usage, resp.CachedTokens, resp.CacheWrites)
	if broken != nil {
		return end, broken
	}
	if err != nil {
		return end, err
	}
	return x.End(resp.Usage, time.Now())
}

// finish stores how a response ended. The answer is paid for, so it is stored even if the job's
// lock is lost, unless another attempt has begun.
func (s *Service) finish(ctx context.Context, of writing, group Group, x *bridge.Exchange, end bridge.End, result forebay.TaskResult) (forebay.TaskResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	for _, e := range end.Events {
		group.Data = append(append(group.Data, e.Data...), '\n')
	}
	group.Then = x.State()
	object := Payload{Size: int64(len(end.Object))}
	var err error
	if object.Inline, object.Blob, err = s.Payloads.Put(ctx, of.tenant, of.id, "object", end.Object); err != nil {
		return result, failure(err)
	}
	if err := s.Store.Finish(ctx, of, group, end.Status, object); err != nil {
		if object.Blob != "" && errors.Is(err, forebay.ErrLockLost) {
			s.Payloads.Remove(ctx, object.Blob)
		}
		return result, failure(err)
	}
	result.Output = output(end.Status)
	return result, nil
}

func uncalled(code, message string) error {
	t := forebay.Permanent(code, message)
	t.Uncalled = true
	return t
}

// failure classifies an error of an attempt.
func failure(err error) error {
	if t, ok := errors.AsType[*forebay.TaskError](err); ok {
		return t
	}
	if refusal, ok := errors.AsType[*bridge.Error](err); ok {
		return uncalled(bridge.CodeInvalidPrompt, refusal.Message)
	}
	if errors.Is(err, bridge.ErrMalformed) {
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeMalformedResponse, Message: err.Error()}
	}
	if errors.Is(err, forebay.ErrLockLost) {
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: "taken_over", Message: "the response has ended, or another attempt makes it", Err: err}
	}
	if forebay.CodeOf(err) == forebay.CodeTooManyRequests { // there is no room for the context: it costs no attempt
		return &forebay.TaskError{Class: forebay.ClassThrottled, Code: "context_unavailable", Message: "the context of the response cannot be read right now",
			Uncalled: true, Waiting: forebay.WaitWorker, RetryAfter: 5 * time.Second, Err: err}
	}
	if known, ok := errors.AsType[*forebay.Error](err); ok {
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: string(known.Code), Message: known.Message, Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// Clients see the message. That of an unknown error may have a path.
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: string(forebay.CodeInternal), Message: "something went wrong here", Err: err}
}
