package durabletask

import (
	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"
)

// A worker numbers the steps that its code asks for. Microsoft's Python SDK retries a failed
// step under the same id. The engine takes the second answer to one id for a duplicate of the
// first and drops it. So a reused id is replaced by another in the history, and the worker is
// sent its own id.

// stepIDStride is what is added to a reused id. A worker's own ids are smaller.
const stepIDStride = 1 << 24

// endedStepID returns the id of the step that an event ends.
func endedStepID(e *protos.HistoryEvent) (number *int32, ok bool) {
	switch v := e.GetEventType().(type) {
	case *protos.HistoryEvent_TaskCompleted:
		return &v.TaskCompleted.TaskScheduledId, true
	case *protos.HistoryEvent_TaskFailed:
		return &v.TaskFailed.TaskScheduledId, true
	case *protos.HistoryEvent_ChildWorkflowInstanceCompleted:
		return &v.ChildWorkflowInstanceCompleted.TaskScheduledId, true
	case *protos.HistoryEvent_ChildWorkflowInstanceFailed:
		return &v.ChildWorkflowInstanceFailed.TaskScheduledId, true
	}
	return nil, false
}

// stepIDOf returns the id of the step that an event schedules or ends.
func stepIDOf(e *protos.HistoryEvent) *int32 {
	if number, ok := endedStepID(e); ok {
		return number
	}
	if e.GetTaskScheduled() != nil || e.GetChildWorkflowInstanceCreated() != nil {
		return &e.EventId
	}
	return nil
}

// withWorkerStepIDs returns events with the ids that the worker gave. The given events are not
// changed.
func withWorkerStepIDs(events []*protos.HistoryEvent) []*protos.HistoryEvent {
	told := events
	for i, e := range events {
		number := stepIDOf(e)
		if number == nil || *number < stepIDStride {
			continue
		}
		if &told[0] == &events[0] {
			told = append([]*protos.HistoryEvent(nil), events...)
		}
		told[i] = proto.CloneOf(e)
		*stepIDOf(told[i]) %= stepIDStride
	}
	return told
}

// renumberReusedSteps replaces the ids of steps in a response whose id an ended step has.
func renumberReusedSteps(resp *protos.WorkflowResponse, old, arrived []*protos.HistoryEvent) {
	var over map[int32]bool // made once a step asks
	for _, a := range resp.GetActions() {
		if a.GetScheduleTask() == nil && a.GetCreateChildWorkflow() == nil {
			continue
		}
		if over == nil {
			over = map[int32]bool{}
			for _, events := range [2][]*protos.HistoryEvent{old, arrived} {
				for _, e := range events {
					if number, ok := endedStepID(e); ok {
						over[*number] = true
					}
				}
			}
		}
		for over[a.Id] && a.Id <= 1<<31-1-stepIDStride {
			a.Id += stepIDStride
		}
	}
}
