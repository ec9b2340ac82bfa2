package durabletask

import (
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
)

// A step that is retried under the id of an ended one gets another id, and the worker sees its
// own id.
func TestReusedStepIDs(t *testing.T) {
	scheduled := func(number int32) *protos.HistoryEvent {
		return &protos.HistoryEvent{EventId: number, EventType: &protos.HistoryEvent_TaskScheduled{TaskScheduled: &protos.TaskScheduledEvent{Name: "a"}}}
	}
	failed := func(number int32) *protos.HistoryEvent {
		return &protos.HistoryEvent{EventId: -1, EventType: &protos.HistoryEvent_TaskFailed{TaskFailed: &protos.TaskFailedEvent{TaskScheduledId: number}}}
	}
	asks := func(numbers ...int32) *protos.WorkflowResponse {
		resp := &protos.WorkflowResponse{}
		for _, n := range numbers {
			resp.Actions = append(resp.Actions, &protos.WorkflowAction{Id: n, WorkflowActionType: &protos.WorkflowAction_ScheduleTask{ScheduleTask: &protos.ScheduleTaskAction{Name: "a"}}})
		}
		return resp
	}
	past := []*protos.HistoryEvent{scheduled(1), scheduled(2), failed(1)}
	resp := asks(1, 2, 3) // the second is still under way
	renumberReusedSteps(resp, past, nil)
	if a := resp.Actions; a[0].Id != 1+stepIDStride || a[1].Id != 2 || a[2].Id != 3 {
		t.Errorf("%v", resp)
	}
	arrived := []*protos.HistoryEvent{failed(1 + stepIDStride)}
	past = append(past, scheduled(1+stepIDStride))
	resp = asks(1)
	if renumberReusedSteps(resp, past, arrived); resp.Actions[0].Id != 1+2*stepIDStride {
		t.Errorf("%v", resp)
	}
	told := withWorkerStepIDs(past)
	if told[3].EventId != 1 || past[3].EventId != 1+stepIDStride || told[0] != past[0] {
		t.Errorf("%v of %v", told, past)
	}
	if got := withWorkerStepIDs(arrived)[0].GetTaskFailed().TaskScheduledId; got != 1 || arrived[0].GetTaskFailed().TaskScheduledId != 1+stepIDStride {
		t.Errorf("the end is that of %d", got)
	}
	if len(withWorkerStepIDs(nil)) != 0 {
		t.Error("there was nothing")
	}
}
