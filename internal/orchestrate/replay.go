package orchestrate

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

// The engine compares what the code does, when it is replayed, with the history by number and kind, but not by
// name: an orchestrator that was changed under a running instance may so get one activity's result for that of
// another. Therefore the history is replayed here without the events that say what was scheduled. The engine then
// returns everything that the code asks for, the old and the new, and the comparison is ours.

// step is something an orchestrator has asked for.
type step struct{ kind, name string }

func (s step) String() string {
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

// stepOf returns what an event of the history says was asked for.
func stepOf(e *protos.HistoryEvent) (step, bool) {
	switch v := e.GetEventType().(type) {
	case *protos.HistoryEvent_TaskScheduled:
		return step{stepActivity, v.TaskScheduled.Name}, true
	case *protos.HistoryEvent_TimerCreated:
		return step{stepTimer, v.TimerCreated.GetName()}, true
	case *protos.HistoryEvent_ChildWorkflowInstanceCreated:
		return step{stepChild, v.ChildWorkflowInstanceCreated.Name}, true
	case *protos.HistoryEvent_DetachedWorkflowInstanceCreated:
		return step{stepDetached, v.DetachedWorkflowInstanceCreated.InstanceId}, true
	}
	return step{}, false
}

// stepOfAction returns what the code asks for now.
func stepOfAction(a *protos.WorkflowAction) (step, bool) {
	switch v := a.GetWorkflowActionType().(type) {
	case *protos.WorkflowAction_ScheduleTask:
		return step{stepActivity, v.ScheduleTask.Name}, true
	case *protos.WorkflowAction_CreateTimer:
		return step{stepTimer, v.CreateTimer.GetName()}, true
	case *protos.WorkflowAction_CreateChildWorkflow:
		return step{stepChild, v.CreateChildWorkflow.Name}, true
	case *protos.WorkflowAction_CreateDetachedWorkflow:
		return step{stepDetached, v.CreateDetachedWorkflow.InstanceId}, true
	}
	return step{}, false
}

// past is a history taken apart.
type scheduled struct {
	steps     map[int32]step
	last      int32 // the highest number of a step
	suspended bool
	rewound   bool // what had failed is missing from its steps, and is asked for again
}

func newScheduled() scheduled { return scheduled{steps: map[int32]step{}, last: -1} }

// without returns the events that say nothing of what was scheduled, and notes the others.
func (p *scheduled) takeFrom(events []*protos.HistoryEvent) []*protos.HistoryEvent {
	kept := make([]*protos.HistoryEvent, 0, len(events))
	for _, e := range events {
		if s, ok := stepOf(e); ok {
			p.steps[e.EventId] = s
			p.last = max(p.last, e.EventId)
			continue
		}
		switch {
		case e.GetExecutionSuspended() != nil:
			p.suspended = true
		case e.GetExecutionResumed() != nil:
			p.rewound = p.rewound || !p.suspended // as Rewind leaves it
			p.suspended = false
		}
		kept = append(kept, e)
	}
	return kept
}

var errVersion = errors.New("the version of the orchestrator that the instance began with is not registered here")

// replay lets the code of an orchestrator see its history and returns what it newly asks for.
func replay(ctx context.Context, code backend.Executor, id api.InstanceID, old, arrived []*protos.HistoryEvent) (resp *protos.WorkflowResponse, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = failureResponse(id, 0, "Panic", fmt.Sprint("the orchestrator panicked: ", v)), nil
		}
	}()
	pinVersion(old, arrived)
	p := newScheduled()
	resp, err = code.ExecuteWorkflow(ctx, id, p.takeFrom(old), p.takeFrom(arrived), backend.ExecuteOptions{})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(resp.Actions, func(a *protos.WorkflowAction) bool { return a.GetWorkflowVersionNotAvailable() != nil }) {
		return nil, errVersion
	}
	if p.suspended { // what the code asks for is not told then
		return resp, nil
	}
	if why := p.compare(resp.Actions); why != "" {
		return failureResponse(id, p.last+1, forebay.FailureNonDeterministic, why), nil
	}
	resp.Actions = slices.DeleteFunc(resp.Actions, func(a *protos.WorkflowAction) bool {
		_, known := p.steps[a.Id]
		return known
	})
	return resp, nil
}

// follows reports whether the code of an orchestrator, replayed, asks for all that a history has.
func matchesHistory(ctx context.Context, code backend.Executor, id api.InstanceID, history []*protos.HistoryEvent) (does bool) {
	defer func() {
		if recover() != nil {
			does = false
		}
	}()
	pinVersion(history, nil)
	p := newScheduled()
	resp, err := code.ExecuteWorkflow(ctx, id, p.takeFrom(history), nil, backend.ExecuteOptions{})
	return err == nil && p.compare(resp.Actions) == ""
}

// pin has an instance run the version that it was started with, if its caller named one, or else the one that it ran first: its code
// need not have run in the first turn.
func pinVersion(old, arrived []*protos.HistoryEvent) {
	var first *protos.WorkflowStartedEvent
	for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
		for _, e := range events {
			item := e.GetWorkflowStarted()
			switch {
			case item == nil:
				continue
			case first == nil:
				if named := started(old, arrived).GetVersion(); named != nil && item.Version == nil {
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

// compare returns how what the code asks for differs from the history; "": it does not.
func (p *scheduled) compare(actions []*protos.WorkflowAction) string {
	found := 0
	for _, a := range actions {
		now, isStep := stepOfAction(a)
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
		case isStep && a.Id < p.last && !p.rewound:
			return fmt.Sprintf("the code now asks for %s as event %d, which the history does not have: it has changed in a way that this instance cannot follow", now, a.Id)
		}
	}
	if found == len(p.steps) {
		return ""
	}
	missing, asked := p.last, map[int32]bool{}
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

// asBefore is the custom status of a response that leaves the instance's as it is. It is known by its address.
var unchangedStatus = wrapperspb.String("")

// failed is the response of code that fails its instance.
func failureResponse(id api.InstanceID, number int32, kind, message string) *protos.WorkflowResponse {
	return &protos.WorkflowResponse{InstanceId: string(id), CustomStatus: unchangedStatus, Actions: []*protos.WorkflowAction{{
		Id: number,
		WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
			WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED,
			FailureDetails: &protos.TaskFailureDetails{ErrorType: kind, ErrorMessage: message, IsNonRetriable: true},
		}},
	}}}
}
