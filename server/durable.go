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
)

// Orchestration is what an orchestrator sees of the instance that it is. The function is run again from its beginning whenever
// something has happened to the instance; what it did before is not done again, but its results are given anew. So it
// must do the same each time: no clock but [Orchestration.Now], nothing random, no input or output but by
// activities, and no goroutines. It must not recover from panics.
type Orchestration struct{ engine *task.WorkflowContext }

// ID returns the instance's id.
func (o *Orchestration) ID() string { return string(o.engine.ID) }

// Now returns the time, the same whenever this place is run again.
func (o *Orchestration) Now() time.Time { return o.engine.CurrentTimeUtc }

// Replaying reports whether this place was run before: a program that logs may leave it out then.
func (o *Orchestration) Replaying() bool { return o.engine.IsReplaying }

// SetStatus shows a value to whoever asks how the instance is getting on.
func (o *Orchestration) SetStatus(status any) {
	encoded, err := json.Marshal(status)
	if err != nil {
		panic("the custom status is no JSON: " + err.Error()) // which fails the instance
	}
	o.engine.SetCustomStatus(string(encoded))
}

// Sleep lets the time pass, if need be for months: nothing is held meanwhile.
func (o *Orchestration) Sleep(d time.Duration) error {
	return awaited(o.engine.CreateTimer(d).Await(nil))
}

// ErrTimeout is that an event did not come in time.
var ErrTimeout = errors.New("the event did not come in time")

// WaitForEvent waits for an event of that name, in upper or lower case, and returns what it brings. One that came earlier is
// taken at once. A negative timeout waits for ever.
func WaitForEvent[T any](o *Orchestration, name string, timeout time.Duration) (v T, err error) {
	err = awaited(o.engine.WaitForSingleEvent(name, timeout).Await(&v))
	return v, err
}

// ContinueAsNew is what an orchestrator returns to begin anew with another input and an empty history. What it has started and not awaited
// is forgotten; events that it has not taken are kept.
func ContinueAsNew[Out any](o *Orchestration, input any) (nothing Out, err error) {
	o.engine.ContinueAsNew(input, task.WithKeepUnprocessedEvents())
	return nothing, nil
}

// Future is the result of something that has been started.
type Future[T any] struct{ task task.Task }

// Await waits for the result.
func (f Future[T]) Await() (v T, err error) {
	err = awaited(f.task.Await(&v))
	return v, err
}

// AwaitAll waits for all results. If some failed it returns the first error, once all are there.
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

// CallError is that an activity or a sub-orchestration failed, for good.
type CallError struct{ Message string }

func (e *CallError) Error() string { return e.Message }

// engineFailure begins the engine's words for it.
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

// Activity is a function that an orchestrator calls: it may do whatever it likes, once or, if its process dies, more than once.
type Activity[In, Out any] struct {
	name  string
	f     func(context.Context, In) (Out, error)
	retry forebay.RetryPolicy
}

// NewActivity gives an activity a name. The function must honour its context, which ends when the instance does or the server stops.
func NewActivity[In, Out any](name string, f func(context.Context, In) (Out, error)) Activity[In, Out] {
	return Activity[In, Out]{name: name, f: f}
}

// WithRetry returns the activity with a policy for when it fails. Each attempt is recorded; the orchestrator sees
// the last one's outcome.
func (a Activity[In, Out]) WithRetry(p forebay.RetryPolicy) Activity[In, Out] {
	a.retry = p
	return a
}

// Start calls the activity and goes on.
func (a Activity[In, Out]) Start(o *Orchestration, in In) Future[Out] {
	return Future[Out]{o.engine.CallActivity(a.name, task.WithRawActivityInput(orchestrate.ActivityInput(in, a.retry)))}
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

// NonRetryable marks an error of an activity after which it is not tried again.
func NonRetryable(err error) error { return &orchestrate.NonRetryable{Err: err} }

// ActivityCall is which call of an activity a function is carrying out.
type ActivityCall struct {
	InstanceID string
	EventID    int // with the instance the identity of the call, the same in every attempt
	Attempt    int // from 1
}

// ActivityCallOf returns the call that an activity's context belongs to.
func ActivityCallOf(ctx context.Context) ActivityCall {
	c, _ := orchestrate.CallOf(ctx)
	return ActivityCall(c)
}

// Orchestrator is a function whose steps are kept.
type Orchestrator[In, Out any] struct {
	name, version string
	f             func(*Orchestration, In) (Out, error)
}

// NewOrchestrator gives an orchestrator a name.
func NewOrchestrator[In, Out any](name string, f func(*Orchestration, In) (Out, error)) Orchestrator[In, Out] {
	return Orchestrator[In, Out]{name: name, f: f}
}

// Version returns the orchestrator as a version of its name. New instances run the version that stands last in
// [Options.Durable]; those that have begun go on with the one they began with, for as long as it is there.
func (d Orchestrator[In, Out]) Version(version string) Orchestrator[In, Out] {
	d.version = version
	return d
}

// Start starts an instance as a sub-orchestration and goes on. An empty id has one made.
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

// TaskOptions are what a job that an orchestrator calls may say besides its input.
type TaskOptions struct {
	Queue          string
	Priority       *int
	SessionID      *string
	MaxAttempts    *int
	MaxCostUSD     *forebay.Money
	MaxTotalTokens *int64 // input and output together, over all attempts
	Metadata       map[string]string
}

// StartTask calls a task as an activity and goes on. It becomes a job, which waits for quota, budget and breaker and is retried
// as every job is; the instance sleeps meanwhile.
func StartTask[Out any](o *Orchestration, name string, input any, options TaskOptions) Future[Out] {
	encoded, err := json.Marshal(input)
	if err != nil {
		panic("the input of a task is no JSON: " + err.Error()) // which fails the instance
	}
	req := orchestrate.TaskRequest{Task: name, Input: encoded, Queue: options.Queue, Priority: options.Priority, SessionID: options.SessionID,
		MaxAttempts: options.MaxAttempts, MaxCostUSD: options.MaxCostUSD, MaxTotalTokens: options.MaxTotalTokens, Metadata: options.Metadata}
	return Future[Out]{o.engine.CallActivity(orchestrate.TaskActivity, task.WithRawActivityInput(orchestrate.ActivityInput(req, forebay.RetryPolicy{})))}
}

// CallTask calls a task as an activity and waits for its result.
func CallTask[Out any](o *Orchestration, name string, input any, options TaskOptions) (Out, error) {
	return StartTask[Out](o, name, input, options).Await()
}
