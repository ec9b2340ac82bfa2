//go:build hostile

package hostile

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebayhq/forebay"
)

// bearer sends a key with each call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}
func (bearer) RequireTransportSecurity() bool { return false }

// durable connects a client and worker of the Durable Task protocol with a key.
func (s *Target) durable(key string) protos.TaskHubSidecarServiceClient {
	s.Helper()
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearer(key)))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	return protos.NewTaskHubSidecarServiceClient(conn)
}

// work answers each turn of an orchestrator with what act returns, until ctx ends.
func work(ctx context.Context, client protos.TaskHubSidecarServiceClient, act func(*protos.WorkflowRequest) []*protos.WorkflowAction) {
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		stream, err := client.GetWorkItems(ctx, &protos.GetWorkItemsRequest{})
		for err == nil {
			var item *protos.WorkItem
			if item, err = stream.Recv(); err != nil {
				break
			}
			if turn := item.GetWorkflowRequest(); turn != nil {
				_, _ = client.CompleteWorkflowTask(ctx, &protos.WorkflowResponse{ // a refusal is as good: the instance shows what became of it
					InstanceId: turn.GetInstanceId(), CompletionToken: item.GetCompletionToken(), Actions: act(turn)})
			}
		}
	}
}

// completed is the action that ends an orchestration.
func completed() []*protos.WorkflowAction {
	return []*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
		WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED}}}}
}

// unknownAction is an action that only other engines know: field 8 is a message to an entity.
func unknownAction(operation protowire.Number) *protos.WorkflowAction {
	var called, entity, b []byte
	called = protowire.AppendTag(called, 1, protowire.BytesType)
	called = protowire.AppendString(called, "request-1")
	called = protowire.AppendTag(called, 2, protowire.BytesType)
	called = protowire.AppendString(called, "add")
	entity = protowire.AppendTag(entity, operation, protowire.BytesType)
	entity = protowire.AppendBytes(entity, called)
	b = protowire.AppendTag(b, 8, protowire.BytesType)
	b = protowire.AppendBytes(b, entity)
	a := &protos.WorkflowAction{}
	a.ProtoReflect().SetUnknown(b)
	return a
}

// badActions are answers of an orchestrator, by name. An action that the engine does not know
// must fail the instance. An incomplete one may be understood in some way, and the instance then
// ends by an action of its own.
var badActions = map[string]struct {
	actions  []*protos.WorkflowAction
	mustFail bool
}{
	"entity signal":     {[]*protos.WorkflowAction{unknownAction(1)}, true},
	"entity call":       {[]*protos.WorkflowAction{unknownAction(2)}, true},
	"entity lock":       {[]*protos.WorkflowAction{unknownAction(3)}, true},
	"no type":           {[]*protos.WorkflowAction{{Id: 1}}, true},
	"empty task":        {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_ScheduleTask{ScheduleTask: &protos.ScheduleTaskAction{}}}}, false},
	"empty child":       {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CreateChildWorkflow{CreateChildWorkflow: &protos.CreateChildWorkflowAction{}}}}, false},
	"empty timer":       {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CreateTimer{CreateTimer: &protos.CreateTimerAction{}}}}, false},
	"empty event":       {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_SendEvent{SendEvent: &protos.SendEventAction{}}}}, false},
	"empty completion":  {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{}}}}, false},
	"empty termination": {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_TerminateWorkflow{TerminateWorkflow: &protos.TerminateWorkflowAction{}}}}, false},
	"empty version": {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_WorkflowVersionNotAvailable{
		WorkflowVersionNotAvailable: &protos.WorkflowVersionNotAvailableAction{}}}}, false},
	"empty detached": {[]*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CreateDetachedWorkflow{CreateDetachedWorkflow: &protos.CreateDetachedWorkflowAction{}}}}, false},
	"same id twice":  {append(completed(), completed()...), false},
}

// A worker that answers with what the engine does not know stops neither the process nor other
// tenants' orchestrations, and its own instances fail.
func TestWorkerThatAnswersNonsense(t *testing.T) {
	reportTest(t)
	target := Start(t, TargetOptions{})
	attacker, victim := target.durable(target.Keys.Attacker), target.durable(target.Keys.Victim)
	go work(t.Context(), victim, func(*protos.WorkflowRequest) []*protos.WorkflowAction { return completed() })
	go work(t.Context(), attacker, func(turn *protos.WorkflowRequest) []*protos.WorkflowAction {
		if len(turn.GetPastEvents()) > 0 {
			return completed() // it was understood in some way
		}
		for _, e := range turn.GetNewEvents() {
			if bad, ok := badActions[e.GetExecutionStarted().GetName()]; ok {
				if bad.mustFail {
					return bad.actions
				}
				return append(bad.actions[:len(bad.actions):len(bad.actions)], completed()...)
			}
		}
		return completed()
	})
	others := func(after string) {
		t.Helper()
		id := target.start(victim, "innocent")
		if status := target.endOf(target.victim(), id); status != forebay.OrchestrationCompleted {
			t.Fatalf("after %s another tenant's orchestration is %q; process alive: %t", after, status, target.Alive())
		}
	}
	others("nothing")
	for name, bad := range badActions {
		id := target.start(attacker, name)
		status := target.endOf(target.attacker(), id)
		switch {
		case !target.Alive():
			t.Fatalf("%s: the process ended: %s", name, lastLine(target.log.String()))
		case bad.mustFail && status != forebay.OrchestrationFailed:
			t.Errorf("%s: the instance is %q, not failed", name, status)
		case !status.Terminal():
			t.Errorf("%s: the instance is %q and does not end", name, status)
		}
		others(name)
	}
}

func (s *Target) start(client protos.TaskHubSidecarServiceClient, name string) string {
	s.Helper()
	started, err := client.StartInstance(s.Context(), &protos.CreateInstanceRequest{Name: name, InstanceId: unique("instance")})
	if err != nil {
		s.Fatalf("start %s: %v; process alive: %t", name, err, s.Alive())
	}
	return started.GetInstanceId()
}

// endOf waits some seconds for an instance to end and returns its status, which may not be final.
func (s *Target) endOf(p Party, id string) (status forebay.OrchestrationStatus) {
	within(s.Context(), size(30*time.Second, 10*time.Second), func() bool {
		got := p.call(s.Context(), "GET", fmt.Sprintf("/runtime/webhooks/durabletask/instances/%s", id), nil)
		status = forebay.OrchestrationStatus(between(string(got.Body), `"runtimeStatus":"`, `"`))
		return status.Terminal() || !s.Alive()
	})
	return status
}
