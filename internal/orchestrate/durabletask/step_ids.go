package durabletask

import (
	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"
)

// A worker numbers what its code asks for. Microsoft's Python SDK asks for a step that has failed again under the number that it had.
// The engine takes the second answer to one number for a repetition of the first and drops it. So a step whose number is that of one
// that is over gets another in the history, and the worker is told of it under its own.

// numbersApart is by how much they differ. A worker's own numbers are smaller.
const stepIDStride = 1 << 24

// answeredStep returns the number of the step that an event is the end of.
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

// numberOf returns the number of the step that an event is about: one that begins, or one that ends.
func stepIDOf(e *protos.HistoryEvent) *int32 {
	if number, ok := endedStepID(e); ok {
		return number
	}
	if e.GetTaskScheduled() != nil || e.GetChildWorkflowInstanceCreated() != nil {
		return &e.EventId
	}
	return nil
}

// asNumbered returns events with the numbers that the worker gave. Those given are not changed.
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

// numberAgain gives the steps of an answer that have the number of one that is over another.
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
