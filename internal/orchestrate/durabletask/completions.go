package durabletask

import (
	"context"
	"sync"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/grpc"

	"github.com/forebayhq/forebay/internal/panics"
)

// dispatched is a work item that somebody waits for.
type dispatched struct {
	hub  *taskHub
	fail func(error) // ends the wait

	mu    sync.Mutex
	token string // once it was sent
	over  bool
}

// sentAs lets the worker give the item back by its token.
func (d *dispatched) sentAs(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over && token != "" {
		d.token = token
		d.hub.sent.Store(token, d.fail)
	}
}

func (d *dispatched) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.hub.sent.Delete(d.token)
}

// expect records that the response to a request is awaited, until stop.
func (h *taskHub) expect(request any, fail func(error), stop func()) func() {
	d := &dispatched{hub: h, fail: fail}
	h.open.Store(request, d)
	return func() {
		h.open.Delete(request)
		d.end()
		stop()
	}
}

// OnActivityCompletion also records that the activity's result is awaited.
func (h *taskHub) OnActivityCompletion(req *protos.ActivityRequest, done func(*protos.ActivityResponse, error)) func() {
	h.expectAnswer(backend.GetActivityExecutionKey(req.GetWorkflowInstance().GetInstanceId(), req.GetTaskId()))
	return h.expect(req, func(err error) { done(nil, err) }, h.TasksBackend.OnActivityCompletion(req, done))
}

// OnWorkflowTaskCompletion also reserves the memory of the response until the work item is done.
func (h *taskHub) OnWorkflowTaskCompletion(req *protos.WorkflowRequest, done func(*protos.WorkflowResponse, error)) func() {
	h.expectAnswer(req.GetInstanceId())
	return h.expect(req, func(err error) { done(nil, err) }, h.TasksBackend.OnWorkflowTaskCompletion(req, done))
}

// CompleteWorkflowTask also keeps the memory of the response reserved.
func (h *taskHub) CompleteWorkflowTask(ctx context.Context, resp *protos.WorkflowResponse) error {
	h.keepAnswer(ctx, resp.GetInstanceId())
	return h.TasksBackend.CompleteWorkflowTask(ctx, resp)
}

// CompleteActivityTask also keeps the memory of the response reserved.
func (h *taskHub) CompleteActivityTask(ctx context.Context, resp *protos.ActivityResponse) error {
	h.keepAnswer(ctx, backend.GetActivityExecutionKey(resp.GetInstanceId(), resp.GetTaskId()))
	return h.TasksBackend.CompleteActivityTask(ctx, resp)
}

// workItems is a stream of work items. It skips activities that were given back while they
// waited in the engine's queue: other processes execute those.
type workItems struct {
	grpc.ServerStream
	hub *taskHub
}

// RecvMsg hides from the engine what a worker offers to keep. The engine would leave out the part
// of a history that the stream was sent before, and tell its length alone. A rewind, a new
// execution or a new instance with the id may have replaced that part. And the engine remembers
// up to a million ids for each stream.
func (w workItems) RecvMsg(m any) error {
	err := w.ServerStream.RecvMsg(m)
	if req, ok := m.(*protos.GetWorkItemsRequest); ok {
		req.Capabilities = nil
	}
	return err
}

// SendMsg is called on a goroutine of the engine.
func (w workItems) SendMsg(m any) (err error) {
	defer panics.Contain(&err, w.hub.log, "sending a work item")
	if item, ok := m.(*protos.WorkItem); ok {
		var request any = item.GetWorkflowRequest()
		if activity := item.GetActivityRequest(); activity != nil {
			request = activity
		}
		switch d, open := w.hub.open.Load(request); {
		case open:
			d.(*dispatched).sentAs(item.GetCompletionToken())
		case item.GetActivityRequest() != nil:
			return nil
		}
	}
	return w.ServerStream.SendMsg(m)
}
