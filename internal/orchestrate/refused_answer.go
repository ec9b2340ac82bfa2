package orchestrate

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"sync"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
)

// An answer that is larger than the server receives is refused by gRPC before anybody has read what it answers, and its worker says no more of
// it: what it was for would be under way for as long as that worker is connected. So each connection remembers what was sent by it and is not
// answered. Once that is one thing, it is what the refused answer was for.

// connection is what a process is connected by.
type connection struct {
	mu      sync.Mutex
	sent    map[itemKey]sentItem
	refused bool // an answer to one of these was
}

// itemKey is what answers name of what they answer.
type itemKey struct {
	instance string
	task     int32 // turnTask: it is a turn
}

const turnTask = -1

type sentItem struct {
	hub  *hub
	item *protos.WorkItem
}

func keyOf(item *protos.WorkItem) itemKey {
	if a := item.GetActivityRequest(); a != nil {
		return itemKey{a.GetWorkflowInstance().GetInstanceId(), a.TaskId}
	}
	return itemKey{item.GetWorkflowRequest().GetInstanceId(), turnTask}
}

// maxSent bounds what a connection remembers. A worker that is sent more without answering is not told from one that never does.
const maxSent = 10_000

func (c *connection) send(h *hub, item *protos.WorkItem) {
	if item.GetActivityRequest() == nil && item.GetWorkflowRequest() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil || len(c.sent) >= maxSent {
		c.sent, c.refused = map[itemKey]sentItem{}, false
	}
	c.sent[keyOf(item)] = sentItem{h, item}
}

// answer notes that something was answered, and refuse that an answer was refused, perhaps for the last time: both return what that was for once it is
// known.
func (c *connection) answer(key itemKey) (sentItem, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, key)
	return c.only()
}

func (c *connection) refuse() (sentItem, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
	return c.only()
}

func (c *connection) only() (sentItem, bool) {
	if !c.refused || len(c.sent) != 1 {
		return sentItem{}, false
	}
	c.refused = false
	for key, s := range c.sent {
		delete(c.sent, key)
		return s, true
	}
	return sentItem{}, false
}

// fail answers in a worker's stead.
func (s sentItem) fail(ctx context.Context) {
	why := fmt.Sprintf("the worker's answer is larger than the %d bytes that the server receives", s.hub.maxReceived())
	var err error
	if a := s.item.GetActivityRequest(); a != nil {
		err = s.hub.TasksBackend.CompleteActivityTask(ctx, &protos.ActivityResponse{InstanceId: a.GetWorkflowInstance().GetInstanceId(), TaskId: a.TaskId,
			CompletionToken: s.item.CompletionToken,
			FailureDetails:  &protos.TaskFailureDetails{ErrorType: string(forebay.CodePayloadTooLarge), ErrorMessage: why, IsNonRetriable: true}})
	} else {
		r, p := s.item.GetWorkflowRequest(), newPast()
		p.without(r.PastEvents)
		p.without(r.NewEvents)
		resp := failed(api.InstanceID(r.InstanceId), p.last+1, string(forebay.CodePayloadTooLarge), why)
		resp.CompletionToken = s.item.CompletionToken
		err = s.hub.TasksBackend.CompleteWorkflowTask(ctx, resp)
	}
	if err != nil { // it was given back since
		s.hub.log.Debug("nobody waits for what a worker's answer was too large for", slog.Any("error", err))
	}
}

func (h *hub) CompleteActivityTask(ctx context.Context, resp *protos.ActivityResponse) error {
	h.answered(ctx, itemKey{resp.GetInstanceId(), resp.GetTaskId()})
	return h.TasksBackend.CompleteActivityTask(ctx, resp)
}

func (h *hub) CompleteWorkflowTask(ctx context.Context, resp *protos.WorkflowResponse) error {
	h.answered(ctx, itemKey{resp.GetInstanceId(), turnTask})
	return h.TasksBackend.CompleteWorkflowTask(ctx, resp)
}

func (h *hub) answered(ctx context.Context, key itemKey) {
	if s, found := connectionOf(ctx).answer(key); found {
		s.fail(ctx)
	}
}

type (
	connectionKey struct{}
	callStateKey  struct{}
)

// connectionOf returns the one by which a call has come.
func connectionOf(ctx context.Context) *connection { return ctx.Value(connectionKey{}).(*connection) }

// callState is a call by gRPC.
type callState struct {
	method string
	begun  bool // its message was received
}

// watcher follows connections, and which calls are refused for their size.
type watcher struct {
	*Service
	g GRPC
}

var _ stats.Handler = watcher{}

func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

func (watcher) HandleConn(context.Context, stats.ConnStats) {}

func (watcher) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callStateKey{}, &callState{method: info.FullMethodName})
}

func (w watcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	if !ok || status.Code(end.Error) != codes.ResourceExhausted {
		return
	}
	call := ctx.Value(callStateKey{}).(*callState)
	if call.begun {
		return
	}
	switch path.Base(call.method) {
	case "CompleteActivityTask", "CompleteOrchestratorTask", "CompleteWorkflowTask":
	default:
		return
	}
	if _, err := w.admit(ctx, w.g, call.method); err != nil {
		return
	}
	answer, found := connectionOf(ctx).refuse()
	w.log.Warn("a worker's answer is larger than what is received", slog.Int("limit", w.maxReceived()), slog.Bool("fails", found))
	if found {
		answer.fail(ctx)
	}
}
