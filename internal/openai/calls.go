package openai

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// Calls are the synchronous calls of this process, each from its request to its answer.
type Calls struct {
	mu      sync.Mutex
	byToken map[string]*pending
}

// NewCalls returns an empty set of calls.
func NewCalls() *Calls { return &Calls{byToken: map[string]*pending{}} }

// add keeps a call until remove, and returns the input of its job.
func (c *Calls) add(p *pending) (token string) {
	token = rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byToken[token] = p
	return token
}

func (c *Calls) remove(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byToken, token)
}

// of returns the call whose job has this input, or nil.
func (c *Calls) of(input json.RawMessage) *pending {
	token, ok := strings.CutPrefix(string(input), `"`)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byToken[strings.TrimSuffix(token, `"`)]
}

// Forwarder makes calls of logical models as they are asked for. The deployment is nil if none was
// called.
type Forwarder interface {
	Forward(ctx context.Context, model string, req model.ForwardRequest) (model.ForwardResponse, *model.Deployment, error)
}

// taskName is the task of an endpoint's calls of a model. No task of a configuration has a slash.
func taskName(endpoint, model string) string { return "/v1/" + endpoint + ":" + model }

// Tasks returns the tasks of all endpoints for these models.
func (c *Calls) Tasks(forwarder Forwarder, models []string) []forebay.Task {
	var tasks []forebay.Task
	for _, name := range models {
		for _, endpoint := range append([]string{endpointResponses, endpointCompact}, endpoints...) {
			t := forwarding{c, forwarder, endpoint, name}
			tasks = append(tasks, forebay.Task{
				Name: taskName(endpoint, name), Description: "OpenAI's POST /v1/" + endpoint + ", as it is", Model: name,
				Estimate: t.estimate, Check: t.check, Run: t.run,
			})
		}
	}
	return tasks
}

// forwarding is the task of an endpoint's calls of a model.
type forwarding struct {
	calls     *Calls
	forwarder Forwarder
	endpoint  string
	model     string
}

// check accepts only calls of this process.
func (t forwarding) check(input json.RawMessage) error {
	if t.calls.of(input) == nil {
		return forebay.Invalid("task", "is only for calls of /v1/%s", t.endpoint)
	}
	return nil
}

func (t forwarding) estimate(input json.RawMessage, size int64) forebay.CallEstimate {
	if p := t.calls.of(input); p != nil {
		return p.need
	}
	return forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken}
}

// callTimeout is how long a call may take at the provider.
const callTimeout = time.Hour

func (t forwarding) run(ctx context.Context, call forebay.TaskCall) (result forebay.TaskResult, err error) {
	p := t.calls.of(call.Input)
	if p == nil {
		lost := forebay.Permanent("caller_gone", "whoever waited for the answer has left, or the process has ended")
		lost.Uncalled = true
		return forebay.TaskResult{}, lost
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !p.begin(cancel) {
		return forebay.TaskResult{}, abandoned(false)
	}
	var resp model.ForwardResponse
	var deployment *model.Deployment
	err = errBroken // unless the call returns: the client must not wait for one that has panicked
	defer func() { p.end(resp, err) }()
	req := model.ForwardRequest{Path: t.endpoint, Body: p.body, Stream: p.stream, CostLeft: call.CostLeft, TokensLeft: call.TokensLeft,
		Begin: p.answer, Write: p.write, Flush: p.send, Header: p.asked}
	forward := func() (failed error) {
		resp, deployment, failed = t.forwarder.Forward(ctx, t.model, req)
		return failed
	}
	if p.translate == nil {
		err = forward()
	} else {
		err = p.translated(ctx, &req, &resp, forward)
	}
	deployment.Charge(&result, resp.Usage, resp.CachedTokens, resp.CacheWrites)
	switch {
	case err == nil:
		result.Output = p.bodies()
	case errors.Is(err, context.Canceled) && p.hasLeft():
		err = abandoned(deployment != nil)
	}
	return result, err
}

// bodies is the result of a call whose bodies are kept: its request and its answer. A stream is
// text. nil: they are not kept.
func (p *pending) bodies() json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep == 0 || int64(len(p.kept)+len(p.body)) > p.keep {
		return nil
	}
	answer := bytes.TrimSpace(p.kept)
	if p.stream || !json.Valid(answer) {
		var err error
		if answer, err = forebay.EncodeJSON(string(p.kept)); err != nil {
			return nil
		}
	}
	return slices.Concat([]byte(`{"request":`), p.body, []byte(`,"response":`), answer, []byte("}"))
}

// errBroken is the error of a call that has panicked.
var errBroken = &forebay.TaskError{Class: forebay.ClassTransient, Code: "internal_error", Message: "the call broke off inside the server"}

// errGone ends a call whose client has left.
var errGone = forebay.Permanent("caller_gone", "the client has left")

// abandoned is the error of a call that its client has left. It is not made again. If it was sent,
// the provider may bill for it, although nobody knows how much.
func abandoned(sent bool) error {
	gone := *errGone
	gone.Uncalled, gone.Unmeasured = !sent, sent
	return &gone
}

// pending is a call whose client waits. The client's request and the job's task are two
// goroutines; the client's connection belongs to the task from begin to end.
type pending struct {
	body   []byte
	stream bool
	need   forebay.CallEstimate
	flush  func() error
	keep   int64 // how many bytes of request and answer the job's result may have; 0: it has neither
	// translate makes what stands between the client and the provider for one attempt. nil: nothing.
	translate func() translation
	asked     http.Header           // of the client that the provider gets
	broken    func(*failure) []byte // the event that ends a stream that broke; nil: OpenAI's

	ended chan struct{} // has a value after each attempt

	mu      sync.Mutex
	w       http.ResponseWriter
	shut    bool               // no further attempt begins
	left    bool               // nobody waits any more
	calling context.CancelFunc // ends the attempt under way; nil: there is none
	status  int                // of the answer
	header  http.Header        // of the provider's answer
	begun   bool               // the client has the beginning of an answer
	kept    []byte             // of the answer
	done    bool               // the answer is complete
	last    model.ForwardResponse
	err     error       // of the latest attempt
	latest  translation // that of the latest attempt; nil: there is none
}

// begin begins an attempt that cancel ends. It reports whether anybody waits for it.
func (p *pending) begin(cancel context.CancelFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut || p.left || p.begun {
		return false
	}
	p.calling = cancel
	return true
}

// passed are the headers of providers that clients get.
var passed = []string{"Content-Type", "Openai-Processing-Ms", "Openai-Version", "Openai-Model", "Request-Id"}

// copyHeader copies those headers of a provider's answer that clients get.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		if slices.Contains(passed, name) || strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") {
			to[name] = values
		}
	}
}

// answer takes what the answer begins with. It is sent with the first part of the answer, so that
// a call that ends before can be made again.
func (p *pending) answer(status int, header http.Header) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return errGone
	}
	p.status, p.header = status, header
	return nil
}

// write writes part of the answer.
func (p *pending) write(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return errGone
	}
	if !p.begun {
		p.begun = true
		p.sendHeader()
	}
	if p.keep > 0 && int64(len(p.kept)) <= p.keep {
		p.kept = append(p.kept, b...)
	}
	if _, err := p.w.Write(b); err != nil {
		return errGone
	}
	return nil
}

// send sends what of a stream was written.
func (p *pending) send() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.flush() != nil {
		return errGone
	}
	return nil
}

// sendHeader writes the status and those headers of the provider that clients get.
func (p *pending) sendHeader() {
	h := p.w.Header()
	copyHeader(h, p.header)
	if p.stream {
		h.Set("X-Accel-Buffering", "no")
		h.Set("Cache-Control", "no-cache")
	}
	p.w.WriteHeader(p.status)
}

// end ends an attempt.
func (p *pending) end(resp model.ForwardResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calling, p.last, p.err, p.done = nil, resp, err, err == nil
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

// shutOff lets no further attempt begin. The one under way goes on.
func (p *pending) shutOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
}

// leave ends the waiting, and the attempt under way. It returns once the task no longer uses the
// client's connection or the request.
func (p *pending) leave() {
	for p.abort() {
		<-p.ended
	}
}

// abort has the attempt under way end soon. It reports whether there is one.
func (p *pending) abort() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	if p.calling != nil {
		p.calling()
	}
	return p.calling != nil
}

// hasLeft reports whether nobody waits any more.
func (p *pending) hasLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// state is what the waiting client has to know.
func (p *pending) state() (calling, begun, done bool, last model.ForwardResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calling != nil, p.begun, p.done, p.last, p.err
}

// upstream is the status of an error of a provider as a client may see it.
func upstream(resp model.ForwardResponse, err error) *failure {
	var t *forebay.TaskError
	_ = errors.As(err, &t)
	status := resp.Status
	if status < http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired {
		status = http.StatusBadGateway // it is about this server's account, or was no answer
	}
	f := &failure{status: status, kind: typeServer, code: "upstream_error", message: "the provider did not answer the call", shouldRetry: &no}
	if t != nil {
		f.code = t.Code
		if t.Message != "" {
			f.message = t.Message
		}
	}
	if status < http.StatusInternalServerError {
		f.kind = typeInvalid
	}
	return f
}
