package durabletask

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// unknownAction is an action with a field that the protocol does not have, such as that of an
// entity.
func unknownAction(t testing.TB, field protowire.Number) *protos.WorkflowAction {
	t.Helper()
	entity := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("@counter@c1"))
	action := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 0)
	action = protowire.AppendBytes(protowire.AppendTag(action, field, protowire.BytesType), entity)
	a := &protos.WorkflowAction{}
	if err := proto.Unmarshal(action, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// end is an action that ends an instance.
func end(status protos.OrchestrationStatus, carried ...*protos.HistoryEvent) *protos.WorkflowAction {
	return &protos.WorkflowAction{WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{
		CompleteWorkflow: &protos.CompleteWorkflowAction{WorkflowStatus: status, CarryoverEvents: carried}}}
}

func schedule(id int32, name string) *protos.WorkflowAction {
	return &protos.WorkflowAction{Id: id, WorkflowActionType: &protos.WorkflowAction_ScheduleTask{ScheduleTask: &protos.ScheduleTaskAction{Name: name}}}
}

const again = protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW

// invalidAnswers are responses that cannot be applied.
func invalidAnswers(t testing.TB) map[string][]*protos.WorkflowAction {
	t.Helper()
	fires := timestamppb.Now()
	return map[string][]*protos.WorkflowAction{
		"an action of an entity":        {unknownAction(t, 12)},
		"an action of the future":       {unknownAction(t, 400)},
		"an action without a type":      {{Id: 3}},
		"an event for nobody":           {{WorkflowActionType: &protos.WorkflowAction_SendEvent{SendEvent: &protos.SendEventAction{Name: "e"}}}},
		"a timer without a time":        {{WorkflowActionType: &protos.WorkflowAction_CreateTimer{CreateTimer: &protos.CreateTimerAction{}}}},
		"a timer at no time":            {{WorkflowActionType: &protos.WorkflowAction_CreateTimer{CreateTimer: &protos.CreateTimerAction{FireAt: &timestamppb.Timestamp{Seconds: 1 << 62}}}}},
		"an activity without a name":    {schedule(0, "")},
		"an activity with a long name":  {schedule(0, strings.Repeat("x", orchestrate.MaxNameBytes+1))},
		"two actions with one id":       {schedule(1, "a"), {Id: 1, WorkflowActionType: &protos.WorkflowAction_CreateTimer{CreateTimer: &protos.CreateTimerAction{FireAt: fires}}}},
		"a negative id":                 {schedule(-7, "a")},
		"a child without a name":        {{WorkflowActionType: &protos.WorkflowAction_CreateChildWorkflow{CreateChildWorkflow: &protos.CreateChildWorkflowAction{}}}},
		"a detached one without an id":  {{WorkflowActionType: &protos.WorkflowAction_CreateDetachedWorkflow{CreateDetachedWorkflow: &protos.CreateDetachedWorkflowAction{Name: "n"}}}},
		"an end that is none":           {end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING)},
		"an end with an unknown status": {end(99)},
		"an event without a type":       {end(again, &protos.HistoryEvent{})},
		"a start that is carried over":  {end(again, &protos.HistoryEvent{EventType: &protos.HistoryEvent_ExecutionStarted{ExecutionStarted: &protos.ExecutionStartedEvent{}}})},
	}
}

func unreadableTrace() *protos.TraceContext {
	return &protos.TraceContext{TraceParent: "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("1", 16) + "-"}
}

// An invalid response of a worker fails its instance after one work item, and says why. The
// process goes on.
func TestInvalidResponseFailsItsInstance(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, orchestrate.Options{Remote: true})
		_, client, stream := worker(t, p.serve(t))
		for name, actions := range invalidAnswers(t) {
			id := p.start(t, orchestrate.StartRequest{Name: "remote"})
			item, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got := item.GetWorkflowRequest().GetInstanceId(); got != id {
				t.Fatalf("%s: the worker was sent a work item of %s, not of %s", name, got, id)
			}
			_, err = client.CompleteWorkflowTask(t.Context(), &protos.WorkflowResponse{InstanceId: id, Actions: actions, CompletionToken: item.GetCompletionToken()})
			if err != nil {
				t.Fatal(err)
			}
			o := p.ends(t, id, forebay.OrchestrationFailed)
			if o.Failure == nil || o.Failure.Type != failureInvalidAnswer || len(o.Failure.Message) > 400 {
				t.Errorf("%s: the instance failed with %+v", name, o.Failure)
			}
		}
	})
}

// A trace context that the engine cannot read is removed, and the new instance runs.
func TestUnreadableTraceContextIsLeftOut(t *testing.T) {
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true})
	_, client, stream := worker(t, p.serve(t))
	id := p.start(t, orchestrate.StartRequest{Name: "remote"})
	detach := &protos.WorkflowAction{WorkflowActionType: &protos.WorkflowAction_CreateDetachedWorkflow{CreateDetachedWorkflow: &protos.CreateDetachedWorkflowAction{
		Name: "remote", InstanceId: "detached", ParentTraceContext: unreadableTrace()}}}
	for _, actions := range [][]*protos.WorkflowAction{
		{detach, end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED)}, {end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED)}} {
		item, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CompleteWorkflowTask(t.Context(), &protos.WorkflowResponse{
			InstanceId: item.GetWorkflowRequest().GetInstanceId(), Actions: actions, CompletionToken: item.GetCompletionToken()})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.ends(t, id, forebay.OrchestrationCompleted)
	p.ends(t, "detached", forebay.OrchestrationCompleted)
}

// A response that passes the checks but cannot be applied fails the instance as well.
func TestResponseIsTriedOnACopy(t *testing.T) {
	s := New(Options{Service: orchestrate.New(orchestrate.Options{})})
	start := &protos.HistoryEvent{EventType: &protos.HistoryEvent_ExecutionStarted{ExecutionStarted: &protos.ExecutionStartedEvent{Name: "n"}}}
	resp := &protos.WorkflowResponse{Actions: []*protos.WorkflowAction{schedule(0, "a")}}
	if err := s.dryRun(resp, "i", nil, []*protos.HistoryEvent{start}); err != nil {
		t.Errorf("a valid answer: %v", err)
	}
	if err := s.dryRun(resp, "i", nil, nil); !errors.Is(err, history.ErrUnreadable) {
		t.Errorf("an instance without a start: %v", err)
	}
	if err := s.dryRun(&protos.WorkflowResponse{Actions: []*protos.WorkflowAction{{}}}, "i", nil, []*protos.HistoryEvent{start}); err == nil {
		t.Error("the engine's panic is no error")
	}
}

// A trace context that the engine cannot read fails its call, not the process.
func TestUnreadableTraceContextFailsItsCall(t *testing.T) {
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true})
	_, client, _ := worker(t, p.serve(t))
	_, err := client.StartInstance(t.Context(), &protos.CreateInstanceRequest{InstanceId: "i", Name: "n", Input: wrapperspb.String("1"), ParentTraceContext: unreadableTrace()})
	if code := status.Code(err); code != codes.InvalidArgument {
		t.Errorf("the call ended with %v", err)
	}
	if _, err := client.Hello(t.Context(), nil); err != nil {
		t.Errorf("the server is gone: %v", err)
	}
}
