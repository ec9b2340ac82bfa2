package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay/internal/panics"
)

// What is handed to processes that are connected waits in a queue of the engine's for one of their streams. When a stream ends the engine
// cancels what it had sent by it, but not what is in the queue: that would wait for somebody to connect here again, under locks that are
// renewed, while processes at another server have nothing to do. So once nobody has been connected for a while it is given back.

// awayTime is how long nobody may be connected: a process that is started anew, or whose connection broke, is back by then.
const awayTime = 5 * time.Second

// workerConnected and workerLeft follow how many processes wait for work.
func (h *taskHub) workerConnected(ctx context.Context) error { return h.countStreams(ctx, 1) }
func (h *taskHub) workerLeft(ctx context.Context) error      { return h.countStreams(ctx, -1) }

func (h *taskHub) countStreams(ctx context.Context, change int) error {
	h.mu.Lock()
	h.streams += change
	if h.away != nil {
		h.away.Stop()
	}
	switch {
	case h.streams == 0:
		h.away = time.AfterFunc(h.awayTime, h.giveBackRemote)
	case h.present == nil || h.present.Err() != nil:
		h.present, h.leave = context.WithCancelCause(context.Background())
	}
	h.mu.Unlock()
	return h.store.Reconsider(context.WithoutCancel(ctx))
}

// giveBackRemote ends what is handed out, unless somebody is connected again.
func (h *taskHub) giveBackRemote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == 0 {
		h.leave(ErrNoWorker)
	}
}

// handOut lets a process that is connected carry something out. It returns errNobody if none has begun with it and none is there to.
func handOut[T any](ctx context.Context, h *taskHub, call func(context.Context) (T, error)) (result T, err error) {
	h.mu.Lock()
	present, streams := h.present, h.streams
	h.mu.Unlock()
	if streams == 0 {
		return result, ErrNoWorker
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(present, func() { cancel(ErrNoWorker) })()
	if result, err = call(ctx); err != nil && errors.Is(context.Cause(ctx), ErrNoWorker) {
		err = ErrNoWorker
	}
	return result, err
}

// failureMessageTooLarge is the type of the failure of what cannot be sent to a process that is connected.
const failureMessageTooLarge = "MessageTooLarge"

// maxEnvelope is more than a work item holds besides its request: tokens and ids.
const maxEnvelope = 1 << 10

// tooLargeToSend says why a request cannot be sent; "": it can. A process that is sent more than it receives ends its stream, and with
// it everything that was sent before, as often as that is repeated.
func (h *taskHub) tooLargeToSend(request proto.Message, what string) string {
	size := proto.Size(request) + maxEnvelope
	if size <= h.opts.MaxMessage {
		return ""
	}
	return fmt.Sprintf("%s %d bytes; a worker is sent up to %d (orchestrations.grpc.max_message_bytes, which the worker has to receive)", what, size, h.opts.MaxMessage)
}

// OnActivityCompletion also notes that somebody waits for the activity.
func (h *taskHub) OnActivityCompletion(req *protos.ActivityRequest, done func(*protos.ActivityResponse, error)) func() {
	h.open.Store(req, struct{}{})
	h.expectAnswer(backend.GetActivityExecutionKey(req.GetWorkflowInstance().GetInstanceId(), req.GetTaskId()))
	stop := h.TasksBackend.OnActivityCompletion(req, done)
	return func() {
		h.open.Delete(req)
		stop()
	}
}

// OnWorkflowTaskCompletion also has the room of the answer kept until the turn is over.
func (h *taskHub) OnWorkflowTaskCompletion(req *protos.WorkflowRequest, done func(*protos.WorkflowResponse, error)) func() {
	h.expectAnswer(req.GetInstanceId())
	return h.TasksBackend.OnWorkflowTaskCompletion(req, done)
}

// CompleteWorkflowTask also keeps the room of the answer.
func (h *taskHub) CompleteWorkflowTask(ctx context.Context, resp *protos.WorkflowResponse) error {
	h.keepAnswer(ctx, resp.GetInstanceId())
	return h.TasksBackend.CompleteWorkflowTask(ctx, resp)
}

// CompleteActivityTask also keeps the room of the answer.
func (h *taskHub) CompleteActivityTask(ctx context.Context, resp *protos.ActivityResponse) error {
	h.keepAnswer(ctx, backend.GetActivityExecutionKey(resp.GetInstanceId(), resp.GetTaskId()))
	return h.TasksBackend.CompleteActivityTask(ctx, resp)
}

// workItems is a stream of work that leaves out activities that were given back while they stood in the engine's queue: others
// carry them out.
type workItems struct {
	grpc.ServerStream
	*taskHub
}

func (w workItems) Context() context.Context { return w.ServerStream.Context() }

// SendMsg is called by a goroutine of the engine's.
func (w workItems) SendMsg(m any) (err error) {
	defer panics.Contain(&err, w.log, "sending a work item")
	if item, ok := m.(*protos.WorkItem); ok && item.GetActivityRequest() != nil {
		if _, open := w.open.Load(item.GetActivityRequest()); !open {
			return nil
		}
	}
	return w.ServerStream.SendMsg(m)
}
