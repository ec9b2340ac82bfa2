package durabletask

import (
	"fmt"
	"strings"

	"github.com/dapr/durabletask-go/api/helpers"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend/runtimestate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// A worker may send anything as its response. The engine applies a response on a goroutine of
// its own, where a panic would end this process. So a response is checked first, and then
// applied once to a copy.

// failureInvalidAnswer is the failure type of an instance whose worker sent an invalid response.
const failureInvalidAnswer = "InvalidAnswer"

// checkedResponse returns a worker's response, or one that fails the instance if it cannot be
// applied.
func (s *Server) checkedResponse(resp *protos.WorkflowResponse, id string, old, arrived []*protos.HistoryEvent) *protos.WorkflowResponse {
	for _, a := range resp.GetActions() {
		stripAction(a)
	}
	why := firstOf(checkResponse(resp), checkInProgress(resp, old, arrived))
	if why == "" && s.dryRun(resp, id, old, arrived) != nil {
		why = "what it asks for cannot be carried out"
	}
	if why == "" {
		return resp
	}
	return failed(id, old, arrived, failureInvalidAnswer, "the orchestrator's answer is not valid: "+why)
}

// stripAction removes the routing and the history propagation of an action. There is one server,
// and nobody reads a propagated history, of which each action would hold a copy. It also removes
// a trace context that cannot be read.
func stripAction(a *protos.WorkflowAction) {
	if a == nil {
		return
	}
	a.Router = nil
	if t := a.GetScheduleTask(); t != nil {
		t.HistoryPropagationScope = nil
	}
	if c := a.GetCreateChildWorkflow(); c != nil {
		c.HistoryPropagationScope = nil
	}
	if d := a.GetCreateDetachedWorkflow(); d != nil && checkTrace(d.ParentTraceContext) != "" {
		d.ParentTraceContext = nil
	}
}

// dryRun applies a response to a copy of the instance without its history.
func (s *Server) dryRun(resp *protos.WorkflowResponse, id string, old, arrived []*protos.HistoryEvent) error {
	return panics.Run(s.log, "the answer of an orchestrator", func() error {
		start := history.Started(old, arrived)
		if start == nil {
			return history.ErrUnreadable
		}
		helpers.ActionListSummary(resp.Actions)
		actions := make([]*protos.WorkflowAction, len(resp.Actions))
		for i, a := range resp.Actions {
			actions[i] = proto.CloneOf(a)
		}
		state := &protos.WorkflowRuntimeState{InstanceId: id, StartEvent: proto.CloneOf(start)}
		_, err := runtimestate.NewApplier("", "").Actions(state, resp.CustomStatus, actions, nil, nil)
		return err
	})
}

// maxActions bounds the actions of a response. More would not fit into a history.
const maxActions = orchestrate.MaxHistoryEvents

// checkResponse says why a response cannot be applied; "": it can.
func checkResponse(resp *protos.WorkflowResponse) string {
	if len(resp.Actions) > maxActions {
		return fmt.Sprintf("it has %d actions; the limit is %d", len(resp.Actions), maxActions)
	}
	asked := map[int32]bool{}
	for i, a := range resp.Actions {
		if why := checkAction(a); why != "" {
			return fmt.Sprintf("action %d %s", i, why)
		}
		if _, isStep := history.StepOfAction(a); !isStep {
			continue
		}
		if a.Id < 0 || a.Id >= stepIDStride {
			return fmt.Sprintf("action %d has the id %d; ids are 0 to %d", i, a.Id, stepIDStride-1)
		}
		if asked[a.Id] {
			return fmt.Sprintf("action %d has the id %d, as another has", i, a.Id)
		}
		asked[a.Id] = true
	}
	if v := resp.GetVersion(); v != nil {
		if why := checkText("its version", v.GetName(), orchestrate.MaxVersionBytes, true); why != "" {
			return why
		}
		for _, patch := range v.GetPatches() {
			if why := checkText("a patch of its version", patch, orchestrate.MaxVersionBytes, true); why != "" {
				return why
			}
		}
	}
	return ""
}

// checkInProgress refuses an activity with the id of one that is in progress: both could not be
// stored. Ids are compared as the worker gave them, as in withWorkerStepIDs.
func checkInProgress(resp *protos.WorkflowResponse, old, arrived []*protos.HistoryEvent) string {
	var underWay map[int32]bool // made once an activity is asked for
	for i, a := range resp.Actions {
		if a.GetScheduleTask() == nil {
			continue
		}
		if underWay == nil {
			underWay = map[int32]bool{}
			for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
				for _, e := range events {
					if e.GetTaskScheduled() != nil {
						underWay[e.EventId%stepIDStride] = true
					} else if e.GetTaskCompleted() != nil {
						delete(underWay, e.GetTaskCompleted().GetTaskScheduledId()%stepIDStride)
					} else if e.GetTaskFailed() != nil {
						delete(underWay, e.GetTaskFailed().GetTaskScheduledId()%stepIDStride)
					}
				}
			}
		}
		if underWay[a.Id] {
			return fmt.Sprintf("action %d has the id %d of an activity that has not ended", i, a.Id)
		}
	}
	return ""
}

// checkAction says what is wrong with an action; "": nothing.
func checkAction(a *protos.WorkflowAction) string {
	if a == nil {
		return "is missing"
	}
	switch v := a.GetWorkflowActionType().(type) {
	case *protos.WorkflowAction_ScheduleTask:
		t := v.ScheduleTask
		return firstOf(
			present(t != nil),
			checkText("has as the name of an activity", t.GetName(), orchestrate.MaxNameBytes, false),
			checkText("has as its version", t.GetVersion().GetValue(), orchestrate.MaxVersionBytes, true),
			checkText("has as its execution id", t.GetTaskExecutionId(), orchestrate.MaxInstanceIDBytes, true))
	case *protos.WorkflowAction_CreateTimer:
		return firstOf(
			present(v.CreateTimer != nil),
			checkText("has as the name of a timer", v.CreateTimer.GetName(), orchestrate.MaxInstanceIDBytes, true),
			checkTime("has a timer", v.CreateTimer.GetFireAt(), true))
	case *protos.WorkflowAction_CreateChildWorkflow:
		c := v.CreateChildWorkflow
		return firstOf(
			present(c != nil),
			checkText("has as the name of a sub-orchestration", c.GetName(), orchestrate.MaxNameBytes, false),
			checkText("has as its version", c.GetVersion().GetValue(), orchestrate.MaxVersionBytes, true),
			checkText("has as its instance id", c.GetInstanceId(), orchestrate.MaxInstanceIDBytes, true))
	case *protos.WorkflowAction_CreateDetachedWorkflow:
		c := v.CreateDetachedWorkflow
		return firstOf(
			present(c != nil),
			checkText("has as the name of an orchestration", c.GetName(), orchestrate.MaxNameBytes, false),
			checkText("has as its version", c.GetVersion().GetValue(), orchestrate.MaxVersionBytes, true),
			checkText("has as its instance id", c.GetInstanceId(), orchestrate.MaxInstanceIDBytes, false),
			checkText("has as its execution id", c.GetExecutionId().GetValue(), orchestrate.MaxInstanceIDBytes, true),
			checkTime("has a start", c.GetScheduledStartTimestamp(), false))
	case *protos.WorkflowAction_SendEvent:
		return firstOf(
			present(v.SendEvent.GetInstance() != nil),
			checkText("has as the name of an event", v.SendEvent.GetName(), orchestrate.MaxNameBytes, false),
			checkText("has as its instance id", v.SendEvent.GetInstance().GetInstanceId(), orchestrate.MaxInstanceIDBytes, false))
	case *protos.WorkflowAction_TerminateWorkflow:
		return firstOf(
			present(v.TerminateWorkflow != nil),
			checkText("has as its instance id", v.TerminateWorkflow.GetInstanceId(), orchestrate.MaxInstanceIDBytes, false),
			checkReason(v.TerminateWorkflow.GetReason()))
	case *protos.WorkflowAction_CompleteWorkflow:
		return checkEnd(v.CompleteWorkflow)
	case *protos.WorkflowAction_WorkflowVersionNotAvailable:
		return present(v.WorkflowVersionNotAvailable != nil)
	}
	return "is of a kind that is not known here; entities, for example, are not offered"
}

func checkEnd(end *protos.CompleteWorkflowAction) string {
	switch end.GetWorkflowStatus() {
	case protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED,
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_CANCELED,
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
	default:
		return fmt.Sprintf("ends the instance with the status %d, which is no end", end.GetWorkflowStatus())
	}
	if end == nil {
		return "is empty"
	}
	for _, e := range end.CarryoverEvents {
		if e.GetEventRaised() == nil {
			return "carries over something else than an event"
		}
	}
	return ""
}

// firstOf returns the first reason that is not empty.
func firstOf(reasons ...string) string {
	for _, why := range reasons {
		if why != "" {
			return why
		}
	}
	return ""
}

func present(is bool) string {
	if is {
		return ""
	}
	return "is empty"
}

func checkText(what, s string, limit int, optional bool) string {
	if optional && s == "" || forebay.ValidText(s, limit) {
		return ""
	}
	return fmt.Sprintf("%s no text of 1 to %d bytes without control characters", what, limit)
}

func checkTime(what string, at *timestamppb.Timestamp, required bool) string {
	if at == nil && !required || at != nil && at.CheckValid() == nil {
		return ""
	}
	return what + " without a valid time"
}

func checkReason(reason *wrapperspb.StringValue) string {
	if len(reason.GetValue()) > orchestrate.MaxReasonBytes {
		return fmt.Sprintf("has a reason of more than %d bytes", orchestrate.MaxReasonBytes)
	}
	return ""
}

// checkTrace refuses a trace context that the engine cannot read. The engine reads the first
// byte of a traceparent's flags without checking that there is one.
func checkTrace(tc *protos.TraceContext) string {
	const unreadable = "has a trace context that cannot be read"
	if tc == nil {
		return ""
	}
	if parts := strings.Split(tc.TraceParent, "-"); len(parts) == 4 && parts[3] == "" {
		return unreadable
	}
	if _, err := helpers.SpanContextFromTraceContext(tc); err != nil {
		return unreadable
	}
	return ""
}
