package orchestrate

import (
	"context"
	"errors"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// OrderedFunc is an orchestrator that gets the order in which its activities ended. The engine
// lets code await one task after the other, but not whichever ends first. With the order from
// the history it can, and each replay does the same.
//
// now is when this work item began. Steps that are repeated after a rewind are asked for now,
// but ctx shows the time of the original step.
type OrderedFunc func(ctx *task.WorkflowContext, ended []Ended, now time.Time) (any, error)

// Ended is an activity that has ended, without further retries.
type Ended struct {
	ID      int32  // the id of its step, from 0
	Failure string // the type of its failure; "": it succeeded
	// Handled is set by the orchestrator if it handles the failure. A rewind keeps handled
	// failures and repeats the other failed activities. So after a failure that it does not
	// handle the orchestrator must ask for nothing.
	Handled bool
}

// AddOrdered registers an orchestrator. It has one version.
func (r *Registry) AddOrdered(name string, f OrderedFunc) error {
	if !forebay.ValidText(name, MaxNameBytes) {
		return forebay.Invalid("orchestrator", "%q cannot be a name", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orchestrators[name] {
		return forebay.Invalid("orchestrator", "%s is registered twice", name)
	}
	r.orchestrators[name], r.ordered[name] = true, f
	return nil
}

func (r *Registry) orderedFunc(name string) OrderedFunc {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ordered[name]
}

// executeOrdered replays an ordered orchestrator. An error that has a FailureType fails the
// instance with that type.
func (x executor) executeOrdered(ctx context.Context, f OrderedFunc, id api.InstanceID, name string, old, arrived []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	run := newOrderedRun(old, arrived)
	code, err := run.code(name, f, EngineLog{x.log})
	if err != nil {
		return nil, err
	}
	resp, err := history.Replay(ctx, code, id, old, arrived)
	var typed interface {
		error
		FailureType() string
	}
	if errors.As(run.outcome, &typed) {
		for _, a := range resp.GetActions() {
			if details := a.GetCompleteWorkflow().GetFailureDetails(); details != nil && details.ErrorMessage == run.outcome.Error() {
				details.ErrorType = typed.FailureType()
			}
		}
	}
	return resp, err
}

// orderedRun is one replay of an ordered orchestrator: its arguments, and its outcome.
type orderedRun struct {
	ended   []Ended
	now     time.Time
	outcome error
}

func newOrderedRun(old, arrived []*protos.HistoryEvent) *orderedRun {
	r := &orderedRun{ended: endedOf(old, arrived)}
	for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
		for _, e := range events {
			if e.GetWorkflowStarted() != nil {
				r.now = e.GetTimestamp().AsTime()
			}
		}
	}
	return r
}

func (r *orderedRun) code(name string, f OrderedFunc, log EngineLog) (backend.Executor, error) {
	registry := task.NewTaskRegistry()
	err := registry.AddVersionedWorkflowN(name, "", true, func(ctx *task.WorkflowContext) (v any, err error) {
		v, r.outcome = f(ctx, r.ended, r.now)
		return v, r.outcome
	})
	return task.NewTaskExecutorWithLogger(registry, log), err
}

func endedOf(old, arrived []*protos.HistoryEvent) (order []Ended) {
	for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
		for _, e := range events {
			if done := e.GetTaskCompleted(); done != nil {
				order = append(order, Ended{ID: done.TaskScheduledId})
			} else if f := e.GetTaskFailed(); f != nil {
				order = append(order, Ended{ID: f.TaskScheduledId, Failure: f.GetFailureDetails().GetErrorType()})
			}
		}
	}
	return order
}
