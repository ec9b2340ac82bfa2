package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/forebayhq/forebay"
)

// Status is where a step stands.
type Status string

// The statuses of a step. The last three are final.
const (
	Waiting   Status = "waiting"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Skipped   Status = "skipped"
)

// TypeExpression is the type of failures of expressions.
const TypeExpression = "expression_failed"

// Failure is why a step failed.
type Failure struct {
	Step    string // "": the output
	Item    int    // of the list, from 0; -1: the step has none, or its list failed
	Type    string // the code of the job's error, or TypeExpression
	Message string
}

func (f *Failure) Error() string {
	switch {
	case f.Step == "":
		return "output: " + f.Message
	case f.Item >= 0:
		return fmt.Sprintf("step %s, item %d: %s", f.Step, f.Item, f.Message)
	}
	return fmt.Sprintf("step %s: %s", f.Step, f.Message)
}

// FailureType is the type of the failure that the instance has.
func (f *Failure) FailureType() string { return f.Type }

// Call is a call of a task that may begin now.
type Call struct {
	Number int // from 0, in the order in which calls begin
	Step   *Step
	Input  json.RawMessage
}

// Run is the state of an instance. It must be told of the ends of its calls in the order in which
// they happened.
type Run struct {
	definition *Definition
	input      json.RawMessage
	limit      int64
	steps      []progress
	calls      []callOf
	open       int
	failure    *Failure
	decoded    map[string]any // the workflow's input and steps' results as expressions see them
}

// progress is the state of a step.
type progress struct {
	status  Status
	result  json.RawMessage
	failure *Failure
	// For a step that runs over a list:
	items   []any
	results []json.RawMessage
	begun   int // how many items
	open    int
}

// callOf is which step and item a call is for.
type callOf struct{ step, item int }

// NewRun begins an instance. Limit bounds each input and the output, in bytes.
func NewRun(d *Definition, input json.RawMessage, limit int64) *Run {
	r := &Run{definition: d, input: input, limit: limit, steps: make([]progress, len(d.Steps)), decoded: map[string]any{}}
	for i := range r.steps {
		r.steps[i].status = Waiting
	}
	return r
}

// Next returns the calls that may begin now. After a failure there are none.
func (r *Run) Next() (calls []Call) {
	for again := true; again; {
		again = false
		for n := range r.steps {
			p := &r.steps[n]
			switch {
			case r.failure != nil:
				return calls
			case p.status == Waiting && r.ready(n):
				if call, ok := r.begin(n); ok {
					calls = append(calls, call)
				}
				again = again || p.status.final()
			case p.status != Running || p.items == nil:
				continue
			}
			for p.status == Running && p.items != nil && p.open < r.definition.Steps[n].parallel && p.begun < len(p.items) && r.failure == nil {
				if call, ok := r.beginItem(n); ok {
					calls = append(calls, call)
				}
				again = again || p.status.final()
			}
		}
	}
	return calls
}

func (s Status) final() bool { return s == Succeeded || s == Failed || s == Skipped }

func (r *Run) ready(n int) bool {
	return !slices.ContainsFunc(r.definition.Steps[n].After, func(before int) bool { return !r.steps[before].status.final() })
}

// begin starts a step that is ready. The step may already have ended when it returns.
func (r *Run) begin(n int) (call Call, ok bool) {
	s, p := r.definition.Steps[n], &r.steps[n]
	if s.condition != nil {
		v, err := s.condition.evaluate(r.env(s.condition))
		met, isBool := v.(bool)
		switch {
		case err != nil:
			r.fail(n, -1, r.failed(err, s.condition.at))
			return Call{}, false
		case !isBool:
			r.fail(n, -1, r.failed(&evaluationError{s.condition.at, "gives neither true nor false"}, s.condition.at))
			return Call{}, false
		case !met:
			p.status = Skipped
			return Call{}, false
		}
	}
	p.status = Running
	if s.each == nil {
		return r.call(n, -1)
	}
	items, err := r.list(s)
	if err != nil {
		r.fail(n, -1, r.failed(err, s.each.at))
		return Call{}, false
	}
	p.items, p.results = items, make([]json.RawMessage, len(items))
	r.finishList(n)
	return Call{}, false
}

// list returns what a step runs over.
func (r *Run) list(s *Step) ([]any, error) {
	raw, err := s.each.json(r.env(s.each.expressions()...), r.limit)
	if err != nil {
		return nil, err
	}
	v, err := decodeValue(raw)
	if err != nil {
		return nil, err
	}
	items, ok := v.([]any)
	switch {
	case !ok:
		return nil, &evaluationError{s.each.at, "for_each gives no list"}
	case len(items) > MaxItems:
		return nil, &evaluationError{s.each.at, fmt.Sprintf("for_each gives a list of %d items; the limit is %d", len(items), MaxItems)}
	}
	return items, nil
}

func (r *Run) beginItem(n int) (Call, bool) {
	p := &r.steps[n]
	p.begun++
	p.open++
	return r.call(n, p.begun-1)
}

// call makes a call of a step, for an item if item is not negative. A call whose input cannot be
// rendered has already failed.
func (r *Run) call(n, item int) (Call, bool) {
	s := r.definition.Steps[n]
	input, err := r.inputOf(n, item)
	if err != nil {
		at := s.at
		if s.input != nil {
			at = s.input.at
		}
		r.end(n, item, nil, r.failed(err, at))
		return Call{}, false
	}
	r.calls = append(r.calls, callOf{n, item})
	r.open++
	return Call{Number: len(r.calls) - 1, Step: s, Input: input}, true
}

func (r *Run) inputOf(n, item int) (json.RawMessage, error) {
	s, p := r.definition.Steps[n], &r.steps[n]
	switch {
	case s.input == nil && item >= 0:
		return forebay.EncodeJSON(p.items[item])
	case s.input == nil && len(r.input) == 0:
		return json.RawMessage("null"), nil
	case s.input == nil:
		return r.input, nil
	}
	env := r.env(s.input.expressions()...)
	if item >= 0 {
		env[nameItem], env[nameIndex] = p.items[item], item
	}
	return s.input.json(env, r.limit)
}

// Ended says that a call has ended, with a result or a failure.
func (r *Run) Ended(number int, result json.RawMessage, failure *Failure) {
	c := r.calls[number]
	r.open--
	r.end(c.step, c.item, result, failure)
}

// Tolerates reports whether the workflow goes on after a failure of that call.
func (r *Run) Tolerates(number int) bool {
	return r.definition.Steps[r.calls[number].step].ContinueOnError
}

func (r *Run) end(n, item int, result json.RawMessage, failure *Failure) {
	p := &r.steps[n]
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	switch {
	case failure != nil:
		r.fail(n, item, failure)
	case item < 0:
		p.status, p.result = Succeeded, result
	default:
		p.results[item] = result
	}
	if item >= 0 {
		p.open--
		r.finishList(n)
	}
}

// finishList ends a step when the last of its items has ended.
func (r *Run) finishList(n int) {
	p := &r.steps[n]
	if p.begun < len(p.items) || p.open > 0 {
		return
	}
	for i := range p.results {
		if p.results[i] == nil {
			p.results[i] = json.RawMessage("null")
		}
	}
	if p.status = Succeeded; p.failure != nil {
		p.status = Failed
	}
	p.result, _ = forebay.EncodeJSON(p.results) // is JSON already
	p.items, p.results = nil, nil
}

// fail records a failure. A failure of an item is its step's, and the workflow may tolerate it.
func (r *Run) fail(n, item int, f *Failure) {
	s, p := r.definition.Steps[n], &r.steps[n]
	f.Step, f.Item = s.Name, item
	if item < 0 || !s.ContinueOnError {
		p.status = Failed
	}
	if p.failure == nil {
		p.failure = f
	}
	if !s.ContinueOnError && r.failure == nil {
		r.failure = f
	}
}

// failed is the failure of an expression, with its position in the file.
func (r *Run) failed(err error, at Position) *Failure {
	message := "gives no JSON"
	if e, ok := errors.AsType[*evaluationError](err); ok {
		at, message = e.at, e.message
	}
	return &Failure{Item: -1, Type: TypeExpression, Message: Problem{r.definition.file, at, message}.Error()}
}

// Done reports whether nothing begins and nothing is awaited any more. After a failure, calls
// under way are still awaited.
func (r *Run) Done() bool {
	if r.open > 0 {
		return false
	}
	return r.failure != nil || !slices.ContainsFunc(r.steps, func(p progress) bool { return !p.status.final() })
}

// Output returns the output of the workflow once it is done, or its first failure.
func (r *Run) Output() (json.RawMessage, *Failure) {
	if r.failure != nil {
		return nil, r.failure
	}
	t := r.definition.output
	if t == nil {
		results := map[string]json.RawMessage{}
		for i, s := range r.definition.Steps {
			results[s.Name] = r.steps[i].result
		}
		raw, _ := forebay.EncodeJSON(results) // is JSON already
		return raw, nil
	}
	raw, err := t.json(r.env(t.expressions()...), r.limit)
	if err != nil {
		return nil, r.failed(err, t.at)
	}
	return raw, nil
}

// Statuses returns the status of each step, by name.
func (r *Run) Statuses() map[string]Status {
	all := map[string]Status{}
	for i, s := range r.definition.Steps {
		all[s.Name] = r.steps[i].status
	}
	return all
}

// env returns the names that the expressions use, with their values.
func (r *Run) env(expressions ...*expression) map[string]any {
	steps := map[string]any{}
	env := map[string]any{nameSteps: steps}
	for _, e := range expressions {
		if e.useInput {
			env[nameInput] = r.decode("", r.input)
		}
		for _, name := range e.steps {
			n := slices.IndexFunc(r.definition.Steps, func(s *Step) bool { return s.Name == name })
			p := &r.steps[n]
			seen := map[string]any{"status": string(p.status), "result": r.decode(name, p.result), "error": nil}
			if p.failure != nil {
				seen["error"] = map[string]any{"type": p.failure.Type, "message": p.failure.Message}
			}
			steps[name] = seen
		}
	}
	return env
}

// decode reads JSON, once for each name.
func (r *Run) decode(name string, raw json.RawMessage) any {
	v, ok := r.decoded[name]
	if !ok {
		v, _ = decodeValue(raw) // what the server stores is JSON
		r.decoded[name] = v
	}
	return v
}
