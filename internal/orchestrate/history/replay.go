package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
)

// The engine compares a replay with the history by step number and kind, but not by name. So
// after a change of the code an instance could get the result of one activity for another. Here
// the history is replayed without its scheduling events. The engine then returns all steps that
// the code asks for, old and new, and this package compares them with the history by name.

// Step is something that an orchestrator asks for.
type Step struct{ kind, name string }

func (s Step) String() string {
	if s.name == "" {
		return s.kind
	}
	return fmt.Sprintf("%s %q", s.kind, s.name)
}

const (
	stepActivity = "the activity"
	stepTimer    = "a timer"
	stepChild    = "the sub-orchestration"
	stepDetached = "the new orchestration"
)

// StepOf returns the step that a history event records.
func StepOf(e *protos.HistoryEvent) (Step, bool) {
	switch v := e.GetEventType().(type) {
	case *protos.HistoryEvent_TaskScheduled:
		return Step{stepActivity, v.TaskScheduled.Name}, true
	case *protos.HistoryEvent_TimerCreated:
		return Step{stepTimer, v.TimerCreated.GetName()}, true
	case *protos.HistoryEvent_ChildWorkflowInstanceCreated:
		return Step{stepChild, v.ChildWorkflowInstanceCreated.Name}, true
	case *protos.HistoryEvent_DetachedWorkflowInstanceCreated:
		return Step{stepDetached, v.DetachedWorkflowInstanceCreated.InstanceId}, true
	}
	return Step{}, false
}

// StepOfAction returns the step that an action of a response asks for.
func StepOfAction(a *protos.WorkflowAction) (Step, bool) {
	switch v := a.GetWorkflowActionType().(type) {
	case *protos.WorkflowAction_ScheduleTask:
		return Step{stepActivity, v.ScheduleTask.Name}, true
	case *protos.WorkflowAction_CreateTimer:
		return Step{stepTimer, v.CreateTimer.GetName()}, true
	case *protos.WorkflowAction_CreateChildWorkflow:
		return Step{stepChild, v.CreateChildWorkflow.Name}, true
	case *protos.WorkflowAction_CreateDetachedWorkflow:
		return Step{stepDetached, v.CreateDetachedWorkflow.InstanceId}, true
	}
	return Step{}, false
}

// Scheduled are the steps that a history records.
type Scheduled struct {
	steps     map[int32]Step
	Last      int32 // the highest id of a step
	suspended bool
	rewound   bool // failed steps are missing and are asked for again
}

// NewScheduled returns an empty set of steps.
func NewScheduled() Scheduled { return Scheduled{steps: map[int32]Step{}, Last: -1} }

// TakeFrom notes the scheduling events and returns all others.
func (p *Scheduled) TakeFrom(events []*protos.HistoryEvent) []*protos.HistoryEvent {
	kept := make([]*protos.HistoryEvent, 0, len(events))
	for _, e := range events {
		if s, ok := StepOf(e); ok {
			p.steps[e.EventId] = s
			p.Last = max(p.Last, e.EventId)
			continue
		}
		switch {
		case e.GetExecutionSuspended() != nil:
			p.suspended = true
		case e.GetExecutionResumed() != nil:
			p.rewound = p.rewound || !p.suspended // a rewind leaves a resume without a suspension
			p.suspended = false
		}
		kept = append(kept, e)
	}
	return kept
}

var errVersion = errors.New("the version of the orchestrator that the instance began with is not registered here")

// Replay runs the code of an orchestrator over its history and returns the new actions.
func Replay(ctx context.Context, code backend.Executor, id api.InstanceID, old, arrived []*protos.HistoryEvent) (resp *protos.WorkflowResponse, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = Failed(id, 0, "Panic", fmt.Sprint("the orchestrator panicked: ", v)), nil
		}
	}()
	pinVersion(old, arrived)
	p := NewScheduled()
	resp, err = code.ExecuteWorkflow(ctx, id, p.TakeFrom(old), p.TakeFrom(arrived), backend.ExecuteOptions{})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(resp.Actions, func(a *protos.WorkflowAction) bool { return a.GetWorkflowVersionNotAvailable() != nil }) {
		return nil, errVersion
	}
	if p.suspended { // the engine drops the actions then
		return resp, nil
	}
	if why := p.compare(resp.Actions); why != "" {
		return Failed(id, p.Last+1, forebay.FailureNonDeterministic, why), nil
	}
	resp.Actions = slices.DeleteFunc(resp.Actions, func(a *protos.WorkflowAction) bool {
		_, known := p.steps[a.Id]
		return known
	})
	return resp, nil
}

// Matches reports whether replayed code asks for exactly the steps of a history.
func Matches(ctx context.Context, code backend.Executor, id api.InstanceID, past []*protos.HistoryEvent) (does bool) {
	defer func() {
		if recover() != nil {
			does = false
		}
	}()
	pinVersion(past, nil)
	p := NewScheduled()
	resp, err := code.ExecuteWorkflow(ctx, id, p.TakeFrom(past), nil, backend.ExecuteOptions{})
	return err == nil && p.compare(resp.Actions) == ""
}

// pinVersion has an instance run the version that its caller named, or else the one it ran
// first. The code need not have run in the first work item.
func pinVersion(old, arrived []*protos.HistoryEvent) {
	var first *protos.WorkflowStartedEvent
	for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
		for _, e := range events {
			item := e.GetWorkflowStarted()
			switch {
			case item == nil:
				continue
			case first == nil:
				if named := Started(old, arrived).GetVersion(); named != nil && item.Version == nil {
					item.Version = &protos.WorkflowVersion{Name: &named.Value}
				}
				first = item
			case item.Version != nil:
				first.Version = item.Version
			}
			if first.Version != nil {
				return
			}
		}
	}
}

// compare says how the actions differ from the history; "": they do not.
func (p *Scheduled) compare(actions []*protos.WorkflowAction) string {
	found := 0
	for _, a := range actions {
		now, isStep := StepOfAction(a)
		then, was := p.steps[a.Id]
		switch {
		case was && (!isStep || now != then):
			what := now.String()
			if !isStep {
				what = "an end"
			}
			return fmt.Sprintf("event %d of the history is %s, but the code now asks for %s there: it has changed in a way that this instance cannot follow", a.Id, then, what)
		case was:
			found++
		case isStep && a.Id < p.Last && !p.rewound:
			return fmt.Sprintf("the code now asks for %s as event %d, which the history does not have: it has changed in a way that this instance cannot follow", now, a.Id)
		}
	}
	if found == len(p.steps) {
		return ""
	}
	missing, asked := p.Last, map[int32]bool{}
	for _, a := range actions {
		asked[a.Id] = true
	}
	for id := range p.steps {
		if !asked[id] {
			missing = min(missing, id)
		}
	}
	return fmt.Sprintf("event %d of the history is %s, for which the code does not ask any more: it has changed in a way that this instance cannot follow", missing, p.steps[missing])
}

// UnchangedStatus as the custom status of a response leaves the instance's status unchanged. It
// is recognised by its address.
var UnchangedStatus = wrapperspb.String("")

// Failed is the response that fails an instance.
func Failed(id api.InstanceID, number int32, kind, message string) *protos.WorkflowResponse {
	return &protos.WorkflowResponse{InstanceId: string(id), CustomStatus: UnchangedStatus, Actions: []*protos.WorkflowAction{{
		Id: number,
		WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
			WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED,
			FailureDetails: &protos.TaskFailureDetails{ErrorType: kind, ErrorMessage: message, IsNonRetriable: true},
		}},
	}}}
}

// Started returns the start event of the execution; nil: there is none.
func Started(old, arrived []*protos.HistoryEvent) *protos.ExecutionStartedEvent {
	for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
		for _, e := range events {
			if s := e.GetExecutionStarted(); s != nil {
				return s
			}
		}
	}
	return nil
}
