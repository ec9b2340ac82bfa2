package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
)

// Orchestration is an instance, as its orchestrator function sees it. The function runs again from
// the beginning whenever something happens to the instance. Earlier steps are not repeated; their
// recorded results are returned.
//
// So the function must be deterministic. It must use no clock but [Orchestration.Now], no random
// values, no input or output outside activities, and no goroutines. It must not recover from
// panics.
type Orchestration struct{ engine *task.WorkflowContext }

// ID returns the instance's id.
func (o *Orchestration) ID() string { return string(o.engine.ID) }

// Now returns the time. A replay returns the same time at the same place.
func (o *Orchestration) Now() time.Time { return o.engine.CurrentTimeUtc }

// Replaying reports whether this place has run before. A program can skip its log output then.
func (o *Orchestration) Replaying() bool { return o.engine.IsReplaying }

// SetStatus sets a custom status that clients can read.
func (o *Orchestration) SetStatus(status any) {
	encoded, err := json.Marshal(status)
	if err != nil {
		panic("the custom status is no JSON: " + err.Error()) // the panic fails the instance
	}
	o.engine.SetCustomStatus(string(encoded))
}

// Sleep waits for the duration, which may be months. The instance holds no resources meanwhile.
func (o *Orchestration) Sleep(d time.Duration) error {
	return awaited(o.engine.CreateTimer(d).Await(nil))
}

// ErrTimeout means that an event did not arrive in time.
var ErrTimeout = errors.New("the event did not come in time")

// WaitForEvent waits for an event of that name, in any letter case, and returns its data. An event
// that arrived earlier is returned at once. A negative timeout means no timeout.
func WaitForEvent[T any](o *Orchestration, name string, timeout time.Duration) (v T, err error) {
	err = awaited(o.engine.WaitForSingleEvent(name, timeout).Await(&v))
	return v, err
}

// ContinueAsNew is for the return statement of an orchestrator. The instance restarts with the new
// input and an empty history. Work that it started and did not await is forgotten. Events that it
// did not receive are kept.
func ContinueAsNew[Out any](o *Orchestration, input any) (nothing Out, err error) {
	o.engine.ContinueAsNew(input, task.WithKeepUnprocessedEvents())
	return nothing, nil
}

// Future is the pending result of something that was started.
type Future[T any] struct{ task task.Task }

// Await waits for the result.
func (f Future[T]) Await() (v T, err error) {
	err = awaited(f.task.Await(&v))
	return v, err
}

// AwaitAll waits for all results. If some failed, it returns the first error after all have ended.
func AwaitAll[T any](futures []Future[T]) ([]T, error) {
	results := make([]T, len(futures))
	var first error
	for i, f := range futures {
		v, err := f.Await()
		if err != nil && first == nil {
			first = err
		}
		results[i] = v
	}
	return results, first
}

// CallError means that an activity or a sub-orchestration has failed for good.
type CallError struct{ Message string }

func (e *CallError) Error() string { return e.Message }

// engineFailure is the prefix of the engine's message.
const engineFailure = "task failed with an error: "

func awaited(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, task.ErrTaskCanceled) {
		return ErrTimeout
	}
	if message, ok := strings.CutPrefix(err.Error(), engineFailure); ok {
		return &CallError{message}
	}
	return err
}

// Activity is a function that an orchestrator calls. It may do input and output. It runs once, or
// again if its process dies.
type Activity[In, Out any] struct {
	name  string
	f     func(context.Context, In) (Out, error)
	retry forebay.RetryPolicy
}

// NewActivity names an activity. The function must honour its context, which ends when the
// instance ends or the server stops.
func NewActivity[In, Out any](name string, f func(context.Context, In) (Out, error)) Activity[In, Out] {
	return Activity[In, Out]{name: name, f: f}
}

// WithRetry returns the activity with a retry policy. Each attempt is recorded. The orchestrator
// sees the outcome of the last one.
func (a Activity[In, Out]) WithRetry(p forebay.RetryPolicy) Activity[In, Out] {
	a.retry = p
	return a
}

// Start starts the activity and returns at once.
func (a Activity[In, Out]) Start(o *Orchestration, in In) Future[Out] {
	return Future[Out]{o.engine.CallActivity(a.name, task.WithRawActivityInput(policy.ActivityInput(in, a.retry)))}
}

// Call calls the activity and waits for its result.
func (a Activity[In, Out]) Call(o *Orchestration, in In) (Out, error) { return a.Start(o, in).Await() }

func (a Activity[In, Out]) register(r *orchestrate.Registry) error {
	return r.AddActivity(a.name, func(ctx context.Context, input json.RawMessage) (any, error) {
		var in In
		if len(input) > 0 {
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, NonRetryable(forebay.Invalid("input", "is not what the activity takes"))
			}
		}
		return a.f(ctx, in)
	})
}

// NonRetryable marks an error after which an activity is not retried.
func NonRetryable(err error) error { return &orchestrate.NonRetryable{Err: err} }

// ActivityCall identifies the call that an activity function carries out.
type ActivityCall struct {
	InstanceID string
	EventID    int // identifies the call within the instance, the same in every attempt
	Attempt    int // from 1
}

// ActivityCallOf returns the call of an activity's context.
func ActivityCallOf(ctx context.Context) ActivityCall {
	c, _ := orchestrate.CallOf(ctx)
	return ActivityCall(c)
}

// Orchestrator is a function whose steps are durable.
type Orchestrator[In, Out any] struct {
	name, version string
	f             func(*Orchestration, In) (Out, error)
}

// NewOrchestrator names an orchestrator.
func NewOrchestrator[In, Out any](name string, f func(*Orchestration, In) (Out, error)) Orchestrator[In, Out] {
	return Orchestrator[In, Out]{name: name, f: f}
}

// Version returns the orchestrator as a version of its name. New instances use the version that is
// last in [Options.Durable]. Running instances keep the version they began with, as long as it is
// there.
func (d Orchestrator[In, Out]) Version(version string) Orchestrator[In, Out] {
	d.version = version
	return d
}

// Start starts an instance as a sub-orchestration and returns at once. An empty id means a
// generated one.
func (d Orchestrator[In, Out]) Start(o *Orchestration, id string, in In) Future[Out] {
	options := []task.ChildWorkflowOption{task.WithChildWorkflowInput(in)}
	if id != "" {
		options = append(options, task.WithChildWorkflowInstanceID(id))
	}
	return Future[Out]{o.engine.CallChildWorkflow(d.name, options...)}
}

// Call starts an instance as a sub-orchestration and waits for its result.
func (d Orchestrator[In, Out]) Call(o *Orchestration, in In) (Out, error) {
	return d.Start(o, "", in).Await()
}

func (d Orchestrator[In, Out]) register(r *orchestrate.Registry) error {
	return r.AddOrchestrator(d.name, d.version, func(ctx *task.WorkflowContext) (any, error) {
		var in In
		if err := ctx.GetInput(&in); err != nil {
			return nil, forebay.Invalid("input", "is not what the orchestrator takes")
		}
		return d.f(&Orchestration{ctx}, in)
	})
}

// TaskOptions are the options of a job that an orchestrator calls, besides its input.
type TaskOptions struct {
	Queue          string
	Priority       *int
	SessionID      *string
	MaxAttempts    *int
	MaxCostUSD     *forebay.Money
	MaxTotalTokens *int64 // input and output together, over all attempts
	Metadata       map[string]string
}

// StartTask calls a task as an activity and returns at once. The call becomes a job. Like every
// job it waits for quota, budget and breaker, and is retried. The instance sleeps meanwhile.
func StartTask[Out any](o *Orchestration, name string, input any, options TaskOptions) Future[Out] {
	encoded, err := json.Marshal(input)
	if err != nil {
		panic("the input of a task is no JSON: " + err.Error()) // the panic fails the instance
	}
	req := orchestrate.TaskRequest{Task: name, Input: encoded, Queue: options.Queue, Priority: options.Priority, SessionID: options.SessionID,
		MaxAttempts: options.MaxAttempts, MaxCostUSD: options.MaxCostUSD, MaxTotalTokens: options.MaxTotalTokens, Metadata: options.Metadata}
	return Future[Out]{o.engine.CallActivity(orchestrate.TaskActivity, task.WithRawActivityInput(policy.ActivityInput(req, forebay.RetryPolicy{})))}
}

// CallTask calls a task as an activity and waits for its result.
func CallTask[Out any](o *Orchestration, name string, input any, options TaskOptions) (Out, error) {
	return StartTask[Out](o, name, input, options).Await()
}
