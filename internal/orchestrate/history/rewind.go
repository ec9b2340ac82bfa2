package history

import (
	"github.com/dapr/durabletask-go/api/protos"
)

// Succeeded returns the steps that have a result.
func Succeeded(events []*protos.HistoryEvent) map[int32]bool {
	done := map[int32]bool{}
	for _, e := range events {
		switch v := e.GetEventType().(type) {
		case *protos.HistoryEvent_TaskCompleted:
			done[v.TaskCompleted.TaskScheduledId] = true
		case *protos.HistoryEvent_ChildWorkflowInstanceCompleted:
			done[v.ChildWorkflowInstanceCompleted.TaskScheduledId] = true
		case *protos.HistoryEvent_TimerFired:
			done[v.TimerFired.TimerId] = true
		}
	}
	return done
}

// DoubtfulFailures returns the calls that failed before a step was scheduled that has succeeded
// or may still be open. The code may have handled these failures.
func DoubtfulFailures(events []*protos.HistoryEvent) (calls []int32) {
	done, settled := Succeeded(events), 0
	for i, e := range events {
		if _, isStep := StepOf(e); isStep && (done[e.EventId] || e.GetDetachedWorkflowInstanceCreated() != nil || e.GetChildWorkflowInstanceCreated() != nil) {
			settled = i
		}
	}
	for _, e := range events[:settled] {
		if call, failed := failedCall(e); failed {
			calls = append(calls, call)
		}
	}
	return calls
}

// StepsToRepeat returns the activities and timers that are scheduled again.
func StepsToRepeat(events []*protos.HistoryEvent, stays map[int32]bool) map[int32]bool {
	done, again := Succeeded(events), map[int32]bool{}
	for _, e := range events {
		if e.GetTaskScheduled() != nil || e.GetTimerCreated() != nil {
			again[e.EventId] = !done[e.EventId] && !stays[e.EventId]
		}
	}
	return again
}

// Rewind returns a history without its end, without the steps to repeat, and without the
// failures that do not stay.
func Rewind(events []*protos.HistoryEvent, again, stays map[int32]bool) []*protos.HistoryEvent {
	kept := make([]*protos.HistoryEvent, 0, len(events)+1)
	for _, e := range events {
		_, isStep := StepOf(e)
		call, failed := failedCall(e)
		if isStep && again[e.EventId] || failed && !stays[call] || e.GetExecutionCompleted() != nil {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

func failedCall(e *protos.HistoryEvent) (call int32, failed bool) {
	switch v := e.GetEventType().(type) {
	case *protos.HistoryEvent_TaskFailed:
		return v.TaskFailed.TaskScheduledId, true
	case *protos.HistoryEvent_ChildWorkflowInstanceFailed:
		return v.ChildWorkflowInstanceFailed.TaskScheduledId, true
	}
	return 0, false
}
