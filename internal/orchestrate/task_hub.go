package orchestrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/runtimestate"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/panics"
)

// taskHub executes the work items of one tenant: an instance id is unique only within a tenant.
// Claimed items wait in its channels for the engine's workers.
type taskHub struct {
	*Service
	tenant         int64
	orchestrations chan *OrchestrationItem
	activities     chan *ActivityItem
	inProgress     sync.Map // *protos.HistoryEvent → *ActivityItem: those that are executed
	continuations  sync.Map // instance id → *continuation
	poisonSuspects sync.Map // instance id → struct{}: if its item fails now, the item is to blame
	started        bool
	processors     []interface{ StopAndDrain() }
}

func newTaskHub(s *Service, tenant int64) *taskHub {
	return &taskHub{Service: s, tenant: tenant, orchestrations: make(chan *OrchestrationItem, s.opts.ConcurrentOrchestrations),
		activities: make(chan *ActivityItem, s.opts.ConcurrentActivities)}
}

// start starts the engine's workers.
func (h *taskHub) start(ctx context.Context) {
	h.started = true
	logger := EngineLog{h.log}
	orchestrations := backend.NewTaskWorker(newOrchestrationProcessor(h, executor{h}), logger)
	activities := backend.NewTaskWorker(&activityProcessor{h, executor{h}}, logger)
	orchestrations.Start(ctx)
	activities.Start(ctx)
	h.processors = []interface{ StopAndDrain() }{orchestrations, activities}
}

func (h *taskHub) stop() {
	for _, w := range h.processors {
		w.StopAndDrain()
	}
}

// itemKey is the property of the engine's work item that holds ours.
const itemKey = "forebay"

// turnKey is the context key of the orchestration item that is executed.
type turnKey struct{}

// bytesKey is the property that holds the size of the history before the work item.
const bytesKey = "bytes"

// settleTime bounds how long storing an outcome may take.
const settleTime = 30 * time.Second

// settling returns a context for storing an outcome, which a stop of the server does not end.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}

func (h *taskHub) NextWorkflowWorkItem(ctx context.Context) (*backend.WorkflowWorkItem, error) {
	select {
	case item := <-h.orchestrations:
		return &backend.WorkflowWorkItem{InstanceID: api.InstanceID(item.ID), RetryCount: int32(item.Deliveries - 1), Properties: map[string]any{itemKey: item}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// GetWorkflowRuntimeState returns the history. It also adds the new events to the work item.
func (h *taskHub) GetWorkflowRuntimeState(ctx context.Context, wi *backend.WorkflowWorkItem) (state *backend.WorkflowRuntimeState, err error) {
	item := wi.Properties[itemKey].(*OrchestrationItem)
	err = panics.Run(h.log, "reading an instance", func() (err error) {
		state, err = h.itemState(ctx, wi, item)
		return err
	})
	if errors.Is(err, panics.ErrPanicked) {
		h.poisonSuspects.Store(item.ID, struct{}{})
	}
	return state, err
}

func (h *taskHub) itemState(ctx context.Context, wi *backend.WorkflowWorkItem, item *OrchestrationItem) (*backend.WorkflowRuntimeState, error) {
	arrived, err := h.arrived(ctx, item)
	if err != nil {
		return nil, h.noteUnreadable(item, err)
	}
	wi.NewEvents = append(wi.NewEvents, arrived...)
	past, ok := h.cache.Get(item.Instance, item.Number)
	if !ok {
		ctx, cancel := h.bound(ctx, item.Token)
		defer cancel(nil)
		events, err := h.Events(ctx, item.Instance)
		if err != nil {
			return nil, h.noteUnreadable(item, err)
		}
		if int64(len(events)) != item.Events {
			return nil, forebay.ErrLockLost // another process has stored an item since
		}
		past = history.Cached{Events: events, Bytes: history.Size(events)}
	}
	wi.Properties[bytesKey] = past.Bytes
	return runtimestate.NewWorkflowRuntimeState(item.ID, history.Value(item.Custom), past.Events), nil
}

func (h *taskHub) CompleteWorkflowWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "storing an orchestration work item")
	item := wi.Properties[itemKey].(*OrchestrationItem)
	defer h.workers.OrchestrationDone(h.tenant, item.ID)
	h.continuations.Delete(item.ID)
	history.BoundFailures(wi.State)
	if wi.State.CustomStatus == history.UnchangedStatus {
		wi.State.CustomStatus = history.Value(item.Custom)
	}
	bytes := history.Size(wi.State.NewEvents)
	if !wi.State.ContinuedAsNew {
		bytes += wi.Properties[bytesKey].(int)
	}
	result, err := h.resultOf(item, wi.NewEvents, wi.State, bytes)
	if err != nil {
		return err
	}
	put, err := h.storeResultPayloads(ctx, item, result)
	var orphans []string
	if err == nil {
		err = h.storeOutcome(ctx, item.Token, put, func(ctx context.Context) (err error) {
			orphans, err = h.store.CompleteOrchestration(ctx, item, result)
			return err
		})
	}
	ctx, cancel := settling(ctx)
	defer cancel()
	if err != nil {
		h.cache.Forget(item.Instance)
		if mayPass(err) || errors.Is(err, forebay.ErrLockLost) {
			h.poisonSuspects.Delete(item.ID)
		}
		return engineError(err)
	}
	h.poisonSuspects.Delete(item.ID)
	taken := ProcessedItem{Kind: workqueues.Orchestrations, Name: item.Name, Outcome: ItemStored}
	h.cancelJobs(ctx, h.tenant, orphans)
	if result.Status.Terminal() {
		taken.Ended = result.Status
		h.cache.Forget(item.Instance)
	} else {
		h.cache.Put(item.Instance, history.Cached{Number: item.Number + 1, Events: append(wi.State.OldEvents, wi.State.NewEvents...), Bytes: bytes})
	}
	h.opts.Observe(taken)
	h.release(item.Token)
	return nil
}

// AbandonWorkflowWorkItem gives a work item back whose worker has left, or whose code panicked.
func (h *taskHub) AbandonWorkflowWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "giving an orchestration work item back")
	item := wi.Properties[itemKey].(*OrchestrationItem)
	defer h.workers.OrchestrationDone(h.tenant, item.ID)
	h.continuations.Delete(item.ID)
	_, lost := h.poisonSuspects.LoadAndDelete(item.ID)
	defer h.release(item.Token)
	taken := ProcessedItem{Kind: workqueues.Orchestrations, Name: item.Name, Outcome: ItemAbandoned}
	err = h.storeOutcome(ctx, item.Token, nil, func(ctx context.Context) error {
		return h.store.AbandonOrchestration(ctx, item, h.backoff(item.Deliveries), lost && !h.stopping())
	})
	if errors.Is(err, forebay.ErrLockLost) {
		taken.Outcome, err = ItemLockLost, nil
	}
	h.opts.Observe(taken)
	return err
}

// backoff is the delay before a work item is ready again after so many failed tries.
func (h *taskHub) backoff(times int) time.Duration {
	if h.stopping() {
		return 0
	}
	return min(100*time.Millisecond<<min(times, 12), time.Minute)
}

// unlessLost drops the error of a lost lock, when a work item is given back.
func unlessLost(err error) error {
	if errors.Is(err, forebay.ErrLockLost) {
		return nil
	}
	return err
}

// engineError converts an error to one that the engine knows.
func engineError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, forebay.ErrLockLost):
		return backend.ErrWorkItemLockLost
	case forebay.CodeOf(err) == forebay.CodeNotFound:
		return api.ErrInstanceNotFound
	}
	return err
}
