package orchestrate

import (
	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// What suspends or terminates an instance must work when no process has its code: after a deploy that left the name out, or with a version
// that is gone. It can, for code that is suspended asks for nothing, and code that is terminated has nothing to say. So the
// turn that takes it in is any process's, and runs no code, whether it is there or not. What arrived with it is in the history then, and
// the code sees it once it runs again.

// EffectOf returns what an event does to an instance besides what its code makes of it.
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

// takeIn is the response to a turn that needs no code.
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
