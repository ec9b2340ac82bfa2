package durabletask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay/internal/orchestrate"
)

// What is handed to processes that are connected waits in a queue of the engine's for one of their streams. When a stream ends the engine
// cancels what it had sent by it, but not what is in the queue: that would wait for somebody to connect here again, under locks that are
// renewed, while processes at another server have nothing to do. So once nobody has been connected for a while it is given back.

// absenceTime is how long nobody may be connected: a process that is started anew, or whose connection broke, is back by then.
const absenceTime = 5 * time.Second

// workerConnected and workerLeft follow how many processes wait for work.
func (h *taskHub) workerConnected(ctx context.Context) error { return h.countStreams(ctx, 1) }
func (h *taskHub) workerLeft(ctx context.Context) error      { return h.countStreams(ctx, -1) }

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

// giveBackRemote ends what is handed out, unless somebody is connected again.
func (h *taskHub) giveBackRemote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == 0 {
		h.leave(orchestrate.ErrNoWorker)
	}
}

// handOut lets a process that is connected carry something out. It returns errNobody if none has begun with it and none is there to.
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

// failureMessageTooLarge is the type of the failure of what cannot be sent to a process that is connected.
const failureMessageTooLarge = "MessageTooLarge"

// maxEnvelope is more than a work item holds besides its request: tokens and ids.
const maxEnvelope = 1 << 10

// tooLargeToSend says why a request cannot be sent; "": it can. A process that is sent more than it receives ends its stream, and with
// it everything that was sent before, as often as that is repeated.
func (s *Server) tooLargeToSend(request proto.Message, what string) string {
	size := proto.Size(request) + maxEnvelope
	if size <= s.opts.MaxMessage {
		return ""
	}
	return fmt.Sprintf("%s %d bytes; a worker is sent up to %d (orchestrations.grpc.max_message_bytes, which the worker has to receive)", what, size, s.opts.MaxMessage)
}
