package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
)

const tenant = "default"

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, test func(*testing.T, db.Options)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, db.Options{Path: dbtest.SQLite(t), Serve: true})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, db.Options{URL: dbtest.Postgres(t), Serve: true})
	})
}

// process is a service over its own connection, as in a process of its own.
type process struct {
	*Service
	store *stores
	stop  func()
}

func run(t *testing.T, where db.Options, opts Options) *process {
	t.Helper()
	return runWith(t, where, func(*stores) Options { return opts })
}

// runWith is run with options that need the store.
func runWith(t *testing.T, where db.Options, with func(*stores) Options) *process {
	t.Helper()
	s, err := openStores(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	opts := with(s)
	opts.Store = s.Orchestrations
	p := &process{Service: New(opts), store: s}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	return p
}

func (p *process) start(t *testing.T, req StartRequest) string {
	t.Helper()
	id, err := p.Start(t.Context(), tenant, req)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (p *process) ends(t *testing.T, id string, want forebay.OrchestrationStatus) forebay.Orchestration {
	t.Helper()
	o, err := p.Wait(t.Context(), tenant, id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if o.Status != want {
		past, _ := p.History(t.Context(), tenant, id)
		for _, e := range past {
			t.Logf("%+v", e)
		}
		t.Fatalf("%s is %s (%+v), not %s", id, o.Status, o.Failure, want)
	}
	return o
}

// until waits until a condition holds.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for begun := time.Now(); !so(); <-time.After(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("not within a minute: ", what)
		}
	}
}

func add[T any](t testing.TB, r *Registry, name string, f func(context.Context, T) (any, error)) {
	t.Helper()
	err := r.AddActivity(name, func(ctx context.Context, input json.RawMessage) (any, error) {
		var in T
		if len(input) > 0 {
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
		}
		return f(ctx, in)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addOrchestrator(t testing.TB, r *Registry, name string, f task.Workflow) {
	t.Helper()
	if err := r.AddOrchestrator(name, "", f); err != nil {
		t.Fatal(err)
	}
}

func activity(ctx *task.WorkflowContext, name string, input any, p forebay.RetryPolicy) task.Task {
	return ctx.CallActivity(name, task.WithRawActivityInput(policy.ActivityInput(input, p)))
}

func TestFanOut(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		add(t, r, "square", func(_ context.Context, n int) (any, error) { return n * n, nil })
		addOrchestrator(t, r, "sum", func(ctx *task.WorkflowContext) (any, error) {
			var n int
			if err := ctx.GetInput(&n); err != nil {
				return nil, err
			}
			var tasks []task.Task
			for i := range n {
				tasks = append(tasks, activity(ctx, "square", i, forebay.RetryPolicy{}))
			}
			sum := 0
			for _, task := range tasks {
				var square int
				if err := task.Await(&square); err != nil {
					return nil, err
				}
				sum += square
			}
			ctx.SetCustomStatus(`"summed"`)
			return sum, nil
		})
		p := run(t, where, Options{Registry: r})
		var ids []string
		for range 20 {
			ids = append(ids, p.start(t, StartRequest{Name: "sum", Input: json.RawMessage("50")}))
		}
		for _, id := range ids {
			o := p.ends(t, id, forebay.OrchestrationCompleted)
			if string(o.Output) != "40425" || string(o.CustomStatus) != `"summed"` || o.StartedAt == nil || o.CompletedAt == nil {
				t.Errorf("%+v", o)
			}
			attempts, err := p.Attempts(t.Context(), tenant, id)
			if err != nil || len(attempts) != 50 {
				t.Errorf("%d attempts: %v", len(attempts), err)
			}
		}
	})
}

// Ten activities that each fail twice, with a retry delay of half a second, take about a second
// together. Retries need no work item of the instance, so they do not wait for each other.
func TestRetriesRunSideBySide(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		add(t, r, "flaky", func(ctx context.Context, n int) (any, error) {
			if c, _ := CallOf(ctx); c.Attempt < 3 {
				return nil, fmt.Errorf("try %d of %d", c.Attempt, n)
			}
			return n, nil
		})
		orchestrations := atomic.Int32{}
		addOrchestrator(t, r, "all", func(ctx *task.WorkflowContext) (any, error) {
			orchestrations.Add(1)
			var tasks []task.Task
			for i := range 10 {
				tasks = append(tasks, activity(ctx, "flaky", i, forebay.RetryPolicy{MaxAttempts: 3, First: 500 * time.Millisecond, Coefficient: 1}))
			}
			for _, task := range tasks {
				if err := task.Await(nil); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "all"})
		o := p.ends(t, id, forebay.OrchestrationCompleted)
		attempts, err := p.Attempts(t.Context(), tenant, id)
		if err != nil || len(attempts) != 30 {
			t.Fatalf("%d attempts: %v", len(attempts), err)
		}
		var seconds []time.Time
		for _, a := range attempts {
			switch {
			case a.Number < 3 && (a.Outcome != ActivityRetried || a.RetryDelaySeconds == nil || *a.RetryDelaySeconds != 0.5 || a.ErrorMessage == ""),
				a.Number == 3 && a.Outcome != ActivitySucceeded:
				t.Errorf("%+v", a)
			}
			if a.Number == 2 {
				seconds = append(seconds, a.StartedAt)
			}
		}
		// If each waited for the one before, the last retry would begin nine seconds after the
		// first.
		slices.SortFunc(seconds, time.Time.Compare)
		if took, spread := o.CompletedAt.Sub(o.CreatedAt), seconds[9].Sub(seconds[0]); took < time.Second || spread > 8*time.Second {
			t.Errorf("took %s, the second attempts began within %s", took, spread)
		}
		if n := orchestrations.Load(); n > 12 {
			t.Errorf("%d work items: the instance heard of failures that were tried again", n)
		}
	})
}

func TestFailures(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		var calls atomic.Int32
		add(t, r, "fail", func(_ context.Context, how string) (any, error) {
			calls.Add(1)
			switch how {
			case "final":
				return nil, &NonRetryable{errors.New("never")}
			case "typed":
				return nil, forebay.Errorf(forebay.CodeForbidden, "no")
			case "panic":
				panic("oh")
			case "large":
				return strings.Repeat("x", 2000), nil
			}
			return nil, errors.New("boom")
		})
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var how string
			if err := ctx.GetInput(&how); err != nil {
				return nil, err
			}
			return nil, activity(ctx, "fail", how, forebay.RetryPolicy{MaxAttempts: 3, First: time.Millisecond, NonRetryable: []string{"forbidden"}}).Await(nil)
		})
		addOrchestrator(t, r, "panics", func(*task.WorkflowContext) (any, error) { panic("here") })
		addOrchestrator(t, r, "large", func(*task.WorkflowContext) (any, error) { return strings.Repeat("x", 2000), nil })
		addOrchestrator(t, r, "above", func(ctx *task.WorkflowContext) (any, error) { return nil, ctx.CallChildWorkflow("large").Await(nil) })
		addOrchestrator(t, r, "large activity", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, "fail", strings.Repeat("x", 2000), forebay.RetryPolicy{}).Await(nil)
		})
		addOrchestrator(t, r, "large child", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("panics", task.WithChildWorkflowInput(strings.Repeat("x", 2000))).Await(nil)
		})
		addOrchestrator(t, r, "large anew", func(ctx *task.WorkflowContext) (any, error) {
			ctx.ContinueAsNew(strings.Repeat("x", 2000))
			return nil, nil
		})
		addOrchestrator(t, r, "large status", func(ctx *task.WorkflowContext) (any, error) {
			ctx.SetCustomStatus(strings.Repeat("x", 2000))
			return nil, nil
		})
		p := run(t, where, Options{Registry: r, MaxBytes: 1000})
		for name, what := range map[string]string{"large": "the output", "large activity": "the input of the activity fail", "large child": "the input of the orchestration panics",
			"large anew": "the input with which it continues as new", "large status": "the custom status"} {
			o := p.ends(t, p.start(t, StartRequest{Name: name}), forebay.OrchestrationFailed)
			if o.Failure.Type != "payload_too_large" || !strings.HasPrefix(o.Failure.Message, what+" has 200") || len(o.CustomStatus) > 0 {
				t.Errorf("%s: %+v, status %.20s", name, o.Failure, o.CustomStatus)
			}
		}
		for how, want := range map[string]struct {
			calls int32
			kind  string
		}{"final": {1, "*errors.errorString"}, "typed": {1, "forbidden"}, "panic": {3, "Panic"}, "large": {1, "payload_too_large"}, "": {3, "*errors.errorString"}} {
			calls.Store(0)
			input, _ := json.Marshal(how)
			id := p.start(t, StartRequest{Name: "one", Input: input})
			o := p.ends(t, id, forebay.OrchestrationFailed)
			attempts, err := p.Attempts(t.Context(), tenant, id)
			if err != nil || len(attempts) != int(want.calls) || calls.Load() != want.calls || o.Failure == nil {
				t.Errorf("%q: %d calls, %d attempts, %+v: %v", how, calls.Load(), len(attempts), o.Failure, err)
				continue
			}
			if last := attempts[len(attempts)-1]; last.Outcome != ActivityFailed || last.ErrorType != want.kind {
				t.Errorf("%q: %+v", how, last)
			}
		}
		for name, kind := range map[string]string{"panics": "Panic", "large": "payload_too_large", "above": "*errors.errorString"} {
			id := p.start(t, StartRequest{Name: name})
			if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != kind {
				t.Errorf("%+v", o.Failure)
			}
			if name != "large" {
				continue
			}
			if err := p.Rewind(t.Context(), tenant, id, ""); err != nil { // in vain
				t.Errorf("rewound to its first work item: %v", err)
			}
			if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != kind {
				t.Errorf("rewound: %+v", o.Failure)
			}
		}
		if _, err := p.Start(t.Context(), tenant, StartRequest{Name: "large", Input: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
			t.Errorf("a large input: %v", err)
		}
		if _, err := p.Wait(t.Context(), tenant, "nobody", time.Second); forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("waiting for nobody: %v", err)
		}
	})
}

func newTextLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
