package durabletask

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend/local"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/raced"
)

// worker connects a worker. To a server, a closed connection looks like a killed process.
func worker(t *testing.T, address string, options ...grpc.DialOption) (*grpc.ClientConn, protos.TaskHubSidecarServiceClient, grpc.ServerStreamingClient[protos.WorkItem]) {
	t.Helper()
	// A window of a fixed size, so that unread messages stay at the server.
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := protos.NewTaskHubSidecarServiceClient(conn)
	stream, err := client.GetWorkItems(t.Context(), &protos.GetWorkItemsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return conn, client, stream
}

// Work items for a worker that stalls and is killed are executed by a worker of another server,
// also those that were not sent yet. An item that was not sent does not count as an attempt.
func TestItemsOfAWorkerThatIsGone(t *testing.T) {
	t.Parallel()
	const many = 200
	where := db.Options{URL: dbtest.Postgres(t), Serve: true}
	registry := func() *orchestrate.Registry {
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "many", func(ctx *task.WorkflowContext) (any, error) {
			var tasks []task.Task
			for range many {
				tasks = append(tasks, activity(ctx, "elsewhere", strings.Repeat("x", 8<<10), forebay.RetryPolicy{}))
			}
			for _, t := range tasks {
				if err := t.Await(nil); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		return r
	}
	first, second := run(t, where, orchestrate.Options{Registry: registry()}), run(t, where, orchestrate.Options{Registry: registry()})
	first.server.absenceTime = time.Hour
	connected := func(p *process) func() bool {
		return func() bool {
			no, err := p.EnsureTenant(t.Context(), tenant)
			return err == nil && p.server.Connected(no)
		}
	}

	holds := func() (n int) {
		first.server.mu.Lock()
		defer first.server.mu.Unlock()
		for _, h := range first.server.taskHubs {
			h.open.Range(func(any, any) bool { n++; return true })
		}
		return n
	}

	stalled, _, sent := worker(t, first.serve(t))
	until(t, "the process is connected", connected(first))
	id := first.start(t, orchestrate.StartRequest{Name: "many"})
	until(t, "the first server holds all activities", func() bool { return holds() == many })
	if _, err := sent.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stalled.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first server gives back what it had sent", func() bool { return holds() < many })
	until(t, "the process is gone", func() bool { return !connected(first)() })
	first.server.mu.Lock()
	for _, h := range first.server.taskHubs {
		h.absence.Reset(0)
	}
	first.server.mu.Unlock()

	_, client, stream := worker(t, second.serve(t))
	go func() {
		for {
			item, err := stream.Recv()
			if err != nil {
				return
			}
			req := item.GetActivityRequest()
			_, _ = client.CompleteActivityTask(context.Background(), &protos.ActivityResponse{ // if it fails the instance does not end
				InstanceId: req.GetWorkflowInstance().GetInstanceId(), TaskId: req.GetTaskId(), CompletionToken: item.GetCompletionToken()})
		}
	}()
	second.ends(t, id, forebay.OrchestrationCompleted)
	attempts, err := second.Attempts(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	for _, a := range attempts {
		outcomes[a.Outcome]++
	}
	if outcomes[orchestrate.ActivitySucceeded] != many || outcomes[orchestrate.ActivityLost] == 0 || outcomes[orchestrate.ActivityLost] > many/2 || len(outcomes) != 2 {
		t.Errorf("attempts: %v", outcomes)
	}
}

// carryOut connects a worker that accepts messages of so many bytes and executes what it is
// sent. Orchestrators and activities return their input. The orchestrator "waits" awaits the
// event "last", as its custom status says. Its stream must not end before the test.
func carryOut(t *testing.T, address string, receives int) protos.TaskHubSidecarServiceClient {
	t.Helper()
	_, client, stream := worker(t, address, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(receives)))
	go func() {
		for {
			item, err := stream.Recv()
			if err != nil {
				if t.Context().Err() == nil && status.Code(err) == codes.ResourceExhausted {
					t.Error("it was sent more than it receives: ", err)
				}
				return
			}
			if req := item.GetActivityRequest(); req != nil {
				_, _ = client.CompleteActivityTask(t.Context(), &protos.ActivityResponse{ // if it fails the instance does not end
					InstanceId: req.GetWorkflowInstance().GetInstanceId(), TaskId: req.GetTaskId(), Result: req.GetInput(), CompletionToken: item.GetCompletionToken()})
				continue
			}
			req := item.GetWorkflowRequest()
			resp := &protos.WorkflowResponse{InstanceId: req.GetInstanceId(), CompletionToken: item.GetCompletionToken()}
			start := history.Started(req.GetPastEvents(), req.GetNewEvents())
			over := start.GetName() != "waits"
			if !over {
				resp.CustomStatus = wrapperspb.String(`"waits"`)
			}
			for _, e := range append(req.GetPastEvents(), req.GetNewEvents()...) {
				over = over || e.GetEventRaised().GetName() == "last"
			}
			if over {
				resp.Actions = []*protos.WorkflowAction{{Id: 0, WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
					WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED, Result: start.GetInput()}}}}
			}
			_, _ = client.CompleteWorkflowTask(t.Context(), resp)
		}
	}()
	return client
}

// A work item that is too large for a worker is not sent: the activity or the instance fails and
// says why. The worker goes on. The instance can be rewound once the worker accepts larger
// messages.
func TestMessageTooLarge(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		const limit = 64 << 10
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
			var input, output string
			if err := ctx.GetInput(&input); err != nil {
				return nil, err
			}
			return output, activity(ctx, "elsewhere", input, forebay.RetryPolicy{MaxAttempts: 3}).Await(&output)
		})
		p := run(t, where, orchestrate.Options{Registry: r, Remote: true}, func(o *Options) { o.MaxMessage = limit })
		carryOut(t, p.serve(t), limit)
		ended := map[string]int{}
		for size := limit - 2500; size < limit+500; size += 250 {
			input := json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
			for _, name := range []string{"remote", "calls"} {
				o, err := p.Wait(t.Context(), tenant, p.start(t, orchestrate.StartRequest{Name: name, Input: input}), time.Minute)
				switch {
				case err != nil || !o.Status.Terminal():
					t.Fatalf("%s of %d bytes is %s: %v", name, size, o.Status, err)
				case o.Status == forebay.OrchestrationCompleted && name == "remote" && string(o.Output) != string(input):
					t.Errorf("%d bytes came back as %d", len(input), len(o.Output))
				case o.Status == forebay.OrchestrationFailed && name == "remote" && o.Failure.Type != failureMessageTooLarge,
					o.Status == forebay.OrchestrationFailed && !strings.Contains(o.Failure.Message, "a worker is sent up to 65536"):
					t.Errorf("%s of %d bytes: %+v", name, size, o.Failure)
				}
				ended[name+" "+string(o.Status)]++
			}
		}
		if len(ended) != 4 {
			t.Errorf("%v", ended)
		}

		id := p.start(t, orchestrate.StartRequest{Name: "waits"})
		until(t, "it waits", func() bool {
			o, err := p.Get(t.Context(), tenant, id)
			return err == nil && len(o.CustomStatus) > 0
		})
		for range 3 {
			if err := p.Raise(t.Context(), tenant, id, "more", json.RawMessage(`"`+strings.Repeat("x", limit/3)+`"`)); err != nil {
				t.Fatal(err)
			}
		}
		if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != failureMessageTooLarge || string(o.CustomStatus) != `"waits"` {
			t.Errorf("%+v, with the custom status %q", o.Failure, o.CustomStatus)
		}
		p.stop()
		p = run(t, where, orchestrate.Options{Registry: r, Remote: true})
		carryOut(t, p.serve(t), DefaultMaxMessage)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		if err := p.Raise(t.Context(), tenant, id, "last", nil); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationCompleted)
	})
}

// Clients learn which payload is too large, and the server receives all that the limits allow.
func TestPayloadTooLargeByGRPC(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	onBoth(t, func(t *testing.T, where db.Options) {
		const limit = 1000
		large := wrapperspb.String(`"` + strings.Repeat("x", limit) + `"`)
		p := run(t, where, orchestrate.Options{Remote: true, MaxBytes: limit})
		client := carryOut(t, p.serve(t), DefaultMaxMessage)
		id := p.start(t, orchestrate.StartRequest{Name: "waits"})
		_, start := client.StartInstance(t.Context(), &protos.CreateInstanceRequest{InstanceId: "large", Name: "waits", Input: large})
		_, raise := client.RaiseEvent(t.Context(), &protos.RaiseEventRequest{InstanceId: id, Name: "more", Input: large})
		for what, err := range map[string]error{"input": start, "data": raise} {
			if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), what) || !strings.Contains(s.Message(), "too large") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := p.Get(t.Context(), tenant, "large"); forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("it was started: %v", err)
		}
	})
	p := run(t, db.Options{Path: dbtest.SQLite(t)}, orchestrate.Options{MaxBytes: 70 << 20})
	_, client, _ := worker(t, p.serve(t))
	_, err := client.StartInstance(t.Context(), &protos.CreateInstanceRequest{InstanceId: "large", Name: "unknown", Input: wrapperspb.String(`"` + strings.Repeat("x", 69<<20) + `"`)})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a payload that the limits allow: %v", err)
	}
}

// sent is a stream that records the messages.
type sent struct {
	grpc.ServerStream
	items []any
}

func (s *sent) SendMsg(m any) error {
	s.items = append(s.items, m)
	return nil
}

// An activity that was given back while it was queued is not sent. Everything else is, also the
// same activity again.
func TestItemThatWasGivenBackIsNotSent(t *testing.T) {
	h := &taskHub{TasksBackend: local.NewTasksBackend(), Server: &Server{log: slog.New(slog.DiscardHandler)}}
	stream := &sent{}
	w := workItems{stream, h}
	activity := func(id int32) *protos.WorkItem {
		return &protos.WorkItem{Request: &protos.WorkItem_ActivityRequest{ActivityRequest: &protos.ActivityRequest{
			TaskId: id, WorkflowInstance: &protos.WorkflowInstance{InstanceId: "i"},
		}}}
	}
	waitFor := func(item *protos.WorkItem) (giveBack func()) {
		return h.OnActivityCompletion(item.GetActivityRequest(), func(*protos.ActivityResponse, error) {})
	}
	stale, again, open := activity(1), activity(1), activity(2)
	request := &protos.WorkItem{Request: &protos.WorkItem_WorkflowRequest{WorkflowRequest: &protos.WorkflowRequest{}}}
	giveBack := waitFor(stale)
	defer waitFor(open)()
	giveBack()
	defer waitFor(again)()
	for _, item := range []*protos.WorkItem{stale, again, open, request} {
		if err := w.SendMsg(item); err != nil {
			t.Fatal(err)
		}
	}
	if len(stream.items) != 3 || stream.items[0] != again || stream.items[1] != open || stream.items[2] != request {
		t.Errorf("sent %v", stream.items)
	}
}
