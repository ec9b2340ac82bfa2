package orchestrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/runtimestate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
)

// MaxHistoryEvents bounds the history of one execution. An orchestrator that needs more
// continues as new.
const MaxHistoryEvents = 100_000

// maxHistoryBytes bounds its size: a history is read, cached and sent to a worker as a whole.
const maxHistoryBytes = 256 << 20

// tooLarge names a value in the state that exceeds MaxBytes; "": there is none.
func (h *taskHub) tooLarge(state *backend.WorkflowRuntimeState) (what string, size int) {
	check := func(v *wrapperspb.StringValue, name string) {
		if n := len(v.GetValue()); int64(n) > h.opts.MaxBytes && what == "" {
			what, size = name, n
		}
	}
	check(state.CompletedEvent.GetResult(), "the output")
	for _, e := range state.PendingTasks {
		if e.GetTaskScheduled().GetName() == TaskActivity {
			continue // jobs have a limit of their own, which fails only the activity
		}
		check(e.GetTaskScheduled().GetInput(), "the input of the activity "+e.GetTaskScheduled().GetName())
	}
	for _, m := range state.PendingMessages {
		if started := m.HistoryEvent.GetExecutionStarted(); started != nil {
			check(started.GetInput(), "the input of the orchestration "+started.GetName())
		}
		if sent := m.HistoryEvent.GetEventSent(); sent != nil {
			check(sent.GetInput(), "the event "+sent.GetName())
		}
	}
	if state.ContinuedAsNew {
		check(state.StartEvent.GetInput(), "the input with which it continues as new")
	}
	check(state.CustomStatus, "the custom status")
	return what, size
}

// resultOf converts the engine's state after a work item with those new events into what is
// stored. bytes is the size of the whole history.
func (h *taskHub) resultOf(item *OrchestrationItem, arrived []*protos.HistoryEvent, state *backend.WorkflowRuntimeState, bytes int) (*OrchestrationResult, error) {
	status, ok := history.Statuses[runtimestate.RuntimeStatus(state)]
	if !ok {
		return nil, fmt.Errorf("unknown status of %s", item.ID)
	}
	r := &OrchestrationResult{Status: status, CustomStatus: history.JSON(state.CustomStatus), Events: len(state.NewEvents)}
	if len(state.OldEvents)+len(state.NewEvents) > MaxHistoryEvents && status != forebay.OrchestrationTerminated {
		return endAs(item, state, arrived, "HistoryTooLong", fmt.Sprintf("the history has more than %d events; an orchestrator that goes on for long continues as new", MaxHistoryEvents))
	}
	if status != forebay.OrchestrationTerminated {
		if bytes > maxHistoryBytes {
			return endAs(item, state, arrived, "HistoryTooLong", fmt.Sprintf("the history has %d bytes; the limit is %d; large values are better passed by reference", bytes, maxHistoryBytes))
		}
		if what, size := h.tooLarge(state); what != "" {
			if int64(len(state.CustomStatus.GetValue())) > h.opts.MaxBytes {
				// Unchanged: it is stored with the end.
				state.CustomStatus = history.Value(item.Custom)
			}
			return endAs(item, state, arrived, string(forebay.CodePayloadTooLarge), fmt.Sprintf("%s has %d bytes; the limit is %d", what, size, h.opts.MaxBytes))
		}
	}
	if state.ContinuedAsNew {
		r.Reset = &Reset{Execution: state.StartEvent.GetWorkflowInstance().GetExecutionId().GetValue(), Input: Inline(history.JSON(state.StartEvent.GetInput())),
			Version: state.StartEvent.GetVersion().GetValue()}
	}
	for _, e := range state.PendingTasks {
		scheduled := e.GetTaskScheduled()
		a := NewActivity{EventID: int(e.EventId), Name: scheduled.GetName(), Policy: policy.Detach(scheduled.GetInput())}
		if p, ok := h.opts.Retries[a.Name]; ok && a.Policy == nil {
			a.Policy = policy.Encode(p)
		}
		var err error
		if a.Event.Bytes, err = proto.Marshal(e); err != nil {
			return nil, err
		}
		r.Activities = append(r.Activities, a)
	}
	var err error
	for _, e := range state.NewEvents {
		if version := e.GetWorkflowStarted().GetVersion(); version != nil {
			r.Version = version.GetName()
		}
		if r.History.Bytes, err = history.Append(r.History.Bytes, e); err != nil {
			return nil, err
		}
	}
	if done := state.CompletedEvent; done != nil {
		r.Output, r.Failure = Inline(history.JSON(done.Result)), history.FailureOf(done.FailureDetails)
	}
	if err := addTimers(r, state.PendingTimers); err != nil {
		return nil, err
	}
	return r, h.addMessages(r, item, state)
}

// neverFires is the year of a timer that the engine sets to await an event without a timeout.
const neverFires = 9999

func addTimers(r *OrchestrationResult, timers []*protos.HistoryEvent) error {
	for _, e := range timers {
		at := e.GetTimerFired().GetFireAt().AsTime()
		if at.Year() >= neverFires {
			continue
		}
		event, err := proto.Marshal(e)
		if err != nil {
			return err
		}
		r.Timers = append(r.Timers, Timer{At: at.Add(time.Millisecond - 1).UnixMilli(), Event: Inline(event)})
	}
	return nil
}

func (h *taskHub) addMessages(r *OrchestrationResult, item *OrchestrationItem, state *backend.WorkflowRuntimeState) error {
	for _, m := range state.PendingMessages {
		// The engine notes that the instance stalls for want of its version.
		if m.TargetInstanceId == "" {
			continue
		}
		e := history.Received(m.HistoryEvent)
		message := OrchestrationMessage{To: m.TargetInstanceId, Effect: EffectOf(e)}
		switch started := e.GetExecutionStarted(); {
		case started != nil:
			if err := h.addStart(&message, item, state, e); err != nil {
				return err
			}
		case e.GetChildWorkflowInstanceCompleted() != nil || e.GetChildWorkflowInstanceFailed() != nil:
			message.Execution = state.StartEvent.GetParentInstance().GetWorkflowInstance().GetExecutionId().GetValue()
			// The engine reports a terminated child without failure details. Its caller would
			// take that for a success.
			if failed := e.GetChildWorkflowInstanceFailed(); failed != nil && failed.FailureDetails == nil {
				failed.FailureDetails = &protos.TaskFailureDetails{ErrorType: "Terminated", ErrorMessage: "the sub-orchestration was terminated", IsNonRetriable: true}
			}
		}
		if message.Start == nil {
			var err error
			if message.Event.Bytes, err = proto.Marshal(e); err != nil {
				return err
			}
		}
		r.Messages = append(r.Messages, message)
	}
	return nil
}

// addStart makes the message start an instance. If an open instance has the id, the caller gets
// a failure of the call.
func (h *taskHub) addStart(m *OrchestrationMessage, item *OrchestrationItem, state *backend.WorkflowRuntimeState, e *protos.HistoryEvent) error {
	started := e.GetExecutionStarted()
	if parent := started.ParentInstance; parent != nil {
		for _, created := range state.NewEvents {
			if c := created.GetChildWorkflowInstanceCreated(); c != nil && created.EventId == parent.TaskScheduledId {
				started.Version = c.Version
			}
		}
		var err error
		m.Refusal, err = proto.Marshal(history.ChildFailed(parent.TaskScheduledId, &forebay.OrchestrationFailure{Type: string(forebay.CodeConflict),
			Message: fmt.Sprintf("there is an instance %s already that is not over", m.To), NonRetryable: true}))
		if err != nil {
			return err
		}
	}
	start, err := newOrchestration(item.Tenant, e)
	m.Start = &start
	return err
}

func newOrchestration(tenant int64, e *protos.HistoryEvent) (NewOrchestration, error) {
	started := e.GetExecutionStarted()
	event, err := proto.Marshal(e)
	o := NewOrchestration{Tenant: tenant, ID: started.GetWorkflowInstance().GetInstanceId(), Execution: started.GetWorkflowInstance().GetExecutionId().GetValue(),
		Name: started.Name, Version: started.GetVersion().GetValue(), Input: Inline(history.JSON(started.Input)), Event: Inline(event)}
	if at := started.ScheduledStartTimestamp; at != nil {
		o.StartAt = at.AsTime().UnixMilli()
	}
	return o, err
}

// endAs fails an instance whose work item cannot be stored, and tells its parent. What has
// arrived goes into the history all the same: after a rewind it is not asked for again.
func endAs(item *OrchestrationItem, state *backend.WorkflowRuntimeState, arrived []*protos.HistoryEvent, kind, message string) (*OrchestrationResult, error) {
	failure := &forebay.OrchestrationFailure{Type: kind, Message: message}
	begun, end := history.NewEvent(), history.NewEvent()
	begun.Timestamp = timestamppb.New(driver.FromMillis(item.now)) // a rewound instance sees this time again
	begun.EventType = &protos.HistoryEvent_WorkflowStarted{WorkflowStarted: &protos.WorkflowStartedEvent{}}
	end.EventType = &protos.HistoryEvent_ExecutionCompleted{ExecutionCompleted: &protos.ExecutionCompletedEvent{
		WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_FAILED, FailureDetails: history.DetailsOf(failure)}}
	r := &OrchestrationResult{Status: forebay.OrchestrationFailed, CustomStatus: history.JSON(state.CustomStatus), Events: len(arrived) + 2, Failure: failure}
	var err error
	for _, e := range slices.Concat([]*protos.HistoryEvent{begun}, arrived, []*protos.HistoryEvent{end}) {
		if r.History.Bytes, err = history.Append(r.History.Bytes, e); err != nil {
			return nil, err
		}
	}
	if state.StartEvent.GetParentInstance() == nil {
		return r, nil
	}
	m, err := failureFor(state.StartEvent, failure)
	r.Messages = append(r.Messages, m)
	return r, err
}

// failureFor tells the caller of a sub-orchestration that it has failed.
func failureFor(start *protos.ExecutionStartedEvent, failure *forebay.OrchestrationFailure) (OrchestrationMessage, error) {
	caller := start.GetParentInstance()
	event, err := proto.Marshal(history.ChildFailed(caller.GetTaskScheduledId(), failure))
	return OrchestrationMessage{To: caller.GetWorkflowInstance().GetInstanceId(), Execution: caller.GetWorkflowInstance().GetExecutionId().GetValue(), Event: Inline(event)}, err
}
