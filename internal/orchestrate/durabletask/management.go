package durabletask

import (
	"context"
	"math"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// managementOnly has the methods of a backend that the gRPC executor never calls: the engine
// hands out work items by orchestrate.Workers.
type managementOnly struct{}

var errNoWorkItems = forebay.Errorf(forebay.CodeNotSupported, "work items are handed out by the engine")

func (managementOnly) NextWorkflowWorkItem(context.Context) (*backend.WorkflowWorkItem, error) {
	return nil, errNoWorkItems
}

// The recursive purge of the engine, which is not used, would call it.
func (managementOnly) GetWorkflowRuntimeState(context.Context, *backend.WorkflowWorkItem) (*backend.WorkflowRuntimeState, error) {
	return nil, errNoWorkItems
}

func (managementOnly) CompleteWorkflowWorkItem(context.Context, *backend.WorkflowWorkItem) error {
	return errNoWorkItems
}

func (managementOnly) AbandonWorkflowWorkItem(context.Context, *backend.WorkflowWorkItem) error {
	return errNoWorkItems
}

func (managementOnly) NextActivityWorkItem(context.Context) (*backend.ActivityWorkItem, error) {
	return nil, errNoWorkItems
}

func (managementOnly) CompleteActivityWorkItem(context.Context, *backend.ActivityWorkItem) error {
	return errNoWorkItems
}

func (managementOnly) AbandonActivityWorkItem(context.Context, *backend.ActivityWorkItem) error {
	return errNoWorkItems
}

// The owner of the store opens and closes it.
func (managementOnly) CreateTaskHub(context.Context) error { return nil }
func (managementOnly) DeleteTaskHub(context.Context) error {
	return forebay.Errorf(forebay.CodeNotSupported, "the database is not deleted from here")
}
func (managementOnly) Start(context.Context) error { return nil }
func (managementOnly) Stop(context.Context) error  { return nil }

// engineError converts an error to one that the engine knows.
func engineError(err error) error {
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		return api.ErrInstanceNotFound
	}
	return err
}

func (h *taskHub) CreateWorkflowInstance(ctx context.Context, req *backend.CreateWorkflowInstanceRequest) error {
	var replaces []forebay.OrchestrationStatus
	if asked, ok := ctx.Value(createKey{}).(*protos.CreateInstanceRequest); ok {
		replaces = replaceable(asked)
		if version := asked.GetVersion().GetValue(); version != "" {
			req.GetStartEvent().GetExecutionStarted().Version = wrapperspb.String(version)
		}
	}
	if req.EnforceUniqueInstanceId {
		replaces = []forebay.OrchestrationStatus{}
	}
	err := h.service.StartFrom(ctx, h.name, req.GetStartEvent(), replaces)
	if forebay.CodeOf(err) == forebay.CodeConflict {
		return api.ErrDuplicateInstance
	}
	return err
}

func (h *taskHub) AddNewWorkflowEvent(ctx context.Context, id api.InstanceID, e *backend.HistoryEvent) error {
	return h.service.Send(ctx, h.name, string(id), e)
}

func (h *taskHub) WatchWorkflowRuntimeStatus(ctx context.Context, id api.InstanceID, _ *protos.TaskRouter, condition func(*backend.WorkflowMetadata) bool) error {
	return engineError(h.service.Watch(ctx, h.tenant, string(id), func(row orchestrate.OrchestrationRow) (bool, error) {
		if !condition(metadataOf(row)) {
			return false, nil
		}
		err := h.fillAsked(ctx, &row)
		return condition(metadataOf(row)), err
	}))
}

func (h *taskHub) GetWorkflowMetadata(ctx context.Context, id api.InstanceID, _ *protos.TaskRouter) (*backend.WorkflowMetadata, error) {
	row, err := h.service.Row(ctx, h.name, string(id))
	if err == nil {
		err = h.fillAsked(ctx, &row)
	}
	if err != nil {
		return nil, engineError(err)
	}
	return metadataOf(row), nil
}

func metadataOf(o orchestrate.OrchestrationRow) *backend.WorkflowMetadata {
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
	return h.purge(ctx, string(id), force, true)
}

// purge deletes an instance, and returns the number of deleted ones. By force it tells the caller
// of the instance, if it is to.
func (h *taskHub) purge(ctx context.Context, id string, force, tells bool) (n int, err error) {
	if force {
		err = h.service.PurgeByForce(ctx, h.name, id, tells)
	} else {
		err = h.service.Purge(ctx, h.name, id)
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
	ids, next, err := h.service.IDs(ctx, h.name, limit, req.GetContinuationToken())
	if err != nil {
		return nil, err
	}
	resp := &protos.ListInstanceIDsResponse{InstanceIds: ids}
	if next != "" {
		resp.ContinuationToken = &next
	}
	return resp, nil
}

func (h *taskHub) GetInstanceHistory(ctx context.Context, req *protos.GetInstanceHistoryRequest) (*protos.GetInstanceHistoryResponse, error) {
	row, err := h.service.Row(ctx, h.name, req.GetInstanceId())
	if err != nil {
		return nil, engineError(err)
	}
	events, err := h.service.ShownEvents(ctx, row.No)
	return &protos.GetInstanceHistoryResponse{Events: events}, err
}

// RerunWorkflowFromEvent is not offered. Rewinding and restarting an instance are.
func (h *taskHub) RerunWorkflowFromEvent(context.Context, *protos.RerunWorkflowFromEventRequest) (api.InstanceID, error) {
	return "", forebay.Errorf(forebay.CodeNotSupported, "an instance cannot be run again from the middle; rewind or restart it")
}

// createKey is the context key of a CreateInstanceRequest. The engine passes on neither its
// version nor its reuse policy.
type createKey struct{}

// beforeEngine handles each message before the engine does. It answers calls that the engine
// does not offer.
func (h *taskHub) beforeEngine(ctx context.Context, m any, _ *grpc.UnaryServerInfo, engine grpc.UnaryHandler) (any, error) {
	switch m := m.(type) {
	case *protos.CreateInstanceRequest:
		ctx = context.WithValue(ctx, createKey{}, m)
	case *protos.PurgeInstancesRequest:
		if filter := m.GetPurgeInstanceFilter(); filter != nil {
			return h.purgeFiltered(ctx, filter)
		}
		if m.GetRecursive() {
			return h.purgeTree(ctx, m.GetInstanceId(), m.GetForce())
		}
	}
	return engine(ctx, m)
}

// purgeFiltered deletes the ended instances that a filter selects.
func (h *taskHub) purgeFiltered(ctx context.Context, filter *protos.PurgeInstanceFilter) (*protos.PurgeInstancesResponse, error) {
	var req orchestrate.ListRequest
	if from := filter.GetCreatedTimeFrom(); from != nil {
		req.From = from.AsTime()
	}
	if until := filter.GetCreatedTimeTo(); until != nil {
		req.Until = until.AsTime()
	}
	for _, number := range filter.GetRuntimeStatus() {
		ended, ok := history.Statuses[number]
		if !ok || !ended.Terminal() {
			return nil, status.Errorf(codes.InvalidArgument, "only instances that are over are purged, none with the status %d", number)
		}
		req.Statuses = append(req.Statuses, ended)
	}
	purged, err := h.service.PurgeMany(ctx, h.name, req)
	if err != nil {
		return nil, err
	}
	return &protos.PurgeInstancesResponse{DeletedInstanceCount: int32(min(purged, math.MaxInt32)), IsComplete: wrapperspb.Bool(true)}, nil
}

// bareKey is the context key of whether a call needs no payloads. The engine does not tell its
// backend.
type bareKey struct{}

// fillAsked is Fill, unless the call needs no payloads.
func (h *taskHub) fillAsked(ctx context.Context, row *orchestrate.OrchestrationRow) error {
	if bare, _ := ctx.Value(bareKey{}).(*bool); bare != nil && *bare {
		return nil
	}
	return h.service.Fill(ctx, row)
}
