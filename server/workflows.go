package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
	"github.com/forebayhq/forebay/internal/workflow"
)

// Workflow describes a declared workflow. It is started as an orchestration of the same name.
type Workflow struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Version     string   `json:"version"` // digest of its text
	File        string   `json:"file,omitempty"`
	Steps       []string `json:"steps"`
	Tasks       []string `json:"tasks"` // the tasks that it calls, each once
}

// DeclaredWorkflows returns the workflows of the options with their defaults applied, sorted by
// name. They are those of the files, and the built-in ones whose tasks exist and which no file
// replaces. An error lists all problems of the files.
func (o Options) DeclaredWorkflows() ([]Workflow, error) {
	definitions, err := o.workflows()
	if err != nil {
		return nil, err
	}
	var all []Workflow
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		all = append(all, definitions[name].describe())
	}
	return all, nil
}

// CheckWorkflow checks a workflow file against the options with their defaults applied. The error
// lists all problems, each in a line that begins with FILE:LINE:COLUMN.
func (o Options) CheckWorkflow(file string) (Workflow, error) {
	known, err := o.known()
	if err != nil {
		return Workflow{}, err
	}
	d, err := readWorkflow(file, known)
	if err != nil {
		return Workflow{}, err
	}
	return declared{d, file}.describe(), nil
}

// declared is a workflow and its file, which is "" for a built-in one.
type declared struct {
	*workflow.Definition
	file string
}

func (d declared) describe() Workflow {
	w := Workflow{Name: d.Name, Description: d.Description, Version: d.Version, File: d.file}
	for _, s := range d.Steps {
		w.Steps = append(w.Steps, s.Name)
		if !slices.Contains(w.Tasks, s.Task) {
			w.Tasks = append(w.Tasks, s.Task)
		}
	}
	return w
}

// known returns the names that workflows may use.
func (o Options) known() (workflow.Known, error) {
	_, tasks, err := o.models(nil, nil)
	return workflow.Known{
		Task:  func(name string) bool { _, ok := tasks[name]; return ok },
		Queue: func(name string) bool { _, ok := o.Queues[name]; return ok },
	}, err
}

func (o Options) workflows() (map[string]declared, error) {
	known, err := o.known()
	if err != nil {
		return nil, err
	}
	all := map[string]declared{}
	var errs []error
	for i, file := range o.Workflows {
		field := fmt.Sprintf("workflows[%d]", i)
		d, err := readWorkflow(file, known)
		var problems workflow.Problems
		switch {
		case errors.As(err, &problems):
			for _, p := range problems {
				errs = append(errs, forebay.Invalid(field, "%s", p.Error()))
			}
		case err != nil:
			errs = append(errs, forebay.Invalid(field, "%s", err.Error()))
		case all[d.Name].Definition != nil:
			errs = append(errs, forebay.Invalid(field, "%s: there is a workflow %s in %s already", file, d.Name, all[d.Name].file))
		default:
			all[d.Name] = declared{d, file}
		}
	}
	for _, d := range workflow.Builtin() {
		if all[d.Name].Definition == nil && d.Check(known) == nil {
			all[d.Name] = declared{d, ""}
		}
	}
	return all, errors.Join(errs...)
}

func (o Options) validateWorkflows() []error {
	if _, err := o.workflows(); err != nil {
		return []error{err}
	}
	return nil
}

func readWorkflow(file string, known workflow.Known) (*workflow.Definition, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", file, rootCause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, workflow.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", file, rootCause(err))
	}
	d, err := workflow.Parse(file, text)
	if err == nil {
		err = d.Check(known)
	}
	return d, err
}

// workflowActivity is the prefix of the activities that return the text of a workflow. An instance
// calls its activity first. So its history contains the text it began with, and only processes
// with the workflow take the call.
const workflowActivity = "forebay.workflow/"

// begunWith is the result of that activity.
type begunWith struct {
	Version    string `json:"version"`
	Definition string `json:"definition"`
}

// workflows runs declared workflows.
type workflows struct {
	limit int64    // largest input, in bytes
	read  sync.Map // definitions by text, for the few texts of running instances
}

// register adds the workflows and returns what clients may know of them, by name.
func (w *workflows) register(r *orchestrate.Registry, all map[string]declared) (known []forebay.Workflow, err error) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := all[name]
		err := r.AddOrdered(name, func(ctx *task.WorkflowContext, ended []orchestrate.Ended, now time.Time) (any, error) {
			return w.run(ctx, name, ended, now)
		})
		if err == nil {
			err = r.AddActivity(workflowActivity+name, func(context.Context, json.RawMessage) (any, error) { return begunWith{d.Version, d.Text}, nil })
		}
		switch {
		case err == nil:
			known = append(known, d.Outline())
		case d.file != "": // a function may replace a built-in workflow
			return nil, err
		}
	}
	return known, nil
}

func (w *workflows) definition(name, text string) (*workflow.Definition, error) {
	if d, ok := w.read.Load(text); ok {
		return d.(*workflow.Definition), nil
	}
	d, err := workflow.Parse(name, []byte(text))
	if err != nil {
		return nil, forebay.Invalid("definition", "of the workflow cannot be read any more: %s", err.Error())
	}
	w.read.Store(text, d)
	return d, nil
}

// run is the orchestrator of every workflow. It must be deterministic, because it is replayed.
func (w *workflows) run(ctx *task.WorkflowContext, name string, ended []orchestrate.Ended, now time.Time) (any, error) {
	var began begunWith
	if err := ctx.CallActivity(workflowActivity + name).Await(&began); err != nil {
		return nil, awaited(err)
	}
	d, err := w.definition(name, began.Definition)
	if err != nil {
		return nil, err
	}
	var input json.RawMessage
	if err := ctx.GetInput(&input); err != nil {
		return nil, forebay.Invalid("input", "is no JSON")
	}
	run := workflow.NewRun(d, input, w.limit)
	begun := []task.Task{}
	begin := func() {
		for _, call := range run.Next() {
			begun = append(begun, ctx.CallActivity(orchestrate.TaskActivity, requestOf(now, call)))
		}
	}
	const first = 1 // number of the first call in the history; 0 is the definition
	begin()
	for i, e := range ended {
		number := int(e.ID) - first
		if number < 0 || number >= len(begun) || begun[number] == nil {
			continue // the definition, or an error that the replay will report
		}
		var result json.RawMessage
		err := awaited(begun[number].Await(&result))
		begun[number] = nil
		if err == nil {
			run.Ended(number, result, nil)
		} else {
			run.Ended(number, nil, &workflow.Failure{Type: e.Failure, Message: err.Error()})
			ended[i].Handled = run.Tolerates(number)
		}
		begin()
	}
	ctx.SetCustomStatus(statusOf(d, run))
	if run.Done() {
		output, failure := run.Output()
		if failure != nil {
			return nil, failure
		}
		return output, nil
	}
	for _, call := range begun {
		if call != nil {
			return nil, call.Await(nil) // it has not ended, so this ends the work item
		}
	}
	return nil, forebay.Errorf(forebay.CodeInternal, "the workflow waits for nothing")
}

// requestOf returns the job of a call that is made now.
func requestOf(now time.Time, call workflow.Call) task.CallActivityOption {
	o := call.Step.Options
	req := orchestrate.TaskRequest{Task: call.Step.Task, Input: call.Input, Queue: o.Queue, Priority: o.Priority, MaxAttempts: o.MaxAttempts,
		MaxCostUSD: o.MaxCostUSD, MaxTotalTokens: o.MaxTotalTokens}
	if o.Timeout > 0 {
		deadline := now.Add(o.Timeout)
		req.Deadline = &deadline
	}
	return task.WithRawActivityInput(policy.ActivityInput(req, forebay.RetryPolicy{}))
}

// statusOf returns the custom status of the instance.
func statusOf(d *workflow.Definition, run *workflow.Run) string {
	status, _ := json.Marshal(struct {
		Version string                     `json:"workflow_version"`
		Steps   map[string]workflow.Status `json:"steps"`
	}{d.Version, run.Statuses()}) // it has only texts
	return string(status)
}
