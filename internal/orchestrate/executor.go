package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// executor executes work items: Go functions in this process, all others on connected workers.
type executor struct{ *taskHub }

func (x executor) ExecuteWorkflow(ctx context.Context, id api.InstanceID, old, arrived []*protos.HistoryEvent, _ backend.ExecuteOptions) (resp *protos.WorkflowResponse, err error) {
	err = panics.Run(x.log, "an orchestration work item", func() (err error) {
		resp, err = x.executeWorkflow(ctx, id, old, arrived)
		return err
	})
	if err == nil || errors.Is(err, ErrWorkerGone) || errors.Is(err, panics.ErrPanicked) {
		x.poisonSuspects.Store(string(id), struct{}{})
	}
	return resp, err
}

func (x executor) executeWorkflow(ctx context.Context, id api.InstanceID, old, arrived []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	if item, _ := ctx.Value(turnKey{}).(*OrchestrationItem); item.SkipsCode {
		return responseWithoutCode(item, old, arrived), nil
	}
	if name := history.Started(old, arrived).GetName(); x.registry.hasOrchestrator(name) {
		if f := x.registry.orderedFunc(name); f != nil {
			resp, err := x.executeOrdered(ctx, f, id, name, old, arrived)
			withoutExecutionIDs(resp)
			return resp, err
		}
		resp, err := history.Replay(ctx, task.NewTaskExecutorWithLogger(x.registry.engine, EngineLog{x.log}), id, old, arrived)
		withoutExecutionIDs(resp)
		return x.limitContinuations(resp), err
	}
	if again, ok := x.continuations.Load(string(id)); ok {
		again.(*continuation).keepVersion(arrived)
	}
	resp, err := x.workers.ExecuteOrchestrator(ctx, x.tenant, string(id), old, arrived)
	if err != nil {
		return nil, err
	}
	resp = x.limitContinuations(resp)
	if again, ok := x.continuations.Load(string(id)); ok {
		again.(*continuation).noteVersion(resp, history.Started(old, arrived))
	}
	return resp, nil
}

// continuation records that an instance continued as new within one work item.
type continuation struct {
	times   int
	actions int // of these executions, whose events are all sent at the end
	bytes   int
	version *wrapperspb.StringValue // of the next execution
}

// noteVersion notes the version that a worker's instance continues with: the version it asks
// for, or else the one it has.
func (b *continuation) noteVersion(resp *protos.WorkflowResponse, was *protos.ExecutionStartedEvent) {
	b.version = was.GetVersion()
	for _, a := range resp.GetActions() {
		if version := a.GetCompleteWorkflow().GetNewVersion(); version != nil && forebay.ValidText(version.Value, MaxVersionBytes) {
			b.version = version
		}
	}
}

// keepVersion sets the version on the event that starts the new execution. The engine leaves it
// out.
func (b *continuation) keepVersion(arrived []*protos.HistoryEvent) {
	if begins := history.Started(nil, arrived); begins != nil && begins.Version == nil {
		begins.Version = b.version
	}
}

// maxContinuations is how often an instance may continue as new within one work item. The engine
// has no limit.
const maxContinuations = 20

// limitContinuations fails an instance that exceeds maxContinuations, or decides too much.
func (x executor) limitContinuations(resp *protos.WorkflowResponse) *protos.WorkflowResponse {
	for _, a := range resp.GetActions() {
		if !history.Continues(a) {
			continue
		}
		again, _ := x.continuations.LoadOrStore(resp.InstanceId, new(continuation))
		// One goroutine at a time executes an item.
		b := again.(*continuation)
		b.times, b.actions, b.bytes = b.times+1, b.actions+len(resp.Actions), b.bytes+proto.Size(resp)
		message := fmt.Sprintf("it continued as new more than %d times without waiting for anything", maxContinuations)
		switch {
		case b.times > maxContinuations:
		case b.actions > MaxHistoryEvents || b.bytes > maxHistoryBytes:
			message = fmt.Sprintf("it decided more than %d things, or of more than %d bytes, without waiting for anything", MaxHistoryEvents, maxHistoryBytes)
		default:
			continue
		}
		return history.Failed(api.InstanceID(resp.InstanceId), a.Id, "ContinuesForEver", message)
	}
	return resp
}

func (x executor) ExecuteActivity(ctx context.Context, id api.InstanceID, e *protos.HistoryEvent, _ backend.ExecuteOptions) (*protos.HistoryEvent, error) {
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
	result, err := x.workers.ExecuteActivity(ctx, x.tenant, string(id), e)
	if errors.Is(err, ErrNoWorker) {
		x.notBegun(a.Token)
	}
	return result, err
}

// call calls a Go activity.
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

// Shutdown has nothing to do.
func (x executor) Shutdown(context.Context) error { return nil }

// withoutExecutionIDs removes the task execution ids from the response of a Go orchestrator. The
// engine makes up one for each activity, and nothing here reads it. Workers get it as field 7 of
// ActivityRequest. Microsoft's SDKs expect a map of tags there and fail to read the work item.
// Ids in the responses of Dapr workers are kept.
func withoutExecutionIDs(resp *protos.WorkflowResponse) {
	for _, a := range resp.GetActions() {
		if t := a.GetScheduleTask(); t != nil {
			t.TaskExecutionId = ""
		}
	}
}
