package orchestrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/dapr/durabletask-go/api/helpers"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/runtimestate"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// The engine's workers process each work item on a goroutine of their own, where a panic would
// end this process. So these processors replace the engine's. They do the same with the same
// parts of the engine, but contain panics. A work item that panics is abandoned, and counts as
// poison after maxLostDeliveries attempts.

// orchestrationProcessor processes orchestration work items.
type orchestrationProcessor struct {
	*taskHub
	executor backend.WorkflowExecutor
	applier  *runtimestate.Applier
}

func newOrchestrationProcessor(h *taskHub, executor backend.WorkflowExecutor) *orchestrationProcessor {
	return &orchestrationProcessor{h, executor, runtimestate.NewApplier("", "")}
}

func (p *orchestrationProcessor) Name() string { return "orchestrations" }

func (p *orchestrationProcessor) NextWorkItem(ctx context.Context) (*backend.WorkflowWorkItem, error) {
	return p.NextWorkflowWorkItem(ctx)
}

func (p *orchestrationProcessor) CompleteWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) error {
	return p.CompleteWorkflowWorkItem(ctx, wi)
}

func (p *orchestrationProcessor) AbandonWorkItem(ctx context.Context, wi *backend.WorkflowWorkItem) error {
	return p.AbandonWorkflowWorkItem(ctx, wi)
}

// ProcessWorkItemAsync processes a work item and calls done.
func (p *orchestrationProcessor) ProcessWorkItemAsync(ctx context.Context, wi *backend.WorkflowWorkItem, done func(error)) {
	panicked := true
	err := panics.Run(p.log, "an orchestration work item of the engine", func() error {
		err := p.process(ctx, wi)
		panicked = false
		return err
	})
	if panicked {
		p.poisonSuspects.Store(string(wi.InstanceID), struct{}{}) // the item may be poison
	}
	done(err)
}

func (p *orchestrationProcessor) process(ctx context.Context, wi *backend.WorkflowWorkItem) (err error) {
	if wi.State, err = p.GetWorkflowRuntimeState(ctx, wi); err != nil {
		return fmt.Errorf("read the instance: %w", err)
	}
	var terminated *protos.ExecutionTerminatedEvent
	for _, e := range wi.NewEvents {
		if terminated = e.GetExecutionTerminated(); terminated != nil {
			break
		}
	}
	defer func() {
		if err == nil && terminated != nil && runtimestate.IsCompleted(wi.State) {
			history.TerminateChildren(wi.State, terminated)
		}
	}()
	if !runtimestate.IsValid(wi.State) || runtimestate.IsCompleted(wi.State) {
		return nil
	}
	// The timestamp of this event is the current time of the orchestrator. It is the database's,
	// which says when timers are due.
	item := wi.Properties[itemKey].(*OrchestrationItem)
	ctx, now := context.WithValue(ctx, turnKey{}, item), timestamppb.New(driver.FromMillis(item.now))
	started := history.NewEvent()
	started.Timestamp = now
	started.EventType = &protos.HistoryEvent_WorkflowStarted{WorkflowStarted: &protos.WorkflowStartedEvent{}}
	_ = runtimestate.AddEvent(wi.State, started)
	ctx, span := history.StartSpan(ctx, wi.State, wi.NewEvents)
	defer func() { history.EndSpan(wi.State, span, false) }()
	runtimestate.AddEvents(wi.State, wi.NewEvents) // duplicates are left out
	for range maxContinuations + 1 {
		resp, err := p.executor.ExecuteWorkflow(ctx, wi.InstanceID, wi.State.OldEvents, wi.State.NewEvents, backend.ExecuteOptions{})
		if err != nil {
			return err
		}
		if p.beforeApply != nil {
			p.beforeApply(string(wi.InstanceID))
		}
		again, err := p.apply(wi, resp, terminated, span)
		if err != nil || !again {
			return err
		}
		for _, e := range wi.State.NewEvents {
			if e.GetWorkflowStarted() != nil {
				e.Timestamp = now
			}
		}
		history.EndSpan(wi.State, span, true)
		ctx, span = history.StartSpan(ctx, wi.State, wi.NewEvents)
	}
	return fmt.Errorf("it continued as new more than %d times in one work item", maxContinuations)
}

// apply applies the actions of a response, and reports whether the instance continues as new.
func (p *orchestrationProcessor) apply(wi *backend.WorkflowWorkItem, resp *protos.WorkflowResponse, terminated *protos.ExecutionTerminatedEvent, span trace.Span) (again bool, err error) {
	if v := resp.GetVersion(); v != nil && (v.GetPatches() != nil || v.Name != nil) {
		for _, e := range wi.State.NewEvents {
			if started := e.GetWorkflowStarted(); started != nil {
				started.Version = v
				break
			}
		}
	}
	if terminated != nil {
		resp.Actions = slices.DeleteFunc(resp.Actions, history.Continues) // the termination must not be lost
	}
	history.NameChildren(resp.Actions, string(wi.InstanceID), wi.Properties[itemKey].(*OrchestrationItem).Instance, MaxInstanceIDBytes)
	traced, before := helpers.TraceContextFromSpan(span), wi.State.PendingMessages // of earlier executions
	sent, err := history.Sent(wi.State, resp.Actions, traced)
	if err != nil {
		return false, fmt.Errorf("send what it sends: %w", err)
	}
	applied, err := p.applier.Actions(wi.State, resp.CustomStatus, resp.Actions, traced, nil)
	if err != nil {
		return false, fmt.Errorf("carry out its decisions: %w", err)
	}
	wi.OutgoingHistory = applied.OutgoingHistory
	if applied.ContinuedAsNew {
		wi.State.PendingMessages = slices.Concat(before, sent)
		return true, nil
	}
	if terminated == nil || runtimestate.IsCompleted(wi.State) {
		return false, nil
	}
	wi.State.PendingTasks, wi.State.PendingTimers, wi.State.PendingMessages = nil, nil, nil
	end := &protos.WorkflowAction{Id: -1, WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{CompleteWorkflow: &protos.CompleteWorkflowAction{
		WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED, Result: terminated.Input}}}
	_, err = p.applier.Actions(wi.State, wi.State.CustomStatus, []*protos.WorkflowAction{end}, traced, nil)
	return false, err
}

// activityProcessor processes activity work items.
type activityProcessor struct {
	*taskHub
	executor backend.ActivityExecutor
}

func (p *activityProcessor) Name() string { return "activities" }

func (p *activityProcessor) NextWorkItem(ctx context.Context) (*backend.ActivityWorkItem, error) {
	return p.NextActivityWorkItem(ctx)
}

func (p *activityProcessor) CompleteWorkItem(ctx context.Context, wi *backend.ActivityWorkItem) error {
	if wi.Result.GetTaskCompleted() == nil && wi.Result.GetTaskFailed() == nil {
		return fmt.Errorf("the activity %s has no result", wi)
	}
	return p.CompleteActivityWorkItem(ctx, wi)
}

func (p *activityProcessor) AbandonWorkItem(ctx context.Context, wi *backend.ActivityWorkItem) error {
	return p.AbandonActivityWorkItem(ctx, wi)
}

// ProcessWorkItemAsync processes a work item and calls done.
func (p *activityProcessor) ProcessWorkItemAsync(ctx context.Context, wi *backend.ActivityWorkItem, done func(error)) {
	done(panics.Run(p.log, "an activity work item of the engine", func() (err error) {
		scheduled := wi.NewEvent.GetTaskScheduled()
		if ctx, err = helpers.ContextFromTraceContext(ctx, scheduled.ParentTraceContext); err != nil {
			return fmt.Errorf("read the trace context: %w", err)
		}
		ctx, span := helpers.StartNewActivitySpan(ctx, scheduled.Name, scheduled.Version.GetValue(), string(wi.InstanceID), wi.NewEvent.EventId)
		defer func() {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}()
		scheduled.ParentTraceContext = helpers.TraceContextFromSpan(span)
		wi.Result, err = p.executor.ExecuteActivity(ctx, wi.InstanceID, wi.NewEvent, backend.ExecuteOptions{})
		return err
	}))
}
