package durabletask

import (
	"context"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/grpc"

	"github.com/forebayhq/forebay/internal/panics"
)

// OnActivityCompletion also records that the activity's result is awaited.
func (h *taskHub) OnActivityCompletion(req *protos.ActivityRequest, done func(*protos.ActivityResponse, error)) func() {
	h.open.Store(req, struct{}{})
	h.expectAnswer(backend.GetActivityExecutionKey(req.GetWorkflowInstance().GetInstanceId(), req.GetTaskId()))
	stop := h.TasksBackend.OnActivityCompletion(req, done)
	return func() {
		h.open.Delete(req)
		stop()
	}
}

// OnWorkflowTaskCompletion also reserves the memory of the response until the work item is done.
func (h *taskHub) OnWorkflowTaskCompletion(req *protos.WorkflowRequest, done func(*protos.WorkflowResponse, error)) func() {
	h.expectAnswer(req.GetInstanceId())
	return h.TasksBackend.OnWorkflowTaskCompletion(req, done)
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
	if item, ok := m.(*protos.WorkItem); ok && item.GetActivityRequest() != nil {
		if _, open := w.hub.open.Load(item.GetActivityRequest()); !open {
			return nil
		}
	}
	return w.ServerStream.SendMsg(m)
}
