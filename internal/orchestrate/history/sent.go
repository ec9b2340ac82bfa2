package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend/runtimestate"
)

// NameChildren gives sub-orchestrations an id that have none. It follows from that of their caller
// and from the caller's number. The sub-orchestrations of an earlier instance with the caller's id
// may still be open. The number is the caller's alone. So the caller's id may be cut, however deep
// they are nested: an id has at most that many bytes.
func NameChildren(actions []*protos.WorkflowAction, caller string, number int64, most int) {
	for _, a := range actions {
		if c := a.GetCreateChildWorkflow(); c != nil && c.InstanceId == "" {
			own := fmt.Sprintf(":%s:%04x", strconv.FormatInt(number, 36), a.Id)
			c.InstanceId = strings.ToValidUTF8(caller[:min(len(caller), most-len(own))], "") + own
		}
	}
}

// Sent returns what an execution that continues as new sends to others: events, terminations and
// starts that it does not await. The engine drops all that such an execution asked for.
func Sent(state *protos.WorkflowRuntimeState, actions []*protos.WorkflowAction, trace *protos.TraceContext) ([]*protos.WorkflowRuntimeStateMessage, error) {
	if !slices.ContainsFunc(actions, Continues) {
		return nil, nil
	}
	sends := slices.DeleteFunc(slices.Clone(actions), func(a *protos.WorkflowAction) bool {
		return a.GetSendEvent() == nil && a.GetTerminateWorkflow() == nil && a.GetCreateDetachedWorkflow() == nil
	})
	alone := &protos.WorkflowRuntimeState{InstanceId: state.InstanceId, StartEvent: state.StartEvent}
	_, err := runtimestate.NewApplier("", "").Actions(alone, nil, sends, trace, nil)
	return alone.PendingMessages, err
}

// TerminateChildren terminates the sub-orchestrations of an instance if its termination is
// recursive.
func TerminateChildren(state *protos.WorkflowRuntimeState, terminated *protos.ExecutionTerminatedEvent) {
	if !terminated.Recurse {
		return
	}
	seen := map[string]bool{}
	for _, events := range [2][]*protos.HistoryEvent{state.OldEvents, state.NewEvents} {
		for _, e := range events {
			created := e.GetChildWorkflowInstanceCreated()
			if created == nil || seen[created.InstanceId] {
				continue
			}
			seen[created.InstanceId] = true
			end := NewEvent()
			end.EventType = &protos.HistoryEvent_ExecutionTerminated{ExecutionTerminated: &protos.ExecutionTerminatedEvent{Input: terminated.Input, Recurse: true}}
			state.PendingMessages = append(state.PendingMessages, &protos.WorkflowRuntimeStateMessage{TargetInstanceId: created.InstanceId, HistoryEvent: end})
		}
	}
}

// Continues reports whether an action lets the instance continue as new.
func Continues(a *protos.WorkflowAction) bool {
	return a.GetCompleteWorkflow().GetWorkflowStatus() == protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW
}

// Received converts an event that was sent into an event that is raised, as its receiver sees
// it. Others stay as they are.
func Received(e *protos.HistoryEvent) *protos.HistoryEvent {
	sent := e.GetEventSent()
	if sent == nil {
		return e
	}
	raised := NewEvent()
	raised.Timestamp = e.Timestamp
	raised.EventType = &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: sent.Name, Input: sent.Input}}
	return raised
}
