// Package tasks builds the tasks that jobs may ask for. The built-in ones are chat, summarize,
// classify, extract, sentiment and embed. A configuration can change their prompts, models and
// limits, define tasks by a prompt, and add HTTP functions of the user.
//
// The schema of a task is about the domain, such as a text and its labels. The configuration
// decides which model answers and how it is asked. The input is checked when a job is submitted.
// An answer without the requested shape is a transient failure.
package tasks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// Defaults and limits of the configuration of tasks.
const (
	DefaultTimeout        = 10 * time.Minute
	DefaultMaxOutputBytes = 10 << 20
	maxTimeout            = 24 * time.Hour
	maxTokens             = 1_000_000
	maxTemperature        = 2
)

// Models makes one call of a logical model. The deployment is nil if none was called.
type Models interface {
	Chat(ctx context.Context, model string, req model.ChatRequest) (model.ChatResponse, *model.Deployment, error)
	Embed(ctx context.Context, model string, req model.EmbedRequest) (model.EmbedResponse, *model.Deployment, error)
}

// Config describes the tasks. With only Models set they are the built-in ones.
type Config struct {
	Models Models
	// ModelNames are the existing logical models. If set, a configured task with any other model
	// is an error, and built-in tasks that need another are left out.
	ModelNames []string
	Tasks      map[string]Option
	// Forwards reports whether a deployment of a model takes OpenAI's API as it is. nil: any does.
	Forwards func(model string) bool
	// MaxOutputBytes limits the answer of an HTTP function and the text of a model. The default is
	// 10 MiB.
	MaxOutputBytes int64
	// Transport carries the calls of HTTP functions. The default has the settings of
	// http.DefaultTransport with more idle connections.
	Transport http.RoundTripper
}

// Option overrides a built-in task, or defines one.
type Option struct {
	Extends         string   // the built-in task it changes; default: of its own name, else chat
	Model           string   // default: chat, or embedding for embed
	Models          []string // chat: further models that an input may name
	System          string   // system prompt, a text/template over the input
	Prompt          string   // user prompt, a text/template over the input
	MaxOutputTokens int      // 0: the task's own, else the deployment's
	Temperature     *float64 //
	Labels          []string // classify: the labels when the input names none
	Queue           string   //
	MaxAttempts     int      // 0: the queue's
	Timeout         time.Duration
	HTTP            *HTTPFunction
}

// HTTPFunction is the address of a task that is an HTTP function of the user.
type HTTPFunction struct {
	URL               string
	Headers           map[string]forebay.Secret
	RequestsPerMinute int // from all processes together; 0: no limit
	Concurrency       int // calls at once from all processes together; 0: no limit
}

// New returns the tasks by name. An error is a *forebay.Error whose field is the option at fault,
// such as tasks.summarize.prompt.
func New(c Config) ([]forebay.Task, error) {
	if c.MaxOutputBytes <= 0 {
		c.MaxOutputBytes = DefaultMaxOutputBytes
	}
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = maxFunctionIdle
		c.Transport = t
	}
	options := map[string]Option{}
	for name, k := range builtins {
		if c.ModelNames == nil || slices.Contains(c.ModelNames, k.model) {
			options[name] = Option{}
		}
	}
	maps.Copy(options, c.Tasks)
	var out []forebay.Task
	for _, name := range slices.Sorted(maps.Keys(options)) {
		task, err := c.build(name, options[name])
		if err != nil {
			return nil, err
		}
		out = append(out, task)
	}
	return out, nil
}

func (c Config) build(name string, o Option) (forebay.Task, error) {
	bad := func(option, format string, args ...any) (forebay.Task, error) {
		return forebay.Task{}, forebay.Invalid("tasks."+name+"."+option, format, args...)
	}
	if !forebay.ValidName(name) {
		return forebay.Task{}, forebay.Invalid("tasks", "%.80q cannot name a task: 1 to 64 of a-z A-Z 0-9 . _ -", name)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	switch {
	case o.Queue != "" && !forebay.ValidName(o.Queue):
		return bad("queue", "%.80q cannot name a queue", o.Queue)
	case o.MaxAttempts < 0 || o.MaxAttempts > forebay.MaxAttemptsLimit:
		return bad("max_attempts", "must be 0 to %d", forebay.MaxAttemptsLimit)
	case o.Timeout < 0 || o.Timeout > maxTimeout:
		return bad("timeout", "must be 0 to %s", maxTimeout)
	}
	task := forebay.Task{Name: name, Queue: o.Queue, MaxAttempts: o.MaxAttempts}
	if o.HTTP != nil {
		for option, set := range map[string]bool{"extends": o.Extends != "", "model": o.Model != "", "models": o.Models != nil, "system": o.System != "", "prompt": o.Prompt != "",
			"max_output_tokens": o.MaxOutputTokens != 0, "temperature": o.Temperature != nil, "labels": o.Labels != nil} {
			if set {
				return bad(option, "a task with http calls no model")
			}
		}
		f, err := newFunction(name, o, c)
		if err != nil {
			return forebay.Task{}, err
		}
		task.Description = "HTTP function"
		task.Check, task.Run, task.Endpoint = f.check, f.run, "http:"+name
		task.RequestsPerMinute, task.Concurrency = o.HTTP.RequestsPerMinute, o.HTTP.Concurrency
		return task, nil
	}
	base := o.Extends
	if base == "" {
		if base = name; !isBuiltin(base) {
			base = "chat"
		}
	}
	k, ok := builtins[base]
	if !ok {
		return bad("extends", "no built-in task is named %.80q", base)
	}
	if o.Model == "" {
		o.Model = k.model
	}
	switch {
	case c.Models == nil:
		return bad("model", "there are no models")
	case c.ModelNames != nil && !slices.Contains(c.ModelNames, o.Model):
		return bad("model", "no model is named %.80q", o.Model)
	case o.MaxOutputTokens < 0 || o.MaxOutputTokens > maxTokens:
		return bad("max_output_tokens", "must be 0 to %d", maxTokens)
	case o.Temperature != nil && !(*o.Temperature >= 0 && *o.Temperature <= maxTemperature):
		return bad("temperature", "must be 0 to %d", maxTemperature)
	case o.Labels != nil && base != "classify":
		return bad("labels", "only for tasks that extend classify")
	case o.Models != nil && (base != "chat" || o.Prompt != ""):
		return bad("models", "only for tasks that extend chat, without a prompt of their own")
	}
	if err := checkModels(o.Models, c.ModelNames); err != nil {
		return bad("models", "%s", err)
	}
	if o.Labels != nil {
		if err := checkLabels(o.Labels); err != nil {
			return bad("labels", "%s", err)
		}
	}
	task.Description = k.description
	describe(&task, base)
	if base == "embed" {
		if o.System != "" || o.Prompt != "" || o.Temperature != nil || o.MaxOutputTokens != 0 {
			return bad("extends", "embed takes no prompt, temperature or max_output_tokens")
		}
		e := embedder{models: c.Models, model: o.Model, timeout: o.Timeout}
		task.Check, task.Run, task.Model, task.Estimate = e.check, e.run, o.Model, estimateEmbed
		return task, nil
	}
	p := &prompted{kind: k, option: o, models: c.Models, forwards: c.Forwards, maxOutputBytes: c.MaxOutputBytes}
	if base == "chat" && o.Prompt != "" {
		p.kind.parse, p.kind.refine = parseFree, nil
		task.Description = "prompt"
		describe(&task, "prompt")
	}
	compile := func(given, builtin string) (*template.Template, error) {
		t, err := newTemplate(cmp.Or(given, builtin), k.sample)
		if given != "" && err == nil {
			p.own = append(p.own, t)
		}
		return t, err
	}
	var err error
	if p.system, err = compile(o.System, k.system); err != nil {
		return bad("system", "%s", err)
	}
	if p.prompt, err = compile(o.Prompt, k.prompt); err != nil {
		return bad("prompt", "%s", err)
	}
	task.Check, task.Run, task.Model = p.check, p.run, o.Model
	task.Estimate = p.estimate(len(cmp.Or(o.System, k.system)) + len(cmp.Or(o.Prompt, k.prompt)))
	return task, nil
}

func isBuiltin(name string) bool {
	_, ok := builtins[name]
	return ok
}

// newTemplate parses a prompt. If the fields of the input are known, it also tries the prompt. It
// returns nil for an empty prompt.
func newTemplate(text string, sample map[string]any) (*template.Template, error) {
	if text == "" {
		return nil, nil
	}
	t, err := template.New("prompt").Option("missingkey=error").Parse(text)
	if err != nil || sample == nil {
		return t, err
	}
	return t, t.Execute(&bytes.Buffer{}, sample)
}

// underTimeout runs call. If the task's own timeout ends it, the error says so.
func underTimeout(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	timeout := &forebay.TaskError{Class: forebay.ClassTransient, Code: "timeout",
		Message: "the call took longer than " + limit.String(), Unmeasured: true, Err: context.DeadlineExceeded}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, timeout)
	defer cancel()
	err := call(ctx)
	if err != nil && errors.Is(context.Cause(ctx), timeout) {
		return timeout
	}
	return err
}

// invalidInput is the error of an input that Run finds wrong. Submit has accepted it under another
// configuration.
func invalidInput(err error) error {
	return &forebay.TaskError{Class: forebay.ClassPermanent, Code: "invalid_input", Message: err.Error(), Err: err}
}

func malformed(message string) error {
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeMalformedResponse, Message: message}
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
