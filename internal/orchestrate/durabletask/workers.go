package durabletask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay/internal/orchestrate"
)

// Work items for workers wait in a queue of the engine for one of their streams. When a stream
// ends, the engine cancels the items it has sent by it, but not those in the queue. Their locks
// would be renewed until a worker connects here again, while workers of another server are idle.
// So once no worker has been connected for a while, queued items are given back, and the queue
// goes: a worker may never connect here again, and what is queued can be large.

// absenceTime is how long no worker may be connected. A worker that restarts or reconnects is
// back by then.
const absenceTime = 5 * time.Second

// errReconnect sends a worker away that has connected just as its executor was replaced.
var errReconnect = errors.New("try again")

// workerConnected and workerLeft count the streams of workers. One that is sent away counts until
// it has left.
func (h *taskHub) workerConnected(ctx context.Context, to backend.Executor) error {
	err := h.countStreams(ctx, 1)
	if err == nil && h.current() != to {
		return errReconnect
	}
	return err
}

func (h *taskHub) workerLeft(ctx context.Context) error { return h.countStreams(ctx, -1) }

func (h *taskHub) countStreams(ctx context.Context, change int) error {
	h.mu.Lock()
	h.streams += change
	if h.absence != nil {
		h.absence.Stop()
	}
	switch {
	case h.streams == 0:
		h.absence = time.AfterFunc(h.absenceTime, h.giveBackRemote)
	case h.present == nil || h.present.Err() != nil:
		h.present, h.leave = context.WithCancelCause(context.Background())
	}
	h.mu.Unlock()
	return h.service.WorkersChanged(context.WithoutCancel(ctx))
}

// giveBackRemote cancels the work items of workers and drops their queue, unless one is connected
// again.
func (h *taskHub) giveBackRemote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == 0 {
		h.leave(orchestrate.ErrNoWorker)
		h.executor = h.newExecutor()
	}
}

// handOut has a worker execute something. It returns orchestrate.ErrNoWorker if none has begun
// with it and none is connected.
func handOut[T any](ctx context.Context, h *taskHub, call func(context.Context) (T, error)) (result T, err error) {
	h.mu.Lock()
	present, streams := h.present, h.streams
	h.mu.Unlock()
	if streams == 0 {
		return result, orchestrate.ErrNoWorker
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(present, func() { cancel(orchestrate.ErrNoWorker) })()
	if result, err = call(ctx); err != nil && errors.Is(context.Cause(ctx), orchestrate.ErrNoWorker) {
		err = orchestrate.ErrNoWorker
	}
	return result, err
}

// failureMessageTooLarge is the failure type of a work item that is too large to send.
const failureMessageTooLarge = "MessageTooLarge"

// maxEnvelope is more than a work item holds beside its request: tokens and ids.
const maxEnvelope = 1 << 10

// tooLargeToSend says why a request cannot be sent; "": it can. A worker that gets more than it
// accepts ends its stream, and loses all work items it was sent. A retry would do the same
// again.
func (s *Server) tooLargeToSend(request proto.Message, what string) string {
	size := proto.Size(request) + maxEnvelope
	if size <= s.opts.MaxMessage {
		return ""
	}
	return fmt.Sprintf("%s %d bytes; a worker is sent up to %d (orchestrations.grpc.max_message_bytes, which the worker has to receive)", what, size, s.opts.MaxMessage)
}
