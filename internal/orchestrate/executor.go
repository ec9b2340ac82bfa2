package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// executor carries turns and activities out: here if the code is known here, else in a process that is connected.
type executor struct{ *taskHub }

// remoteTurn bounds how long a connected process may take for a turn: its code only decides, and waits for nothing.
const remoteTurn = time.Minute

var ErrNoWorker = errors.New("no process that is connected can carry it out")

func (x executor) ExecuteWorkflow(ctx context.Context, id api.InstanceID, old, arrived []*protos.HistoryEvent, opts backend.ExecuteOptions) (resp *protos.WorkflowResponse, err error) {
	err = panics.Run(x.log, "an orchestration work item", func() (err error) {
		resp, err = x.executeWorkflow(ctx, id, old, arrived, opts)
		return err
	})
	if err == nil || errors.Is(err, ErrWorkerGone) || errors.Is(err, panics.ErrPanicked) {
		x.poisonSuspects.Store(string(id), struct{}{})
	}
	return resp, err
}

// errCutShort is that a connected process has left in the middle of a turn.
var ErrWorkerGone = errors.New("the process that carried it out is gone")

func (x executor) executeWorkflow(ctx context.Context, id api.InstanceID, old, arrived []*protos.HistoryEvent, opts backend.ExecuteOptions) (*protos.WorkflowResponse, error) {
	if item, ok := x.skipsCode.LoadAndDelete(string(id)); ok {
		return responseWithoutCode(item.(*OrchestrationItem), old, arrived), nil
	}
	if name := history.Started(old, arrived).GetName(); x.registry.hasOrchestrator(name) {
		if f := x.registry.orderedFunc(name); f != nil {
			resp, err := x.executeOrdered(ctx, f, id, name, old, arrived)
			withoutExecutionIDs(resp)
			return resp, err
		}
		resp, err := history.Replay(ctx, task.NewTaskExecutorWithLogger(x.registry.engine, engineLog{x.log}), id, old, arrived)
		withoutExecutionIDs(resp)
		return x.limitContinuations(resp), err
	}
	if again, ok := x.continuations.Load(string(id)); ok {
		again.(*continuation).keepVersion(arrived)
	}
	old, arrived = withoutRedundantSuspends(old, arrived)
	if why := x.tooLargeToSend(&protos.WorkflowRequest{InstanceId: string(id), PastEvents: old, NewEvents: arrived}, "the history and what has arrived have"); why != "" {
		p := history.NewScheduled()
		p.TakeFrom(old)
		p.TakeFrom(arrived)
		return history.Failed(id, p.Last+1, failureMessageTooLarge, why), nil
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTurn)
	defer cancel()
	resp, err := handOut(ctx, x.taskHub, func(ctx context.Context) (*protos.WorkflowResponse, error) {
		return x.remote.ExecuteWorkflow(ctx, id, withWorkerStepIDs(old), withWorkerStepIDs(arrived), opts)
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoWorker) {
		err = ErrWorkerGone
	}
	if err != nil {
		return nil, err
	}
	resp = x.limitContinuations(x.checkedResponse(resp, id, old, arrived))
	renumberReusedSteps(resp, old, arrived)
	if again, ok := x.continuations.Load(string(id)); ok {
		again.(*continuation).noteVersion(resp, history.Started(old, arrived))
	}
	return resp, nil
}

// beginning is what is known of an instance that continues as new in its turn.
type continuation struct {
	times   int
	version *wrapperspb.StringValue // of the execution that begins
}

// noteVersion notes the version that an instance of connected processes continues with: its own, or the one that it asks for.
func (b *continuation) noteVersion(resp *protos.WorkflowResponse, was *protos.ExecutionStartedEvent) {
	b.version = was.GetVersion()
	for _, a := range resp.GetActions() {
		if version := a.GetCompleteWorkflow().GetNewVersion(); version != nil && forebay.ValidText(version.Value, maxVersion) {
			b.version = version
		}
	}
}

// keepVersion writes it into the event with which the execution begins. The engine makes that without.
func (b *continuation) keepVersion(arrived []*protos.HistoryEvent) {
	if begins := history.Started(nil, arrived); begins != nil && begins.Version == nil {
		begins.Version = b.version
	}
}

// effective returns the events without those that resume what is not suspended, as a rewind does, or suspend what is: there are SDKs
// that fail on them. What it leaves out of a history it leaves out of each longer one.
func withoutRedundantSuspends(old, arrived []*protos.HistoryEvent) (past, now []*protos.HistoryEvent) {
	suspended := false
	changes := func(events []*protos.HistoryEvent) []*protos.HistoryEvent {
		kept, all := events, true
		for i, e := range events {
			does := effectOf(e)
			leave := does == Suspends && suspended || does == Resumes && !suspended
			if does == Suspends || does == Resumes {
				suspended = does == Suspends
			}
			switch {
			case leave && all: // the slice is not changed: others have it as well
				kept, all = slices.Clone(events[:i]), false
			case !leave && !all:
				kept = append(kept, e)
			}
		}
		return kept
	}
	past = changes(old)
	return past, changes(arrived)
}

// maxAnew is how often an instance may continue as new in one turn, waiting for nothing. The engine would try for ever.
const maxContinuations = 20

// limitAnew fails an instance that does so more often.
func (x executor) limitContinuations(resp *protos.WorkflowResponse) *protos.WorkflowResponse {
	for _, a := range resp.GetActions() {
		if a.GetCompleteWorkflow().GetWorkflowStatus() != protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW {
			continue
		}
		again, _ := x.continuations.LoadOrStore(resp.InstanceId, new(continuation))
		if b := again.(*continuation); b.times < maxContinuations { // a turn is carried out by one goroutine at a time
			b.times++
			continue
		}
		return history.Failed(api.InstanceID(resp.InstanceId), a.Id, "ContinuesForEver", fmt.Sprintf("it continued as new more than %d times without waiting for anything", maxContinuations))
	}
	return resp
}

func (x executor) ExecuteActivity(ctx context.Context, id api.InstanceID, e *protos.HistoryEvent, opts backend.ExecuteOptions) (*protos.HistoryEvent, error) {
	carried, ok := x.inProgress.Load(e)
	if !ok {
		return nil, ErrNoWorker
	}
	a := carried.(*ActivityItem)
	scheduled := e.GetTaskScheduled()
	if a.Lost >= maxLostDeliveries {
		return history.TaskFailed(e.EventId, scheduled.TaskExecutionId, &protos.TaskFailureDetails{ErrorType: "ActivityLost", IsNonRetriable: true,
			ErrorMessage: fmt.Sprintf("%d attempts were lost with the process that carried them out", a.Lost)}), nil
	}
	ctx, cancel := x.bound(ctx, a.Token)
	defer cancel(nil)
	if f := x.registry.activity(a.Name); f != nil {
		return x.call(ctx, f, a, e), nil
	}
	request := &protos.ActivityRequest{Name: scheduled.Name, Version: scheduled.Version, Input: scheduled.Input, TaskExecutionId: scheduled.TaskExecutionId,
		ParentTraceContext: scheduled.ParentTraceContext, WorkflowInstance: &protos.WorkflowInstance{InstanceId: string(id)}}
	if why := x.tooLargeToSend(request, "the activity and its input have"); why != "" {
		return history.TaskFailed(e.EventId, scheduled.TaskExecutionId, &protos.TaskFailureDetails{ErrorType: failureMessageTooLarge, ErrorMessage: why, IsNonRetriable: true}), nil
	}
	result, err := handOut(ctx, x.taskHub, func(ctx context.Context) (*protos.HistoryEvent, error) {
		return x.remote.ExecuteActivity(ctx, id, e, opts)
	})
	if errors.Is(err, ErrNoWorker) {
		x.notBegun(a.Token)
	}
	return result, err
}

// notBegun notes of an attempt that it was handed to nobody.
func (s *Service) notBegun(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[token]; h != nil {
		h.notBegun = true
	}
}

// bound returns a context that ends when the activity is not to be carried out here any more, and not just because no new ones are taken.
func (s *Service) bound(ctx context.Context, token int64) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock()
	h := s.held[token]
	s.mu.Unlock()
	if h == nil {
		cancel(forebay.ErrLockLost)
		return ctx, cancel
	}
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// call calls a Go function.
func (x executor) call(ctx context.Context, f ActivityFunc, a *ActivityItem, e *protos.HistoryEvent) (result *protos.HistoryEvent) {
	scheduled := e.GetTaskScheduled()
	fail := func(kind, message string, final bool) *protos.HistoryEvent {
		return history.TaskFailed(e.EventId, scheduled.TaskExecutionId, &protos.TaskFailureDetails{ErrorType: kind, ErrorMessage: message, IsNonRetriable: final})
	}
	defer func() {
		if v := recover(); v != nil {
			panics.Log(x.log, "the activity "+a.Name, v)
			result = fail("Panic", fmt.Sprint("the activity panicked: ", v), false)
		}
	}()
	ctx = context.WithValue(ctx, callKey{}, Call{InstanceID: a.ID, EventID: a.EventID, Attempt: a.Number})
	v, err := f(ctx, json.RawMessage(scheduled.GetInput().GetValue()))
	if err != nil {
		var final *NonRetryable
		if errors.As(err, &final) {
			return fail(errorType(final.Err), err.Error(), true)
		}
		return fail(errorType(err), err.Error(), false)
	}
	var output *wrapperspb.StringValue
	if v != nil {
		encoded, err := json.Marshal(v)
		if err != nil {
			return fail("InvalidResult", "the result is no JSON: "+err.Error(), true)
		}
		output = wrapperspb.String(string(encoded))
	}
	return history.TaskCompleted(e.EventId, scheduled.TaskExecutionId, output)
}

// Shutdown is the engine's; nothing here has to be shut down.
func (x executor) Shutdown(context.Context) error { return nil }
