package orchestrate

import (
	"testing"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// What the executions of one work item send is held until its end. So together they decide no
// more than one may.
func TestContinuationsAreBounded(t *testing.T) {
	t.Parallel()
	x := executor{&taskHub{}}
	continues := func(id string, events int) bool {
		again := &protos.WorkflowAction{WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
			WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW}}}
		resp := &protos.WorkflowResponse{InstanceId: id, Actions: []*protos.WorkflowAction{again}}
		for range events {
			resp.Actions = append(resp.Actions, &protos.WorkflowAction{})
		}
		got := x.limitContinuations(resp)
		if got == resp {
			return true
		}
		if failure := history.FailureOf(got.Actions[0].GetCompleteWorkflow().GetFailureDetails()); failure == nil || failure.Type != "ContinuesForEver" {
			t.Errorf("it failed with %+v", failure)
		}
		return false
	}
	for n := range maxContinuations + 1 {
		if continues("often", 0) != (n < maxContinuations) {
			t.Errorf("wrong after %d times", n)
		}
	}
	if !continues("much", MaxHistoryEvents/2) || continues("much", MaxHistoryEvents/2) {
		t.Error("two executions decided more than one may")
	}
}
