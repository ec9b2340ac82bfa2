package orchestrate

import (
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// A history that is too long fails its instance, but does not keep it from being terminated, sub-orchestrations included.
func TestEndOfALongHistory(t *testing.T) {
	h := &hub{Service: &Service{opts: Options{MaxBytes: 1 << 20}}}
	for status, want := range map[protos.OrchestrationStatus]forebay.OrchestrationStatus{
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED:  forebay.OrchestrationFailed,
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED: forebay.OrchestrationTerminated,
	} {
		ended := newEvent()
		ended.EventType = &protos.HistoryEvent_ExecutionTerminated{ExecutionTerminated: &protos.ExecutionTerminatedEvent{Recurse: true}}
		result, err := h.turnResult(&store.Turn{ID: "long"}, &backend.WorkflowRuntimeState{
			StartEvent: &protos.ExecutionStartedEvent{}, OldEvents: make([]*protos.HistoryEvent, maxHistoryEvents), NewEvents: []*protos.HistoryEvent{newEvent()},
			CompletedEvent:  &protos.ExecutionCompletedEvent{WorkflowStatus: status},
			PendingMessages: []*protos.WorkflowRuntimeStateMessage{{TargetInstanceId: "called", HistoryEvent: ended}},
		})
		if err != nil || result.Status != want {
			t.Fatalf("%s: %+v: %v", status, result, err)
		}
		if told := len(result.Messages) == 1; told != (want == forebay.OrchestrationTerminated) {
			t.Errorf("%s: %d messages", want, len(result.Messages))
		}
	}
}

// So does one that has too many bytes, also before it has too many events.
func TestEndOfALargeHistory(t *testing.T) {
	h := &hub{Service: &Service{opts: Options{MaxBytes: 16 << 20}}}
	large := completedEvent(1, "", value(make([]byte, 16<<20)))
	for n, want := range map[int]forebay.OrchestrationStatus{15: forebay.OrchestrationCompleted, 16: forebay.OrchestrationFailed} {
		old := make([]*protos.HistoryEvent, n)
		for i := range old {
			old[i] = large
		}
		result, err := h.turnResult(&store.Turn{ID: "large"}, &backend.WorkflowRuntimeState{StartEvent: &protos.ExecutionStartedEvent{}, OldEvents: old,
			NewEvents: []*protos.HistoryEvent{newEvent()}, CompletedEvent: &protos.ExecutionCompletedEvent{WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED}})
		if err != nil || result.Status != want {
			t.Fatalf("%d events: %+v: %v", n, result, err)
		}
		if want == forebay.OrchestrationFailed && result.Failure.Type != "HistoryTooLong" {
			t.Errorf("%+v", result.Failure)
		}
	}
}
