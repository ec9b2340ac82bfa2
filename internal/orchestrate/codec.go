package orchestrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
)

// appendEvent writes an event of the history: its length as a varint, then the event.
func appendEvent(b []byte, e *protos.HistoryEvent) ([]byte, error) {
	b = protowire.AppendVarint(b, uint64(proto.Size(e)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, e)
}

var errHistory = errors.New("the history cannot be read")

// decodeEvents reads what appendEvent wrote.
func decodeEvents(events []*protos.HistoryEvent, b []byte) ([]*protos.HistoryEvent, error) {
	for len(b) > 0 {
		one, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, errHistory
		}
		e, err := decodeEvent(one)
		if err != nil {
			return nil, err
		}
		events, b = append(events, e), b[n:]
	}
	return events, nil
}

func decodeEvent(b []byte) (*protos.HistoryEvent, error) {
	e := &protos.HistoryEvent{}
	if err := proto.Unmarshal(b, e); err != nil {
		return nil, errHistory
	}
	return e, nil
}

// policyField is the number of a field that the protocol does not have. A Go orchestrator's retry policy
// travels in it, on the activity's input, from the call to the backend, which takes it out.
const policyField = 50_000

func attachPolicy(input *wrapperspb.StringValue, policy []byte) {
	input.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, policyField, protowire.BytesType), policy))
}

// detachPolicy returns nil if there is none.
func detachPolicy(input *wrapperspb.StringValue) []byte {
	if input == nil {
		return nil
	}
	unknown := input.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	input.ProtoReflect().SetUnknown(nil)
	if number, kind, n := protowire.ConsumeTag(unknown); n > 0 && number == policyField && kind == protowire.BytesType {
		if policy, m := protowire.ConsumeBytes(unknown[n:]); m > 0 {
			return policy
		}
	}
	return nil
}

// newEvent returns an event that nothing refers to.
func newEvent() *protos.HistoryEvent {
	return &protos.HistoryEvent{EventId: -1, Timestamp: timestamppb.Now()}
}

func failedEvent(taskID int32, executionID string, why *protos.TaskFailureDetails) *protos.HistoryEvent {
	e := newEvent()
	e.EventType = &protos.HistoryEvent_TaskFailed{TaskFailed: &protos.TaskFailedEvent{TaskScheduledId: taskID, TaskExecutionId: executionID, FailureDetails: why}}
	return e
}

func completedEvent(taskID int32, executionID string, result *wrapperspb.StringValue) *protos.HistoryEvent {
	e := newEvent()
	e.EventType = &protos.HistoryEvent_TaskCompleted{TaskCompleted: &protos.TaskCompletedEvent{TaskScheduledId: taskID, TaskExecutionId: executionID, Result: result}}
	return e
}

// asJSON returns what an SDK sent as a value: JSON as it is, anything else as a JSON string.
func asJSON(v *wrapperspb.StringValue) json.RawMessage {
	switch {
	case v == nil || v.Value == "":
		return nil
	case json.Valid([]byte(v.Value)):
		return json.RawMessage(v.Value)
	}
	quoted, _ := json.Marshal(v.Value)
	return quoted
}

// value is the other way.
func value(v json.RawMessage) *wrapperspb.StringValue {
	if len(v) == 0 {
		return nil
	}
	return wrapperspb.String(string(v))
}

func failureOf(d *protos.TaskFailureDetails) *forebay.OrchestrationFailure {
	if d == nil {
		return nil
	}
	return &forebay.OrchestrationFailure{Type: d.ErrorType, Message: d.ErrorMessage, NonRetryable: d.IsNonRetriable, Inner: failureOf(d.InnerFailure)}
}

// Bounds of what is kept of a failure.
const (
	maxFailureText  = 64 << 10 // bytes of a message or a stack
	maxFailureDepth = 16
)

// boundFailure cuts off what is too long of a failure, and what is not UTF-8, which cannot be stored.
func boundFailure(d *protos.TaskFailureDetails) {
	for depth := 1; d != nil; depth, d = depth+1, d.InnerFailure {
		d.ErrorType, d.ErrorMessage = cutText(d.ErrorType), cutText(d.ErrorMessage)
		if d.StackTrace != nil {
			d.StackTrace.Value = cutText(d.StackTrace.Value)
		}
		if depth == maxFailureDepth {
			d.InnerFailure = nil
		}
	}
}

func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxFailureText)], "") }

func detailsOf(f *forebay.OrchestrationFailure) *protos.TaskFailureDetails {
	if f == nil {
		return nil
	}
	return &protos.TaskFailureDetails{ErrorType: f.Type, ErrorMessage: f.Message, IsNonRetriable: f.NonRetryable, InnerFailure: detailsOf(f.Inner)}
}

var statuses = map[protos.OrchestrationStatus]forebay.OrchestrationStatus{
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_PENDING:          forebay.OrchestrationPending,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING:          forebay.OrchestrationRunning,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_SUSPENDED:        forebay.OrchestrationSuspended,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW: forebay.OrchestrationRunning,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_STALLED:          forebay.OrchestrationRunning,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED:        forebay.OrchestrationCompleted,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED:           forebay.OrchestrationFailed,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED:       forebay.OrchestrationTerminated,
	protos.OrchestrationStatus_ORCHESTRATION_STATUS_CANCELED:         forebay.OrchestrationCanceled,
}

var statusNumbers = map[forebay.OrchestrationStatus]protos.OrchestrationStatus{
	forebay.OrchestrationPending:    protos.OrchestrationStatus_ORCHESTRATION_STATUS_PENDING,
	forebay.OrchestrationRunning:    protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING,
	forebay.OrchestrationSuspended:  protos.OrchestrationStatus_ORCHESTRATION_STATUS_SUSPENDED,
	forebay.OrchestrationCompleted:  protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED,
	forebay.OrchestrationFailed:     protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED,
	forebay.OrchestrationTerminated: protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED,
	forebay.OrchestrationCanceled:   protos.OrchestrationStatus_ORCHESTRATION_STATUS_CANCELED,
}

func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// ActivityInput is the input of an activity that a Go orchestrator calls, with how it is retried.
func ActivityInput(v any, p forebay.RetryPolicy) *wrapperspb.StringValue {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("the input of an activity is no JSON: %v", err)) // which fails the instance
	}
	input := wrapperspb.String(string(encoded))
	if policy := encodePolicy(p); policy != nil {
		attachPolicy(input, policy)
	}
	return input
}
