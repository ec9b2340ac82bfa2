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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/sleep"
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
	ID      string // "": one is made
	Version string // of the code; "": the latest
	Input   json.RawMessage
	StartAt *time.Time // nil: now
	// Replaces are the ends of instances whose id can be used again: one with this id that ended so is purged. Nil: any end.
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

// maxReasonBytes bounds why an instance is suspended, resumed or terminated, as the HTTP API does.
const MaxReasonBytes = 4096

// StartFrom makes an instance from the event that starts it. An instance that ended with one of the
// statuses and has the id is purged; nil: with any.
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

// filledRow is row with the input and the output, wherever they are.
func (s *Instances) filledRow(ctx context.Context, tenant, id string) (OrchestrationRow, error) {
	row, err := s.Row(ctx, tenant, id)
	if err == nil {
		err = s.Fill(ctx, &row)
	}
	return row, err
}

// Wait returns an instance once it is over, or as it stands when ctx or the timeout ends first; if it is ctx, without what is large.
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

// watchPause is how long a watch goes without reading. It may have missed what another process did.
const watchPause = 5 * time.Second

// watch looks at an instance at once and after each change, until done.
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
		if row.No != following { // a restart gives the id to another instance
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
	From, Until time.Time                     // when they were made; zero: no bound
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

// list returns a page. Only if it is filled, it has what is large of inputs and outputs.
func (s *Instances) list(ctx context.Context, q OrchestrationQuery, cursor string, filled bool) (page []forebay.Orchestration, next string, err error) {
	if cursor != "" {
		if q.Below, err = strconv.ParseInt(cursor, 36, 64); err != nil || q.Below <= 0 {
			return nil, "", forebay.Errorf(forebay.CodeInvalidCursor, "the cursor is not one that a list returned")
		}
	}
	rows, more, err := s.store.Orchestrations(ctx, q)
	if err == nil && filled {
		err = forEach(ctx, len(rows), func(ctx context.Context, i int) error {
			if err := s.Fill(ctx, &rows[i]); !errors.Is(err, history.ErrUnreadable) { // one whose payloads are lost does not keep the others from being seen
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

// IDs returns the ids of instances, the newest first, and where to go on; "": there are no more.
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
	events, err := s.Events(ctx, row.No)
	described := make([]forebay.OrchestrationEvent, len(events))
	for i, e := range events {
		described[i] = history.Describe(e)
	}
	return described, err
}

// Attempts returns the attempts of an instance's activities: those of its current execution, and the newest of the ones before.
func (s *Instances) Attempts(ctx context.Context, tenant, id string) ([]forebay.ActivityAttempt, error) {
	row, err := s.Row(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	return s.store.ActivityAttempts(ctx, row.No)
}

// Raise sends an instance an event. One that nobody waits for yet is kept until somebody does.
func (s *Instances) Raise(ctx context.Context, tenant, id, name string, data json.RawMessage) error {
	if !forebay.ValidText(name, MaxNameBytes) {
		return forebay.Invalid("event", "must have 1 to %d bytes without control characters", MaxNameBytes)
	}
	if err := s.checkPayload("data", data); err != nil {
		return err
	}
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: name, Input: history.Value(data)}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Suspend keeps an instance from going on until it is resumed. That, too, needs no process that knows its orchestrator.
func (s *Instances) Suspend(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionSuspended{ExecutionSuspended: &protos.ExecutionSuspendedEvent{Input: textOf(reason)}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Resume lets a suspended instance go on, with a process that knows its orchestrator.
func (s *Instances) Resume(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{Input: textOf(reason)}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Terminate ends an instance and those that it has called. The reason becomes its output. No process need know the orchestrators.
func (s *Instances) Terminate(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionTerminated{ExecutionTerminated: &protos.ExecutionTerminatedEvent{Input: textOf(reason), Recurse: true}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Send sends an instance an event that is raised, or that suspends, resumes or terminates it.
func (s *Instances) Send(ctx context.Context, tenant, id string, e *protos.HistoryEvent) error {
	if raised := e.GetEventRaised(); raised != nil && !forebay.ValidText(raised.Name, MaxNameBytes) {
		return forebay.Invalid("event", "must have 1 to %d bytes without control characters", MaxNameBytes)
	}
	if err := s.checkPayload("data", history.JSON(e.GetEventRaised().GetInput())); err != nil {
		return err
	}
	for _, reason := range []*wrapperspb.StringValue{e.GetExecutionSuspended().GetInput(), e.GetExecutionResumed().GetInput(), e.GetExecutionTerminated().GetInput()} {
		if len(reason.GetValue()) > MaxReasonBytes {
			return forebay.Invalid("reason", "is longer than 4,096 bytes")
		}
	}
	return s.sendNamed(ctx, tenant, id, e)
}

func textOf(reason string) *wrapperspb.StringValue {
	if reason == "" {
		return nil
	}
	return wrapperspb.String(reason)
}

func (s *Instances) sendNamed(ctx context.Context, tenant, id string, e *protos.HistoryEvent) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.send(ctx, tenant, no, id, e)
}

func (s *Instances) send(ctx context.Context, tenant string, no int64, id string, e *protos.HistoryEvent) error {
	event, err := proto.Marshal(e)
	if err != nil {
		return err
	}
	signal := Signal{Tenant: no, ID: id, Event: Inline(event), Effect: EffectOf(e), Audit: actOf(ctx, tenant, id, e)}
	if raised := e.GetEventRaised(); raised != nil { // what suspends or ends an instance is never refused
		done, err := s.takeEvent(ctx, tenant, int64(len(event)))
		if err != nil {
			return err
		}
		defer done()
	}
	put, err := s.storePayloads(ctx, no, &signal.Event)
	if err == nil {
		err = s.store.SendOrchestration(ctx, signal)
	}
	s.deleteIfRefused(ctx, err, put)
	return err
}

// Restart starts an instance anew with its input: under its own id, which it has to be over for, or under a new one. It returns the id.
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
	if !s.registry.hasOrchestrator(row.Name) { // a Go function begins with its latest version
		req.Version = row.Version
	}
	return s.start(ctx, tenant, req, func(started string) audit.Act {
		if newID {
			detail.NewID = started
		}
		return act(ctx, tenant, "restart-orchestration", id, detail)
	})
}

// Purge deletes an instance that is over, with its history.
func (s *Instances) Purge(ctx context.Context, tenant, id string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.store.PurgeOrchestration(ctx, no, id, false, act(ctx, tenant, "purge-orchestration", id, nil))
}

// PurgeByForce deletes an instance with its history, also one that is not over.
func (s *Instances) PurgeByForce(ctx context.Context, tenant, id string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.store.PurgeOrchestration(ctx, no, id, true, act(ctx, tenant, "purge-orchestration", id, nil))
}

// purgedAtOnce bounds how many instances one transaction deletes.
const purgedAtOnce = 200

// PurgeMany deletes the instances of a list that are over, page by page, and returns how many those were.
func (s *Instances) PurgeMany(ctx context.Context, tenant string, req ListRequest) (purged int, err error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	audit := act(ctx, tenant, "purge-orchestrations", tenant, purgeDetail{req.Prefix, req.Statuses, req.From, req.Until})
	req.Limit = purgedAtOnce
	for {
		page, next, err := s.list(ctx, req.query(no), req.Cursor, false)
		if err != nil {
			return purged, err
		}
		var ids []string
		for _, o := range page {
			if o.Status.Terminal() {
				ids = append(ids, o.ID)
			}
		}
		if len(ids) > 0 {
			n, err := s.store.PurgeEnded(ctx, no, ids, audit)
			if err != nil {
				return purged, err
			}
			purged += n
		}
		if req.Cursor = next; next == "" {
			return purged, nil
		}
	}
}

// PurgeExpired deletes the instances of all tenants that ended before so long, if this process has the turn to do so, and returns how many
// it deleted. Between two steps it leaves the database to others.
func (s *Instances) PurgeExpired(ctx context.Context, keep, every time.Duration) (purged int, err error) {
	mine, err := s.store.ClaimChore(ctx, "purge-orchestrations", every*9/10)
	if err != nil || !mine {
		return 0, err
	}
	before := s.store.Now().Add(-keep)
	for last := int64(0); ; {
		begun := time.Now()
		n, reached, err := s.store.PurgeOrchestrations(ctx, before, last)
		purged += n
		if err != nil || reached == last {
			return purged, err
		}
		last = reached
		if err := sleep.For(ctx, 3*time.Since(begun)); err != nil {
			return purged, err
		}
	}
}

// EnsureTenant returns the number of a tenant, making it if there is none.
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
