package orchestrate

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend/local"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/store"
)

// serve has a process answer by gRPC, to anybody, and returns where.
func (p *process) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- p.Serve(ctx, listener, GRPC{Authenticate: func(context.Context, string) (forebay.Caller, bool, error) {
			return forebay.Caller{Tenant: tenant, Scopes: []forebay.Scope{forebay.ScopeOperate}}, true, nil
		}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// worker connects a process that waits for work. A connection that is closed is what a server sees of a process that is killed.
func worker(t *testing.T, address string) (*grpc.ClientConn, protos.TaskHubSidecarServiceClient, grpc.ServerStreamingClient[protos.WorkItem]) {
	t.Helper()
	// A window of a fixed size, so that what nobody receives stays at the server.
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
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

// until looks again and again until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for begun := time.Now(); !so(); <-time.After(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// What is meant for a process that stalls and is killed is carried out by one that is connected to another server, also what the first
// server had not sent yet; and that it was not does not count as an attempt.
func TestWorkOfAWorkerThatIsGone(t *testing.T) {
	t.Parallel()
	const many = 200
	where := store.Options{URL: pgtest.Database(t), Serve: true}
	registry := func() *Registry {
		r := NewRegistry()
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
	first, second := run(t, where, Options{Registry: registry()}), run(t, where, Options{Registry: registry()})
	first.awayTime = time.Millisecond
	connected := func(p *process) func() bool {
		return func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, h := range p.hubs {
				if h.streams > 0 {
					return true
				}
			}
			return false
		}
	}

	stalled, _, _ := worker(t, first.serve(t))
	until(t, "the process is connected", connected(first))
	id := first.start(t, StartRequest{Name: "many"})
	until(t, "the first server holds all activities", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		n := 0
		for _, h := range first.held {
			if h.activity != nil {
				n++
			}
		}
		return n == many
	})
	if err := stalled.Close(); err != nil {
		t.Fatal(err)
	}

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
	if outcomes[store.ActivitySucceeded] != many || outcomes[store.ActivityLost] == 0 || outcomes[store.ActivityLost] > many/2 || len(outcomes) != 2 {
		t.Errorf("attempts: %v", outcomes)
	}
}

// sent is a stream that keeps what is sent on it.
type sent struct {
	grpc.ServerStream
	items []any
}

func (s *sent) SendMsg(m any) error {
	s.items = append(s.items, m)
	return nil
}

// An activity that was given back while it stood in the engine's queue is not sent; all else is, also one that is asked for anew.
func TestWorkThatWasGivenBackIsNotSent(t *testing.T) {
	h := &hub{TasksBackend: local.NewTasksBackend()}
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
	turn := &protos.WorkItem{Request: &protos.WorkItem_WorkflowRequest{WorkflowRequest: &protos.WorkflowRequest{}}}
	giveBack := waitFor(stale)
	defer waitFor(open)()
	giveBack()
	defer waitFor(again)()
	for _, item := range []*protos.WorkItem{stale, again, open, turn} {
		if err := w.SendMsg(item); err != nil {
			t.Fatal(err)
		}
	}
	if len(stream.items) != 3 || stream.items[0] != again || stream.items[1] != open || stream.items[2] != turn {
		t.Errorf("sent %v", stream.items)
	}
}
