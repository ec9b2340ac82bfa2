package orchestrate

import (
	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// Suspended and terminated instances run no orchestrator code. So an instance can be suspended
// or terminated although no process has its code, for example after a deploy without that
// orchestrator or version. Any process may claim the work item and runs no code for it. New
// events go into the history, and the code sees them when it runs again.

// EffectOf returns what an event does to an instance beside what its code makes of it.
func EffectOf(e *protos.HistoryEvent) Effect {
	switch e.GetEventType().(type) {
	case *protos.HistoryEvent_ExecutionSuspended:
		return Suspends
	case *protos.HistoryEvent_ExecutionResumed:
		return Resumes
	case *protos.HistoryEvent_ExecutionTerminated:
		return Terminates
	}
	return NoEffect
}

// responseWithoutCode is the response for a work item that needs no code.
func responseWithoutCode(item *OrchestrationItem, old, arrived []*protos.HistoryEvent) *protos.WorkflowResponse {
	resp := &protos.WorkflowResponse{InstanceId: item.ID, CustomStatus: history.Value(item.Custom)}
	for _, e := range arrived {
		ended := e.GetExecutionTerminated()
		if ended == nil {
			continue
		}
		p := history.NewScheduled()
		p.TakeFrom(old)
		resp.Actions = []*protos.WorkflowAction{{Id: p.Last + 1, WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{
			CompleteWorkflow: &protos.CompleteWorkflowAction{WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED, Result: ended.Input}}}}
		break
	}
	return resp
}
