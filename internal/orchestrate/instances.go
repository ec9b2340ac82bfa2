package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	bounded "github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

// Instances starts, shows and manages instances. Each call names its tenant and sees only the
// instances of that tenant.
type Instances struct {
	payloads
	store    *Store
	registry *Registry
	log      *slog.Logger
	opts     Options
}

// StartRequest asks for a new instance.
type StartRequest struct {
	Name    string
	ID      string // "": a random one
	Version string // of the code; "": the latest
	Input   json.RawMessage
	StartAt *time.Time // nil: now
	// Replaces are the final statuses of instances that a new one may replace: an instance with
	// this id and such a status is purged. Nil: any final status.
	Replaces []forebay.OrchestrationStatus
}

// Bounds of instance ids and of the versions of orchestrators, in bytes.
const (
	MaxInstanceIDBytes = 256
	MaxVersionBytes    = 256
)

func (s *Instances) check(req *StartRequest) error {
	if !forebay.ValidText(req.Name, MaxNameBytes) {
		return forebay.Invalid("name", "is required: the name of an orchestrator")
	}
	if !s.opts.Remote && !s.registry.hasOrchestrator(req.Name) {
		return s.registry.unknown(req.Name)
	}
	if req.Version != "" && s.registry.orderedFunc(req.Name) != nil {
		return forebay.Invalid("version", "%s has no versions to choose from", req.Name)
	}
	if req.Version != "" && !forebay.ValidText(req.Version, MaxVersionBytes) {
		return forebay.Invalid("version", "must have 1 to %d bytes without control characters", MaxVersionBytes)
	}
	if req.Replaces == nil {
		req.Replaces = AnyEnd
	}
	if req.ID != "" && !forebay.ValidText(req.ID, MaxInstanceIDBytes) {
		return forebay.Invalid("instanceId", "must have 1 to %d bytes without control characters", MaxInstanceIDBytes)
	}
	return s.checkPayload("input", req.Input)
}

func (s *Instances) checkPayload(field string, v json.RawMessage) error {
	if int64(len(v)) > s.opts.MaxBytes {
		return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: field, Message: "is too large"}
	}
	if len(v) == 0 {
		return nil
	}
	return jsoncheck.Check(field, v)
}

// Start makes an instance and returns its id. It is on disk then.
func (s *Instances) Start(ctx context.Context, tenant string, req StartRequest) (id string, err error) {
	return s.start(ctx, tenant, req, func(string) audit.Act { return audit.Act{} })
}

func (s *Instances) start(ctx context.Context, tenant string, req StartRequest, audit func(id string) audit.Act) (id string, err error) {
	if err := s.check(&req); err != nil {
		return "", err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return "", err
	}
	if req.ID == "" {
		req.ID = uuid.NewString()
	}
	e := history.NewEvent()
	started := &protos.ExecutionStartedEvent{Name: req.Name, Input: history.Value(req.Input),
		WorkflowInstance: &protos.WorkflowInstance{InstanceId: req.ID, ExecutionId: wrapperspb.String(uuid.NewString())}}
	if req.Version != "" {
		started.Version = wrapperspb.String(req.Version)
	}
	if req.StartAt != nil {
		started.ScheduledStartTimestamp = timestamppb.New(*req.StartAt)
	}
	e.EventType = &protos.HistoryEvent_ExecutionStarted{ExecutionStarted: started}
	return req.ID, s.create(ctx, tenant, no, e, req.Replaces, audit(req.ID))
}

func (s *Instances) create(ctx context.Context, name string, tenant int64, e *protos.HistoryEvent, replaces []forebay.OrchestrationStatus, audit audit.Act) error {
	o, err := newOrchestration(tenant, e)
	if err != nil {
		return err
	}
	done, err := s.takeStart(ctx, tenant, o.StartAt, int64(o.Input.Size()))
	if err != nil {
		return err
	}
	defer done()
	o.Audit, o.KeyID = audit, forebay.BudgetKeyOf(ctx)
	if audit.Action == "" {
		o.Replacing = act(ctx, name, "purge-orchestration", o.ID, replacedDetail{true})
	}
	put, err := s.storePayloads(ctx, tenant, &o.Input, &o.Event)
	if err != nil {
		return err
	}
	err = s.store.CreateOrchestration(ctx, o, replaces...)
	s.deleteIfRefused(ctx, err, put)
	return err
}

// StartFrom makes an instance from its start event. An ended instance with the same id is purged
// if its status is one of replaces. Nil: any final status.
func (s *Instances) StartFrom(ctx context.Context, tenant string, e *protos.HistoryEvent, replaces []forebay.OrchestrationStatus) error {
	started := e.GetExecutionStarted()
	req := StartRequest{Name: started.GetName(), ID: started.GetWorkflowInstance().GetInstanceId(), Version: started.GetVersion().GetValue(),
		Input: history.JSON(started.GetInput()), Replaces: replaces}
	if req.ID == "" {
		return forebay.Invalid("instance_id", "is required")
	}
	if err := s.check(&req); err != nil {
		return err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.create(ctx, tenant, no, e, req.Replaces, audit.Act{})
}

// Get returns an instance.
func (s *Instances) Get(ctx context.Context, tenant, id string) (forebay.Orchestration, error) {
	row, err := s.filledRow(ctx, tenant, id)
	return row.Orchestration, err
}

func (s *Instances) Row(ctx context.Context, tenant, id string) (OrchestrationRow, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return OrchestrationRow{}, err
	}
	return s.store.Orchestration(ctx, no, id)
}

// filledRow is Row with the input and the output, which may be in blob storage.
func (s *Instances) filledRow(ctx context.Context, tenant, id string) (OrchestrationRow, error) {
	row, err := s.Row(ctx, tenant, id)
	if err == nil {
		err = s.Fill(ctx, &row)
	}
	return row, err
}

// Wait returns an instance once it has ended, or its current state when ctx or the timeout ends
// first. If ctx ends, large payloads are left out.
func (s *Instances) Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Orchestration, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return forebay.Orchestration{}, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var latest OrchestrationRow
	err = s.Watch(limited, no, id, func(row OrchestrationRow) (bool, error) {
		latest = row
		return row.Status.Terminal(), nil
	})
	if limited.Err() != nil && latest.ID != "" {
		err = nil
	}
	if err == nil && ctx.Err() == nil {
		if err = s.Fill(ctx, &latest); ctx.Err() != nil {
			err = nil
		}
	}
	return latest.Orchestration, err
}

// watchPause is how long a watch waits before it reads again. It may have missed a change by
// another process.
const watchPause = 5 * time.Second

// Watch reads an instance at once and after each change, until done.
func (s *Instances) Watch(ctx context.Context, tenant int64, id string, done func(OrchestrationRow) (bool, error)) error {
	var changes <-chan struct{}
	var following int64
	stop := func() {}
	defer func() { stop() }()
	for {
		row, err := s.store.Orchestration(ctx, tenant, id)
		if err != nil {
			return err
		}
		if row.No != following { // after a restart another instance has the id
			stop()
			changes, stop = s.store.Watch(row.No)
			following = row.No
			continue // it may have changed before that
		}
		if over, err := done(row); over || err != nil {
			return err
		}
		timer := time.NewTimer(watchPause)
		select {
		case <-changes:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// ListRequest selects instances.
type ListRequest struct {
	Prefix      string // of their ids
	Name        string
	Statuses    []forebay.OrchestrationStatus // none: all
	From, Until time.Time                     // of their creation; zero: no bound
	Limit       int                           // default 50, at most 500
	Cursor      string
}

// List returns instances, the newest first, and where to go on; "": there are no more.
func (s *Instances) List(ctx context.Context, tenant string, req ListRequest) (page []forebay.Orchestration, cursor string, err error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, "", err
	}
	if req.Limit <= 0 || req.Limit > forebay.MaxPageSize {
		req.Limit = forebay.DefaultPageSize
	}
	return s.list(ctx, req.query(no), req.Cursor, true)
}

func (req *ListRequest) query(tenant int64) OrchestrationQuery {
	return OrchestrationQuery{Tenant: tenant, Prefix: req.Prefix, Name: req.Name, Statuses: req.Statuses, From: req.From, Until: req.Until, Limit: req.Limit}
}

// list returns a page. Only a filled page has the large inputs and outputs.
func (s *Instances) list(ctx context.Context, q OrchestrationQuery, cursor string, filled bool) (page []forebay.Orchestration, next string, err error) {
	if cursor != "" {
		if q.Below, err = strconv.ParseInt(cursor, 36, 64); err != nil || q.Below <= 0 {
			return nil, "", forebay.Errorf(forebay.CodeInvalidCursor, "the cursor is not one that a list returned")
		}
	}
	rows, more, err := s.store.Orchestrations(ctx, q)
	if err == nil && filled {
		err = forEach(ctx, len(rows), func(ctx context.Context, i int) error {
			// A lost payload does not fail the list.
			if err := s.Fill(ctx, &rows[i]); !errors.Is(err, history.ErrUnreadable) {
				return err
			}
			return nil
		})
	}
	for _, row := range rows {
		page = append(page, row.Orchestration)
	}
	if more {
		next = strconv.FormatInt(rows[len(rows)-1].No, 36)
	}
	return page, next, err
}

// IDs returns the ids of instances, the newest first, and the cursor of the next page; "": there
// is none.
func (s *Instances) IDs(ctx context.Context, tenant string, limit int, cursor string) (ids []string, next string, err error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, "", err
	}
	page, next, err := s.list(ctx, OrchestrationQuery{Tenant: no, Limit: limit}, cursor, false)
	for _, o := range page {
		ids = append(ids, o.ID)
	}
	return ids, next, err
}

// History returns the events of an instance's current execution.
func (s *Instances) History(ctx context.Context, tenant, id string) ([]forebay.OrchestrationEvent, error) {
	row, err := s.Row(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	events, err := s.ShownEvents(ctx, row.No)
	described := make([]forebay.OrchestrationEvent, len(events))
	for i, e := range events {
		described[i] = history.Describe(e)
	}
	return described, err
}

// Attempts returns the attempts of an instance's activities: all of its current execution, and
// the newest of earlier ones.
func (s *Instances) Attempts(ctx context.Context, tenant, id string) ([]forebay.ActivityAttempt, error) {
	row, err := s.Row(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if err := s.shows(ctx, statements.AttemptsSize, row.No); err != nil {
		return nil, err
	}
	return s.store.ActivityAttempts(ctx, row.No)
}

// ShownEvents is Events for a caller. What is in the database counts in the memory of the call,
// twice, for it is decoded. Blobs count as they are read.
func (s *Instances) ShownEvents(ctx context.Context, instance int64) ([]*protos.HistoryEvent, error) {
	if err := s.shows(ctx, statements.HistorySize, instance); err != nil {
		return nil, err
	}
	return s.Events(ctx, instance)
}

// shows counts rows of an instance in the memory of the call, by the statement of their size.
func (s *Instances) shows(ctx context.Context, size string, instance int64) error {
	n, err := s.store.sizeOf(ctx, size, instance)
	if err == nil {
		err = bounded.Grow(ctx, n)
	}
	return err
}

// Restart starts an ended instance again with its input, or a copy of any instance under a new
// id. It returns the id.
func (s *Instances) Restart(ctx context.Context, tenant, id string, newID bool) (string, error) {
	row, err := s.filledRow(ctx, tenant, id)
	if err != nil {
		return "", err
	}
	req, detail := StartRequest{Name: row.Name, Input: row.Input}, restartDetail{Orchestrator: row.Name}
	if !newID {
		if !row.Status.Terminal() {
			return "", forebay.Errorf(forebay.CodeConflict, "the instance %s is not over", id)
		}
		req.ID = id
	}
	if !s.registry.hasOrchestrator(row.Name) { // a Go function starts with its latest version
		req.Version = row.Version
	}
	return s.start(ctx, tenant, req, func(started string) audit.Act {
		if newID {
			detail.NewID = started
		}
		return act(ctx, tenant, "restart-orchestration", id, detail)
	})
}

// EnsureTenant returns the number of a tenant, and makes the tenant if there is none.
func (s *Instances) EnsureTenant(ctx context.Context, name string) (int64, error) {
	return s.store.EnsureTenant(ctx, name)
}

// Events returns the events of an instance's current execution as they are stored.
func (s *Instances) Events(ctx context.Context, instance int64) (events []*protos.HistoryEvent, err error) {
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
