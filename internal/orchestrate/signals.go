package orchestrate

import (
	"context"
	"encoding/json"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// MaxReasonBytes bounds the reason of a suspension, resumption or termination. The HTTP API has
// the same bound.
const MaxReasonBytes = 4096

// Raise sends an event to an instance. An event that the instance does not await yet is kept.
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

// Suspend stops an instance until it is resumed. No process needs its orchestrator for that.
func (s *Instances) Suspend(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionSuspended{ExecutionSuspended: &protos.ExecutionSuspendedEvent{Input: textOf(reason)}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Resume lets a suspended instance go on, in a process that has its orchestrator.
func (s *Instances) Resume(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{Input: textOf(reason)}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Terminate ends an instance and its sub-orchestrations. The reason becomes the output. No
// process needs the orchestrators for that.
func (s *Instances) Terminate(ctx context.Context, tenant, id, reason string) error {
	e := history.NewEvent()
	e.EventType = &protos.HistoryEvent_ExecutionTerminated{ExecutionTerminated: &protos.ExecutionTerminatedEvent{Input: textOf(reason), Recurse: true}}
	return s.sendNamed(ctx, tenant, id, e)
}

// Send sends an event to an instance: a raised event, or one that suspends, resumes or
// terminates the instance.
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
	if raised := e.GetEventRaised(); raised != nil { // other events are never refused
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
