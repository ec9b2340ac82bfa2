package orchestrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/local"
	"github.com/dapr/durabletask-go/backend/runtimestate"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// hub is the engine's backend for one tenant: an instance id means something only within one. What the service has taken
// for the tenant waits in its channels for the engine's workers.
type taskHub struct {
	*local.TasksBackend
	*Service
	tenant         int64
	orchestrations chan *OrchestrationItem
	activities     chan *ActivityItem
	inProgress     sync.Map         // *protos.HistoryEvent → *Activity: what is carried out
	continuations  sync.Map         // instance id → *beginning: that it has continued as new in its turn
	skipsCode      sync.Map         // instance id → *Turn: that its code need not see
	poisonSuspects sync.Map         // instance id → struct{}: if its turn comes to nothing now, the turn is to blame
	remote         backend.Executor // hands work to processes that are connected by gRPC
	open           sync.Map         // *protos.ActivityRequest → struct{}: those that somebody waits for
	receipts       sync.Map         // what answers are expected for → *receipt
	streams        int              // of these
	present        context.Context  // ends when they have been away for awayTime
	leave          context.CancelCauseFunc
	away           *time.Timer // since the last one left
	started        bool
	workers        []interface{ StopAndDrain() }
}

var _ backend.Backend = (*taskHub)(nil)

func newTaskHub(s *Service, tenant int64) *taskHub {
	h := &taskHub{TasksBackend: local.NewTasksBackend(), Service: s, tenant: tenant,
		orchestrations: make(chan *OrchestrationItem, s.opts.ConcurrentOrchestrations), activities: make(chan *ActivityItem, s.opts.ConcurrentActivities)}
	h.remote, _ = backend.NewGrpcExecutor(h, engineLog{s.log},
		backend.WithSkipWaitForInstanceStart(), backend.WithStreamShutdownChannel(s.closing),
		backend.WithOnGetWorkItemsConnectionCallback(h.workerConnected), backend.WithOnGetWorkItemsDisconnectCallback(h.workerLeft))
	return h
}

// start has the engine carry out what the channels hold.
func (h *taskHub) start(ctx context.Context) {
	h.started = true
	logger := engineLog{h.log}
	orchestrations := backend.NewTaskWorker(newOrchestrationProcessor(h, executor{h}), logger)
	activities := backend.NewTaskWorker(&activityProcessor{h, executor{h}}, logger)
	orchestrations.Start(ctx)
	activities.Start(ctx)
	h.workers = []interface{ StopAndDrain() }{orchestrations, activities}
}

func (h *taskHub) stop() {
	for _, w := range h.workers {
		w.StopAndDrain()
	}
}

// turnKey is the property of a work item that holds its turn or activity.
const itemKey = "forebay"

// bytesKey is the property that holds how many bytes the history of a turn had before it.
const bytesKey = "bytes"

// settleTime bounds how long storing an outcome may take.
const settleTime = 30 * time.Second

// settling returns a context for storing an outcome, also while the server stops.
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

// GetWorkflowRuntimeState returns the history. For a turn it also reads what has arrived, which the engine asks for afterwards.
func (h *taskHub) GetWorkflowRuntimeState(ctx context.Context, wi *backend.WorkflowWorkItem) (state *backend.WorkflowRuntimeState, err error) {
	item, ok := wi.Properties[itemKey].(*OrchestrationItem)
	if !ok {
		return h.stateOf(ctx, string(wi.InstanceID))
	}
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
		events, err := h.history(ctx, item.Instance)
		if err != nil {
			return nil, h.noteUnreadable(item, err)
		}
		if int64(len(events)) != item.Events {
			return nil, forebay.ErrLockLost // another had a turn since
		}
		past = history.Cached{Events: events, Bytes: history.Size(events)}
	}
	wi.Properties[bytesKey] = past.Bytes
	if item.SkipsCode {
		h.skipsCode.Store(item.ID, item)
	}
	return runtimestate.NewWorkflowRuntimeState(item.ID, history.Value(item.Custom), past.Events), nil
}

func (s *Service) history(ctx context.Context, instance int64) (events []*protos.HistoryEvent, err error) {
	payloads, err := s.store.OrchestrationHistory(ctx, instance)
	if err != nil {
		return nil, err
	}
	orchestrations, err := s.loadAll(ctx, payloads)
	for _, b := range orchestrations {
		if err == nil {
			events, err = history.DecodeAll(events, b)
		}
	}
	return events, err
}

// stateOf is for the engine's recursive purge, which reads of it which instances this one has called.
func (h *taskHub) stateOf(ctx context.Context, id string) (*backend.WorkflowRuntimeState, error) {
	row, err := h.store.Orchestration(ctx, h.tenant, id)
	if err != nil {
		return nil, engineError(err)
	}
	events, err := h.history(ctx, row.No)
	if err != nil {
		return nil, err
	}
	return runtimestate.NewWorkflowRuntimeState(id, history.Value(row.CustomStatus), events), nil
}

func (h *taskHub) CompleteWorkflowWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "storing an orchestration work item")
	item := wi.Properties[itemKey].(*OrchestrationItem)
	defer h.answered(item.ID)
	h.forgetItem(item)
	boundFailures(wi.State)
	if wi.State.CustomStatus == history.UnchangedStatus {
		wi.State.CustomStatus = history.Value(item.Custom)
	}
	bytes := history.Size(wi.State.NewEvents)
	if !wi.State.ContinuedAsNew {
		bytes += wi.Properties[bytesKey].(int)
	}
	result, err := h.resultOf(item, wi.State, bytes)
	if err != nil {
		return err
	}
	put, err := h.storeResultPayloads(ctx, item, result)
	ctx, cancel := settling(ctx)
	defer cancel()
	var orphans []string
	if err == nil {
		orphans, err = h.store.CompleteOrchestration(ctx, item, result)
		h.deleteIfRefused(ctx, err, put)
	}
	if err != nil {
		h.cache.Forget(item.Instance)
		if isTransient(err) {
			h.poisonSuspects.Delete(item.ID)
		}
		return engineError(err)
	}
	h.poisonSuspects.Delete(item.ID)
	taken := ProcessedItem{Kind: KindOrchestration, Name: item.Name, Outcome: ItemStored}
	h.cancelJobs(ctx, orphans)
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

// AbandonWorkflowWorkItem is for a turn that came to nothing: its process could not be reached, or code of it panicked.
func (h *taskHub) AbandonWorkflowWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "giving an orchestration work item back")
	item := wi.Properties[itemKey].(*OrchestrationItem)
	defer h.answered(item.ID)
	h.forgetItem(item)
	_, lost := h.poisonSuspects.LoadAndDelete(item.ID)
	defer h.release(item.Token)
	ctx, cancel := settling(ctx)
	defer cancel()
	taken := ProcessedItem{Kind: KindOrchestration, Name: item.Name, Outcome: ItemAbandoned}
	err = h.store.AbandonOrchestration(ctx, item, h.backoff(item.Deliveries), lost && !h.stopping())
	if errors.Is(err, forebay.ErrLockLost) {
		taken.Outcome, err = ItemLockLost, nil
	}
	h.opts.Observe(taken)
	return err
}

// over forgets what is known of a turn.
func (h *taskHub) forgetItem(item *OrchestrationItem) {
	h.continuations.Delete(item.ID)
	h.skipsCode.CompareAndDelete(item.ID, item)
}

// pause is how long what came to nothing rests, by how often it did.
func (h *taskHub) backoff(times int) time.Duration {
	if h.stopping() {
		return 0
	}
	return min(100*time.Millisecond<<min(times, 12), time.Minute)
}

func (s *Service) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// unlessLost is for giving back what another may have by now.
func unlessLost(err error) error {
	if errors.Is(err, forebay.ErrLockLost) {
		return nil
	}
	return err
}

// engineError says what the engine understands.
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

func (h *taskHub) CreateWorkflowInstance(ctx context.Context, req *backend.CreateWorkflowInstanceRequest) error {
	started := req.GetStartEvent().GetExecutionStarted()
	check := StartRequest{Name: started.GetName(), ID: started.GetWorkflowInstance().GetInstanceId(), Input: history.JSON(started.GetInput())}
	if asked, ok := ctx.Value(createKey{}).(*protos.CreateInstanceRequest); ok { // of which the engine hands on neither version nor policy
		check.Version, check.Replaces = asked.GetVersion().GetValue(), replaceable(asked)
		if check.Version != "" {
			started.Version = wrapperspb.String(check.Version)
		}
	}
	if req.EnforceUniqueInstanceId {
		check.Replaces = []forebay.OrchestrationStatus{}
	}
	if check.ID == "" {
		return forebay.Invalid("instance_id", "is required")
	}
	if err := h.check(&check); err != nil {
		return err
	}
	tenant, err := h.store.TenantName(ctx, h.tenant)
	if err == nil {
		err = h.create(ctx, tenant, h.tenant, req.GetStartEvent(), check.Replaces, audit.Act{})
	}
	if forebay.CodeOf(err) == forebay.CodeConflict {
		return api.ErrDuplicateInstance
	}
	return err
}

// maxReasonBytes bounds why an instance is suspended, resumed or terminated, as the HTTP API does.
const maxReasonBytes = 4096

func (h *taskHub) AddNewWorkflowEvent(ctx context.Context, id api.InstanceID, e *backend.HistoryEvent) error {
	if raised := e.GetEventRaised(); raised != nil && !forebay.ValidText(raised.Name, maxFunctionName) {
		return forebay.Invalid("event", "must have 1 to %d bytes without control characters", maxFunctionName)
	}
	if err := h.checkPayload("data", history.JSON(e.GetEventRaised().GetInput())); err != nil {
		return err
	}
	for _, reason := range []*wrapperspb.StringValue{e.GetExecutionSuspended().GetInput(), e.GetExecutionResumed().GetInput(), e.GetExecutionTerminated().GetInput()} {
		if len(reason.GetValue()) > maxReasonBytes {
			return forebay.Invalid("reason", "is longer than 4,096 bytes")
		}
	}
	tenant, err := h.store.TenantName(ctx, h.tenant)
	if err != nil {
		return err
	}
	return h.send(ctx, tenant, h.tenant, string(id), e)
}

// act is the audit row of what somebody does who is connected by gRPC.
func (h *taskHub) act(ctx context.Context, action, instance string, detail any) (audit.Act, error) {
	tenant, err := h.store.TenantName(ctx, h.tenant)
	return act(ctx, tenant, action, instance, detail), err
}

// watchPause is how long a watch goes without looking: it may have missed what another process did.
const watchPause = 5 * time.Second

func (h *taskHub) WatchWorkflowRuntimeStatus(ctx context.Context, id api.InstanceID, _ *protos.TaskRouter, condition func(*backend.WorkflowMetadata) bool) error {
	return engineError(h.watch(ctx, h.tenant, string(id), func(row OrchestrationRow) (bool, error) {
		if !condition(metadataOf(row)) {
			return false, nil
		}
		err := h.fillAsked(ctx, &row)
		return condition(metadataOf(row)), err
	}))
}

func (h *taskHub) GetWorkflowMetadata(ctx context.Context, id api.InstanceID, _ *protos.TaskRouter) (*backend.WorkflowMetadata, error) {
	row, err := h.store.Orchestration(ctx, h.tenant, string(id))
	if err == nil {
		err = h.fillAsked(ctx, &row)
	}
	if err != nil {
		return nil, engineError(err)
	}
	return metadataOf(row), nil
}

func metadataOf(o OrchestrationRow) *backend.WorkflowMetadata {
	m := &backend.WorkflowMetadata{
		InstanceId: o.ID, Name: o.Name, RuntimeStatus: history.StatusNumbers[o.Status], CreatedAt: history.Timestamp(&o.CreatedAt), LastUpdatedAt: history.Timestamp(&o.UpdatedAt),
		Input: history.Value(o.Input), Output: history.Value(o.Output), CustomStatus: history.Value(o.CustomStatus), FailureDetails: history.DetailsOf(o.Failure),
		CompletedAt: history.Timestamp(o.CompletedAt), StartedAt: history.Timestamp(o.StartedAt), ParentInstanceId: o.ParentID,
	}
	if o.Version != "" {
		m.Version = wrapperspb.String(o.Version)
	}
	return m
}

func (h *taskHub) PurgeWorkflowState(ctx context.Context, id api.InstanceID, _ *protos.TaskRouter, _ bool, force bool) (int, error) {
	audit, err := h.act(ctx, "purge-orchestration", string(id), nil)
	if err == nil {
		err = h.store.PurgeOrchestration(ctx, h.tenant, string(id), force, audit)
	}
	switch {
	case forebay.CodeOf(err) == forebay.CodeConflict:
		return 0, api.ErrNotCompleted
	case err != nil:
		return 0, engineError(err)
	}
	return 1, nil
}

// defaultPage is how many instance ids are listed at once.
const defaultPage = 100

func (h *taskHub) ListInstanceIDs(ctx context.Context, req *protos.ListInstanceIDsRequest) (*protos.ListInstanceIDsResponse, error) {
	limit := int(req.GetPageSize())
	if limit <= 0 || limit > forebay.MaxPageSize {
		limit = defaultPage
	}
	page, next, err := h.list(ctx, OrchestrationQuery{Tenant: h.tenant, Limit: limit}, req.GetContinuationToken(), false)
	if err != nil {
		return nil, err
	}
	resp := &protos.ListInstanceIDsResponse{}
	for _, o := range page {
		resp.InstanceIds = append(resp.InstanceIds, o.ID)
	}
	if next != "" {
		resp.ContinuationToken = &next
	}
	return resp, nil
}

func (h *taskHub) GetInstanceHistory(ctx context.Context, req *protos.GetInstanceHistoryRequest) (*protos.GetInstanceHistoryResponse, error) {
	row, err := h.store.Orchestration(ctx, h.tenant, req.GetInstanceId())
	if err != nil {
		return nil, engineError(err)
	}
	events, err := h.history(ctx, row.No)
	return &protos.GetInstanceHistoryResponse{Events: events}, err
}

// RerunWorkflowFromEvent is not offered: RewindOrchestration and restart are.
func (h *taskHub) RerunWorkflowFromEvent(context.Context, *protos.RerunWorkflowFromEventRequest) (api.InstanceID, error) {
	return "", forebay.Errorf(forebay.CodeNotSupported, "an instance cannot be run again from the middle; rewind or restart it")
}

// The store is opened and closed by its owner.
func (h *taskHub) CreateTaskHub(context.Context) error { return nil }
func (h *taskHub) DeleteTaskHub(context.Context) error {
	return forebay.Errorf(forebay.CodeNotSupported, "the database is not deleted from here")
}
func (h *taskHub) Start(context.Context) error { return nil }
func (h *taskHub) Stop(context.Context) error  { return nil }
