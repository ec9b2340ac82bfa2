// Package history reads, writes, compares and replays the histories of orchestration instances.
//
// A history is a list of events of the Durable Task protocol. An orchestrator has no other state:
// its code is replayed over the history, and what it asks for beyond the history is new work.
// The package does no I/O.
//
// # The name check
//
// The engine compares a replay with the history by number and kind. So the history is replayed
// without the events that say what was scheduled. The engine then returns all that the code asks
// for. Old and new are told apart, and compared by name, here. It costs nothing: the events that
// are left out need not be matched.
//
// # A rewind
//
// takes the failures out of the history, with what was asked for and has no answer; the code asks
// for that again. A failure that the code went on after has to stay. Otherwise what has succeeded
// since would stand in the history without being asked for (handled_failures.go). Only failures
// that had arrived when such a step was asked for are in doubt. The code decides: replayed
// without a failure, it still asks for all that stays in the history, or it does not. All in
// doubt are tried at once, then by halves. Where the code is not known all of them stay, since a
// later rewind can still take one out. Workflows say themselves which failures they tolerate, by
// their definition: there those stay, whatever came of them.
package history

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
)

// Append encodes an event behind b: its length as a varint, then the event.
func Append(b []byte, e *protos.HistoryEvent) ([]byte, error) {
	b = protowire.AppendVarint(b, uint64(proto.Size(e)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, e)
}

// ErrUnreadable is that a history or one of its payloads cannot be read, now or ever.
var ErrUnreadable = errors.New("the history cannot be read")

// DecodeAll decodes what Append has encoded.
func DecodeAll(events []*protos.HistoryEvent, b []byte) ([]*protos.HistoryEvent, error) {
	for len(b) > 0 {
		one, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, ErrUnreadable
		}
		e, err := Decode(one)
		if err != nil {
			return nil, err
		}
		events, b = append(events, e), b[n:]
	}
	return events, nil
}

// Decode decodes one event.
func Decode(b []byte) (*protos.HistoryEvent, error) {
	e := &protos.HistoryEvent{}
	if err := proto.Unmarshal(b, e); err != nil {
		return nil, ErrUnreadable
	}
	return e, nil
}

// NewEvent returns an event without an id.
func NewEvent() *protos.HistoryEvent {
	return &protos.HistoryEvent{EventId: -1, Timestamp: timestamppb.Now()}
}

// TaskFailed returns the event that an activity has failed.
func TaskFailed(taskID int32, executionID string, why *protos.TaskFailureDetails) *protos.HistoryEvent {
	e := NewEvent()
	e.EventType = &protos.HistoryEvent_TaskFailed{TaskFailed: &protos.TaskFailedEvent{TaskScheduledId: taskID, TaskExecutionId: executionID, FailureDetails: why}}
	return e
}

// TaskCompleted returns the event that an activity has completed.
func TaskCompleted(taskID int32, executionID string, result *wrapperspb.StringValue) *protos.HistoryEvent {
	e := NewEvent()
	e.EventType = &protos.HistoryEvent_TaskCompleted{TaskCompleted: &protos.TaskCompletedEvent{TaskScheduledId: taskID, TaskExecutionId: executionID, Result: result}}
	return e
}

// ChildFailed returns the event that a sub-orchestration has failed, or could not be started.
func ChildFailed(taskID int32, why *forebay.OrchestrationFailure) *protos.HistoryEvent {
	e := NewEvent()
	e.EventType = &protos.HistoryEvent_ChildWorkflowInstanceFailed{ChildWorkflowInstanceFailed: &protos.ChildWorkflowInstanceFailedEvent{
		TaskScheduledId: taskID, FailureDetails: DetailsOf(why)}}
	return e
}

// JSON returns a value of an SDK: JSON as it is, anything else as a JSON string.
func JSON(v *wrapperspb.StringValue) json.RawMessage {
	switch {
	case v == nil || v.Value == "":
		return nil
	case json.Valid([]byte(v.Value)):
		return json.RawMessage(v.Value)
	}
	quoted, _ := json.Marshal(v.Value)
	return quoted
}

// Value is the inverse of JSON.
func Value(v json.RawMessage) *wrapperspb.StringValue {
	if len(v) == 0 {
		return nil
	}
	return wrapperspb.String(string(v))
}

// FailureOf converts failure details; nil stays nil.
func FailureOf(d *protos.TaskFailureDetails) *forebay.OrchestrationFailure {
	if d == nil {
		return nil
	}
	return &forebay.OrchestrationFailure{Type: d.ErrorType, Message: d.ErrorMessage, NonRetryable: d.IsNonRetriable, Inner: FailureOf(d.InnerFailure)}
}

// Bounds of failure details.
const (
	MaxFailureText  = 64 << 10 // bytes of a message or a stack
	MaxFailureDepth = 16
)

// BoundFailure truncates failure details and removes invalid UTF-8, which cannot be stored.
func BoundFailure(d *protos.TaskFailureDetails) {
	for depth := 1; d != nil; depth, d = depth+1, d.InnerFailure {
		d.ErrorType, d.ErrorMessage = cutText(d.ErrorType), cutText(d.ErrorMessage)
		if d.StackTrace != nil {
			d.StackTrace.Value = cutText(d.StackTrace.Value)
		}
		if depth == MaxFailureDepth {
			d.InnerFailure = nil
		}
	}
}

// BoundFailures bounds the failure details of an instance wherever the state has them.
func BoundFailures(state *protos.WorkflowRuntimeState) {
	BoundFailure(state.CompletedEvent.GetFailureDetails())
	for _, e := range state.NewEvents {
		BoundFailure(e.GetExecutionCompleted().GetFailureDetails())
	}
	for _, m := range state.PendingMessages {
		BoundFailure(m.HistoryEvent.GetChildWorkflowInstanceFailed().GetFailureDetails())
	}
}

func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), MaxFailureText)], "") }

// DetailsOf is the inverse of FailureOf.
func DetailsOf(f *forebay.OrchestrationFailure) *protos.TaskFailureDetails {
	if f == nil {
		return nil
	}
	return &protos.TaskFailureDetails{ErrorType: f.Type, ErrorMessage: f.Message, IsNonRetriable: f.NonRetryable, InnerFailure: DetailsOf(f.Inner)}
}

// Statuses maps the statuses of the protocol to those of users.
var Statuses = map[protos.OrchestrationStatus]forebay.OrchestrationStatus{
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

// StatusNumbers maps the statuses of users to those of the protocol.
var StatusNumbers = map[forebay.OrchestrationStatus]protos.OrchestrationStatus{
	forebay.OrchestrationPending:    protos.OrchestrationStatus_ORCHESTRATION_STATUS_PENDING,
	forebay.OrchestrationRunning:    protos.OrchestrationStatus_ORCHESTRATION_STATUS_RUNNING,
	forebay.OrchestrationSuspended:  protos.OrchestrationStatus_ORCHESTRATION_STATUS_SUSPENDED,
	forebay.OrchestrationCompleted:  protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED,
	forebay.OrchestrationFailed:     protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED,
	forebay.OrchestrationTerminated: protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED,
	forebay.OrchestrationCanceled:   protos.OrchestrationStatus_ORCHESTRATION_STATUS_CANCELED,
}

// Timestamp converts a time; nil stays nil.
func Timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// Size returns the encoded size of events.
func Size(events []*protos.HistoryEvent) (n int) {
	for _, e := range events {
		n += proto.Size(e)
	}
	return n
}
