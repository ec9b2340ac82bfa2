package history

import (
	"strings"
	"time"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay"
)

// Describe returns an event as users see it.
func Describe(e *protos.HistoryEvent) forebay.OrchestrationEvent {
	d := forebay.OrchestrationEvent{Type: eventType(e), Timestamp: e.GetTimestamp().AsTime(), EventID: int(e.GetEventId())}
	scheduled := func(id int32) { n := int(id); d.ScheduledID = &n }
	switch v := e.GetEventType().(type) {
	case *protos.HistoryEvent_ExecutionStarted:
		d.Name, d.Input = v.ExecutionStarted.Name, JSON(v.ExecutionStarted.Input)
	case *protos.HistoryEvent_ExecutionCompleted:
		d.Status, d.Result = Statuses[v.ExecutionCompleted.WorkflowStatus], JSON(v.ExecutionCompleted.Result)
		d.Failure = FailureOf(v.ExecutionCompleted.FailureDetails)
	case *protos.HistoryEvent_ExecutionTerminated:
		d.Reason = v.ExecutionTerminated.Input.GetValue()
	case *protos.HistoryEvent_ExecutionSuspended:
		d.Reason = v.ExecutionSuspended.Input.GetValue()
	case *protos.HistoryEvent_ExecutionResumed:
		d.Reason = v.ExecutionResumed.Input.GetValue()
	case *protos.HistoryEvent_TaskScheduled:
		d.Name, d.Input = v.TaskScheduled.Name, JSON(v.TaskScheduled.Input)
	case *protos.HistoryEvent_TaskCompleted:
		scheduled(v.TaskCompleted.TaskScheduledId)
		d.Result = JSON(v.TaskCompleted.Result)
	case *protos.HistoryEvent_TaskFailed:
		scheduled(v.TaskFailed.TaskScheduledId)
		d.Failure = FailureOf(v.TaskFailed.FailureDetails)
	case *protos.HistoryEvent_ChildWorkflowInstanceCreated:
		d.Name, d.InstanceID, d.Input = v.ChildWorkflowInstanceCreated.Name, v.ChildWorkflowInstanceCreated.InstanceId, JSON(v.ChildWorkflowInstanceCreated.Input)
	case *protos.HistoryEvent_ChildWorkflowInstanceCompleted:
		scheduled(v.ChildWorkflowInstanceCompleted.TaskScheduledId)
		d.Result = JSON(v.ChildWorkflowInstanceCompleted.Result)
	case *protos.HistoryEvent_ChildWorkflowInstanceFailed:
		scheduled(v.ChildWorkflowInstanceFailed.TaskScheduledId)
		d.Failure = FailureOf(v.ChildWorkflowInstanceFailed.FailureDetails)
	case *protos.HistoryEvent_TimerCreated:
		d.Name, d.FireAt = v.TimerCreated.GetName(), timeOf(v.TimerCreated.FireAt.AsTime())
	case *protos.HistoryEvent_TimerFired:
		scheduled(v.TimerFired.TimerId)
		d.FireAt = timeOf(v.TimerFired.FireAt.AsTime())
	case *protos.HistoryEvent_EventRaised:
		d.Name, d.Input = v.EventRaised.Name, JSON(v.EventRaised.Input)
	case *protos.HistoryEvent_EventSent:
		d.Name, d.InstanceID, d.Input = v.EventSent.Name, v.EventSent.InstanceId, JSON(v.EventSent.Input)
	}
	return d
}

func timeOf(t time.Time) *time.Time { return &t }

// eventType names the type of an event, such as "TaskScheduled". The engine says workflow and
// child workflow. Users of Durable Functions know orchestrator and sub-orchestration.
func eventType(e *protos.HistoryEvent) string {
	which := e.ProtoReflect().WhichOneof(e.ProtoReflect().Descriptor().Oneofs().ByName("eventType"))
	if which == nil {
		return "Unknown"
	}
	name := string(which.Message().Name())
	name = strings.TrimSuffix(name, "Event")
	name = strings.Replace(name, "ChildWorkflow", "SubOrchestration", 1)
	return strings.Replace(name, "Workflow", "Orchestrator", 1)
}
