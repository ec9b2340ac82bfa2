package durabletask

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// remoteWorker is a worker whose responses the test gives.
type remoteWorker struct {
	t      *testing.T
	client protos.TaskHubSidecarServiceClient
	stream grpc.ServerStreamingClient[protos.WorkItem]
}

func (p *process) remoteWorker(t *testing.T) *remoteWorker {
	t.Helper()
	_, client, stream := worker(t, p.serve(t))
	return &remoteWorker{t, client, stream}
}

func (w *remoteWorker) take() *protos.WorkItem {
	w.t.Helper()
	item, err := w.stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return item
}

// answer receives an orchestration work item and responds.
func (w *remoteWorker) answer(actions ...*protos.WorkflowAction) *protos.WorkflowRequest {
	w.t.Helper()
	item := w.take()
	request := item.GetWorkflowRequest()
	_, err := w.client.CompleteWorkflowTask(w.t.Context(), &protos.WorkflowResponse{InstanceId: request.GetInstanceId(), Actions: actions, CompletionToken: item.GetCompletionToken()})
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// finish answers an activity.
func (w *remoteWorker) finish(item *protos.WorkItem, result string) error {
	a := item.GetActivityRequest()
	_, err := w.client.CompleteActivityTask(w.t.Context(), &protos.ActivityResponse{InstanceId: a.GetWorkflowInstance().GetInstanceId(), TaskId: a.GetTaskId(),
		Result: wrapperspb.String(result), CompletionToken: item.GetCompletionToken()})
	return err
}

// typesOf returns the types of events, without those that begin a work item.
func typesOf(events []*protos.HistoryEvent) string {
	var types []string
	for _, e := range events {
		if kind := history.Describe(e).Type; kind != "OrchestratorStarted" {
			types = append(types, kind)
		}
	}
	return strings.Join(types, " ")
}

var completes = end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED)

// A late result of an ended instance does not reach the next instance with its id, whoever
// executes the activity.
func TestLateResultDoesNotReachTheNextInstance(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		begun, end := make(chan string, 2), map[string]chan struct{}{"old": make(chan struct{}), "new": make(chan struct{})}
		add(t, r, "here", func(_ context.Context, which string) (any, error) {
			begun <- which
			<-end[which]
			return which, nil
		})
		addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
			var which, here, there string
			if err := ctx.GetInput(&which); err != nil {
				return nil, err
			}
			a, b := activity(ctx, "here", which, forebay.RetryPolicy{}), activity(ctx, "there", which, forebay.RetryPolicy{})
			err := errors.Join(a.Await(&here), b.Await(&there))
			return here + " " + there, err
		})
		p := run(t, where, orchestrate.Options{Registry: r, Remote: true})
		p.server.absenceTime = time.Millisecond // what the worker leaves behind at the end is given back at once
		w := p.remoteWorker(t)
		begin := func(which string) *protos.WorkItem {
			t.Helper()
			p.start(t, orchestrate.StartRequest{Name: "calls", ID: "one", Input: quoted(which)})
			if got := <-begun; got != which {
				t.Fatalf("the activity of %s began", got)
			}
			return w.take()
		}
		old := begin("old")
		if err := p.Terminate(t.Context(), tenant, "one", ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, "one", forebay.OrchestrationTerminated)
		next := begin("new")
		close(end["old"])
		_ = w.finish(old, `"old"`) // refused, or taken and dropped
		if err := w.finish(next, `"new"`); err != nil {
			t.Fatal(err)
		}
		close(end["new"])
		if o := p.ends(t, "one", forebay.OrchestrationCompleted); string(o.Output) != `"new new"` {
			t.Errorf("the new instance was told %s", o.Output)
		}
		attempts, err := p.Attempts(t.Context(), tenant, "one")
		if err != nil || len(attempts) != 2 {
			t.Errorf("attempts %+v: %v", attempts, err)
		}
	})
}

// A worker is not sent the resume that a rewind stores, nor older redundant ones.
func TestWorkersSeeNoResumeOfARewind(t *testing.T) {
	t.Parallel()
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true})
	w := p.remoteWorker(t)
	p.start(t, orchestrate.StartRequest{Name: "remote", ID: "one"})
	w.answer(schedule(0, "bad"))
	item := w.take()
	if _, err := w.client.CompleteActivityTask(t.Context(), &protos.ActivityResponse{InstanceId: "one", CompletionToken: item.GetCompletionToken(),
		FailureDetails: &protos.TaskFailureDetails{ErrorType: "broken", ErrorMessage: "broken"}}); err != nil {
		t.Fatal(err)
	}
	w.answer(end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED))
	p.ends(t, "one", forebay.OrchestrationFailed)
	if err := p.Rewind(t.Context(), tenant, "one", "mended"); err != nil {
		t.Fatal(err)
	}
	request := w.answer(schedule(0, "bad"))
	if got := typesOf(request.PastEvents) + " | " + typesOf(request.NewEvents); strings.Contains(got, "ExecutionResumed") {
		t.Errorf("the worker was sent %s", got)
	}
	if err := w.finish(w.take(), `"good"`); err != nil {
		t.Fatal(err)
	}
	request = w.answer(completes)
	if got := typesOf(request.PastEvents) + " | " + typesOf(request.NewEvents); got != "ExecutionStarted TaskScheduled | TaskCompleted" {
		t.Errorf("the worker was sent %s", got)
	}
	p.ends(t, "one", forebay.OrchestrationCompleted)
	if past := p.types(t, "one"); !strings.Contains(past, "ExecutionResumed") {
		t.Errorf("the history does not show the rewind: %s", past)
	}
}

func TestRedundantSuspendsAreRemoved(t *testing.T) {
	suspended, resumed, raised := history.NewEvent(), history.NewEvent(), history.NewEvent()
	suspended.EventType = &protos.HistoryEvent_ExecutionSuspended{ExecutionSuspended: &protos.ExecutionSuspendedEvent{}}
	resumed.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{}}
	raised.EventType = &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: "go"}}
	old := []*protos.HistoryEvent{resumed, raised, suspended, suspended, raised}
	past, now := withoutRedundantSuspends(old, []*protos.HistoryEvent{suspended, raised, resumed, resumed})
	if got := typesOf(past) + " | " + typesOf(now); got != "EventRaised ExecutionSuspended EventRaised | EventRaised ExecutionResumed" {
		t.Errorf("left %s", got)
	}
	if got := typesOf(old); got != "ExecutionResumed EventRaised ExecutionSuspended ExecutionSuspended EventRaised" {
		t.Errorf("the history itself became %s", got)
	}
}

// An event from one orchestrator to another arrives as a raised event.
func TestEventBetweenOrchestrations(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, orchestrate.Options{Registry: r, Remote: true})
		w := p.remoteWorker(t)
		p.start(t, orchestrate.StartRequest{Name: "waiting", ID: "here"})
		p.waitsFor(t, "here", "TimerCreated")
		p.start(t, orchestrate.StartRequest{Name: "remote", ID: "there"})
		w.answer() // it waits
		send := func(id int32, to string) *protos.WorkflowAction {
			return &protos.WorkflowAction{Id: id, WorkflowActionType: &protos.WorkflowAction_SendEvent{SendEvent: &protos.SendEventAction{
				Instance: &protos.WorkflowInstance{InstanceId: to}, Name: "go", Data: wrapperspb.String(`{"from":"sender"}`)}}}
		}
		p.start(t, orchestrate.StartRequest{Name: "sender", ID: "sender"})
		if request := w.answer(send(0, "here"), send(1, "there"), send(2, "nobody"), completes); request.GetInstanceId() != "sender" {
			t.Fatalf("a work item of %s", request.GetInstanceId())
		}
		p.ends(t, "sender", forebay.OrchestrationCompleted)
		if o := p.ends(t, "here", forebay.OrchestrationCompleted); string(o.Output) != `{"from":"sender"}` {
			t.Errorf("the Go function was told %s", o.Output)
		}
		request := w.answer(completes)
		raised := request.NewEvents[len(request.NewEvents)-1]
		if request.GetInstanceId() != "there" || raised.EventId != -1 || raised.GetEventRaised().GetName() != "go" || raised.GetEventRaised().GetInput().GetValue() != `{"from":"sender"}` {
			t.Errorf("%s was sent %s", request.GetInstanceId(), raised)
		}
		p.ends(t, "there", forebay.OrchestrationCompleted)
		if got := p.types(t, "sender"); !strings.Contains(got, "EventSent EventSent EventSent") {
			t.Errorf("the sender's history is %s", got)
		}
	})
}

// What an orchestrator sends in the turn in which it continues as new arrives, once.
func TestEventsAreSentOnContinuingAsNew(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, orchestrate.Options{Remote: true})
		w := p.remoteWorker(t)
		p.start(t, orchestrate.StartRequest{Name: "remote", ID: "there"})
		w.answer() // it waits
		send := func(id int32, name string) *protos.WorkflowAction {
			return &protos.WorkflowAction{Id: id, WorkflowActionType: &protos.WorkflowAction_SendEvent{SendEvent: &protos.SendEventAction{
				Instance: &protos.WorkflowInstance{InstanceId: "there"}, Name: name, Data: wrapperspb.String("1")}}}
		}
		again := func() *protos.WorkflowAction {
			return end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW)
		}
		p.start(t, orchestrate.StartRequest{Name: "sender", ID: "sender"})
		// It continues twice in one work item. What it schedules then is cut off.
		for _, actions := range [][]*protos.WorkflowAction{{send(0, "first"), schedule(1, "cut off"), again()}, {again(), send(0, "second")}, {send(0, "third"), completes}} {
			if request := w.answer(actions...); request.GetInstanceId() != "sender" {
				t.Fatalf("a work item of %s", request.GetInstanceId())
			}
		}
		p.ends(t, "sender", forebay.OrchestrationCompleted)
		var got []string
		for _, e := range w.answer(completes).NewEvents {
			if raised := e.GetEventRaised(); raised != nil {
				got = append(got, raised.Name)
			}
		}
		if want := []string{"first", "second", "third"}; !slices.Equal(got, want) {
			t.Errorf("it was sent %v, want %v", got, want)
		}
	})
}

// The version of a start by gRPC is kept. The worker and clients see it, also after continuing
// as new.
func TestVersionByGRPC(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, orchestrate.Options{Remote: true})
		w := p.remoteWorker(t)
		if _, err := w.client.StartInstance(t.Context(), &protos.CreateInstanceRequest{InstanceId: "one", Name: "remote", Version: wrapperspb.String("7")}); err != nil {
			t.Fatal(err)
		}
		begins := func(events []*protos.HistoryEvent, want string) {
			t.Helper()
			if got := history.Started(nil, events).GetVersion().GetValue(); got != want {
				t.Errorf("the worker is told version %q, not %q", got, want)
			}
			if got := p.get(t, "one").Version; got != want && want == "7" {
				t.Errorf("the instance shows version %q", got)
			}
		}
		again := end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW)
		begins(w.answer(again).NewEvents, "7")
		newer := end(protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW)
		newer.GetCompleteWorkflow().NewVersion = wrapperspb.String("8")
		begins(w.answer(newer).NewEvents, "7")
		begins(w.answer(completes).NewEvents, "8")
		if o := p.ends(t, "one", forebay.OrchestrationCompleted); o.Version != "8" {
			t.Errorf("the instance shows version %q", o.Version)
		}
		got, err := w.client.GetInstance(t.Context(), &protos.GetInstanceRequest{InstanceId: "one"})
		if err != nil || got.GetWorkflowState().GetVersion().GetValue() != "8" {
			t.Errorf("%v: %v", got, err)
		}
		if _, err := p.Restart(t.Context(), tenant, "one", false); err != nil {
			t.Fatal(err)
		}
		begins(w.answer(completes).NewEvents, "8")
		_, err = w.client.StartInstance(t.Context(), &protos.CreateInstanceRequest{InstanceId: "two", Name: "remote", Version: wrapperspb.String(strings.Repeat("9", orchestrate.MaxVersionBytes+1))})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a version that is too long: %v", err)
		}
	})
}

// A client may say which final statuses leave an id free, in Microsoft's edition of the protocol
// and in the engine's.
func TestReusePolicyByGRPC(t *testing.T) {
	t.Parallel()
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true})
	w := p.remoteWorker(t)
	policy := func(statuses ...protos.OrchestrationStatus) *protos.CreateInstanceRequest {
		var inner []byte
		for _, s := range statuses {
			inner = protowire.AppendVarint(protowire.AppendTag(inner, 1, protowire.VarintType), uint64(s))
		}
		m := &protos.CreateInstanceRequest{}
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, reusePolicy, protowire.BytesType), inner))
		return m
	}
	packed := &protos.CreateInstanceRequest{}
	packed.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, reusePolicy, protowire.BytesType),
		protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendVarint(nil, uint64(protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED)))))
	begin := func(m *protos.CreateInstanceRequest) codes.Code {
		m.InstanceId, m.Name = "one", "remote"
		_, err := w.client.StartInstance(t.Context(), m)
		return status.Code(err)
	}
	for i, step := range []struct {
		request *protos.CreateInstanceRequest
		want    codes.Code
	}{
		{&protos.CreateInstanceRequest{}, codes.OK}, // the first
		{&protos.CreateInstanceRequest{}, codes.OK},
		{&protos.CreateInstanceRequest{EnforceUniqueInstanceId: true}, codes.AlreadyExists},
		{policy(), codes.AlreadyExists},
		{policy(protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING), codes.AlreadyExists},
		{policy(protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED), codes.OK},
		{packed, codes.OK},
	} {
		if got := begin(step.request); got != step.want {
			t.Errorf("start %d: %s, not %s", i, got, step.want)
		}
		if step.want == codes.OK {
			if got := begin(policy(protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING, protos.OrchestrationStatus_ORCHESTRATION_STATUS_PENDING)); got != codes.AlreadyExists {
				t.Errorf("start %d: one that runs was replaced: %s", i, got)
			}
			w.answer(completes)
			p.ends(t, "one", forebay.OrchestrationCompleted)
		}
	}
}

// Instances can be purged by a filter.
func TestPurgeByFilterByGRPC(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "fails", func(*task.WorkflowContext) (any, error) { return nil, errors.New("always") })
		addOrchestrator(t, r, "ends", func(*task.WorkflowContext) (any, error) { return nil, nil })
		p := run(t, where, orchestrate.Options{Registry: r, Remote: true})
		client := p.remoteWorker(t).client
		for i, name := range []string{"ends", "ends", "fails", "waiting"} {
			p.start(t, orchestrate.StartRequest{Name: name, ID: string(rune('a' + i))})
		}
		p.ends(t, "a", forebay.OrchestrationCompleted)
		p.ends(t, "b", forebay.OrchestrationCompleted)
		p.ends(t, "c", forebay.OrchestrationFailed)
		before, after := timestamppb.New(time.Now().Add(-time.Hour)), timestamppb.New(time.Now().Add(time.Hour))
		const failed, running = protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED, protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING
		for i, step := range []struct {
			filter *protos.PurgeInstanceFilter
			want   int32
			code   codes.Code
		}{
			{&protos.PurgeInstanceFilter{CreatedTimeFrom: after}, 0, codes.OK},
			{&protos.PurgeInstanceFilter{CreatedTimeTo: before}, 0, codes.OK},
			{&protos.PurgeInstanceFilter{RuntimeStatus: []protos.OrchestrationStatus{running}}, 0, codes.InvalidArgument},
			{&protos.PurgeInstanceFilter{CreatedTimeFrom: &timestamppb.Timestamp{Nanos: -1}}, 0, codes.InvalidArgument},
			{&protos.PurgeInstanceFilter{CreatedTimeFrom: before, CreatedTimeTo: after, RuntimeStatus: []protos.OrchestrationStatus{failed}}, 1, codes.OK},
			{&protos.PurgeInstanceFilter{CreatedTimeFrom: before}, 2, codes.OK},
		} {
			got, err := client.PurgeInstances(t.Context(), &protos.PurgeInstancesRequest{Request: &protos.PurgeInstancesRequest_PurgeInstanceFilter{PurgeInstanceFilter: step.filter}})
			if status.Code(err) != step.code || got.GetDeletedInstanceCount() != step.want || err == nil && !got.GetIsComplete().GetValue() {
				t.Errorf("purge %d: %v, %v", i, got, err)
			}
		}
		if o := p.get(t, "d"); o.Status.Terminal() {
			t.Errorf("%+v", o)
		}
	})
}

// A call that asks for no payloads does not wait for them.
func TestGetInstanceWithoutPayloads(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		opened, err := blob.Open(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { opened.Close() })
		blobs := &outage{Store: opened}
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, orchestrate.Options{Registry: r, Blobs: blobs})
		_, client, _ := worker(t, p.serve(t))
		id := p.start(t, orchestrate.StartRequest{Name: "waiting", Input: quoted(large("p"))})
		p.until(t, id, forebay.OrchestrationRunning)
		blobs.out.Store(true)
		get := &protos.GetInstanceRequest{InstanceId: id}
		if _, err := client.TerminateInstance(t.Context(), &protos.TerminateRequest{InstanceId: id}); err != nil {
			t.Error(err)
		}
		for name, read := range map[string]func(context.Context, *protos.GetInstanceRequest, ...grpc.CallOption) (*protos.GetInstanceResponse, error){
			"GetInstance": client.GetInstance, "WaitForInstanceStart": client.WaitForInstanceStart, "WaitForInstanceCompletion": client.WaitForInstanceCompletion,
		} {
			get.GetInputsAndOutputs = false
			if resp, err := read(t.Context(), get); err != nil || resp.GetWorkflowState().GetInput() != nil {
				t.Errorf("%s: %v", name, err)
			}
			get.GetInputsAndOutputs = true
			if _, err := read(t.Context(), get); status.Code(err) != codes.Unavailable {
				t.Errorf("%s with payloads that cannot be read: %v", name, err)
			}
		}
	})
}

// A purge by gRPC is in the audit log, with the caller's key.
func TestPurgeByGRPCIsAudited(t *testing.T) {
	p, conn := serveKeys(t, nil)
	client, ctx := protos.NewTaskHubSidecarServiceClient(conn), withKey(t.Context(), "good")
	p.start(t, orchestrate.StartRequest{Name: "remote", ID: "one"})
	if err := p.Terminate(t.Context(), tenant, "one", ""); err != nil {
		t.Fatal(err)
	}
	p.ends(t, "one", forebay.OrchestrationTerminated)
	purge := &protos.PurgeInstancesRequest{Request: &protos.PurgeInstancesRequest_InstanceId{InstanceId: "one"}}
	if got, err := client.PurgeInstances(ctx, purge); err != nil || got.GetDeletedInstanceCount() != 1 {
		t.Fatalf("%v: %v", got, err)
	}
	entries, _, err := p.store.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 100)
	if err != nil || len(entries) != 1 || entries[0].Action != "purge-orchestration" || entries[0].Target != "one" || entries[0].Actor != "key_1" {
		t.Errorf("%+v: %v", entries, err)
	}
}
