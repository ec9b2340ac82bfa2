package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// waiting awaits the event "go" and returns its data.
func waiting(ctx *task.WorkflowContext) (any, error) {
	var got json.RawMessage
	err := ctx.WaitForSingleEvent("go", -1).Await(&got)
	return got, err
}

// sees waits until the instance is as it should be.
func (p *process) sees(t *testing.T, id, what string, done func(OrchestrationRow) bool) {
	t.Helper()
	no, err := p.store.Queues.EnsureTenant(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Watch(ctx, no, id, func(row OrchestrationRow) (bool, error) { return done(row), nil }); err != nil {
		t.Fatalf("%s of %s is not seen: %v", what, id, err)
	}
}

func (p *process) until(t *testing.T, id string, want forebay.OrchestrationStatus) {
	t.Helper()
	p.sees(t, id, string(want), func(row OrchestrationRow) bool { return row.Status == want })
}

// waitsFor waits until the history has an event of that type.
func (p *process) waitsFor(t *testing.T, id, event string) {
	t.Helper()
	p.sees(t, id, event, func(OrchestrationRow) bool {
		past, err := p.History(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(past, func(e forebay.OrchestrationEvent) bool { return e.Type == event })
	})
}

func TestManagement(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r})
		ctx := t.Context()
		code := func(err error, want forebay.Code) {
			t.Helper()
			if err == nil || forebay.CodeOf(err) != want {
				t.Errorf("%v (%s), not %s", err, forebay.CodeOf(err), want)
			}
		}
		_, err := p.Start(ctx, tenant, StartRequest{Name: "unknown"})
		code(err, forebay.CodeUnknownOrchestrator)
		_, err = p.Start(ctx, tenant, StartRequest{Name: "waiting", Input: json.RawMessage("{")})
		code(err, forebay.CodeInvalidJSON)
		_, err = p.Start(ctx, tenant, StartRequest{Name: "waiting", ID: "a\nb"})
		code(err, forebay.CodeInvalidRequest)

		id := p.start(t, StartRequest{Name: "waiting", ID: "first", Input: json.RawMessage(`{"a": 1}`)})
		_, err = p.Start(ctx, tenant, StartRequest{Name: "waiting", ID: id})
		code(err, forebay.CodeConflict)
		_, err = p.Restart(ctx, tenant, id, false)
		code(err, forebay.CodeConflict)
		code(p.Purge(ctx, tenant, id), forebay.CodeConflict)
		code(p.Rewind(ctx, tenant, id, ""), forebay.CodeConflict)
		code(p.Raise(ctx, tenant, "other", "go", nil), forebay.CodeNotFound)
		code(p.Raise(ctx, "other", id, "go", nil), forebay.CodeNotFound)
		code(p.Raise(ctx, tenant, id, "", nil), forebay.CodeInvalidRequest)

		p.until(t, id, forebay.OrchestrationRunning)
		if err := p.Suspend(ctx, tenant, id, "lunch"); err != nil {
			t.Fatal(err)
		}
		p.until(t, id, forebay.OrchestrationSuspended)
		if err := p.Raise(ctx, tenant, id, "GO", json.RawMessage(`"now"`)); err != nil {
			t.Fatal(err)
		}
		if err := p.Resume(ctx, tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"now"` || string(o.Input) != `{"a": 1}` {
			t.Errorf("%+v", o)
		}
		code(p.Raise(ctx, tenant, id, "go", nil), forebay.CodeGone)
		code(p.Terminate(ctx, tenant, id, ""), forebay.CodeGone)
		code(p.Rewind(ctx, tenant, id, ""), forebay.CodeConflict)

		again, err := p.Restart(ctx, tenant, id, false)
		if err != nil || again != id {
			t.Fatalf("restarted as %s: %v", again, err)
		}
		other, err := p.Restart(ctx, tenant, id, true)
		if err != nil || other == id {
			t.Fatalf("restarted as %s: %v", other, err)
		}
		for _, id := range []string{id, other} {
			if err := p.Terminate(ctx, tenant, id, "enough"); err != nil {
				t.Fatal(err)
			}
			if o := p.ends(t, id, forebay.OrchestrationTerminated); string(o.Output) != `"enough"` || string(o.Input) != `{"a": 1}` {
				t.Errorf("%+v", o)
			}
		}
		if err := p.Purge(ctx, tenant, id); err != nil {
			t.Fatal(err)
		}
		_, err = p.Get(ctx, tenant, id)
		code(err, forebay.CodeNotFound)
	})
}

func TestList(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r})
		for i := range 7 {
			id := p.start(t, StartRequest{Name: "waiting", ID: fmt.Sprintf("%c%d", 'a'+i%2, i)})
			if i < 3 {
				if err := p.Terminate(t.Context(), tenant, id, ""); err != nil {
					t.Fatal(err)
				}
				p.ends(t, id, forebay.OrchestrationTerminated)
			}
		}
		ids := func(req ListRequest) (ids []string) {
			t.Helper()
			for {
				page, next, err := p.List(t.Context(), tenant, req)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) > req.Limit && req.Limit > 0 {
					t.Errorf("a page of %d", len(page))
				}
				for _, o := range page {
					ids = append(ids, o.ID)
				}
				if req.Cursor = next; next == "" {
					return ids
				}
			}
		}
		for want, req := range map[string]ListRequest{
			"[a6 b5 a4 b3 a2 b1 a0]": {Limit: 2},
			"[a6 a4 a2 a0]":          {Prefix: "a", Limit: 3},
			"[a2 b1 a0]":             {Statuses: []forebay.OrchestrationStatus{forebay.OrchestrationTerminated}, Limit: 1},
			"[a6 b5 a4 b3]":          {Statuses: []forebay.OrchestrationStatus{forebay.OrchestrationRunning, forebay.OrchestrationPending}, Limit: 3},
			"[]":                     {Name: "other"},
		} {
			if got := fmt.Sprint(ids(req)); got != want {
				t.Errorf("%+v: %s, not %s", req, got, want)
			}
		}
		if got := ids(ListRequest{From: time.Now().Add(time.Hour)}); len(got) != 0 {
			t.Errorf("of the future: %v", got)
		}
		if got := ids(ListRequest{Until: time.Now().Add(time.Hour)}); len(got) != 7 {
			t.Errorf("of the past: %v", got)
		}
		if _, _, err := p.List(t.Context(), tenant, ListRequest{Cursor: "?"}); forebay.CodeOf(err) != forebay.CodeInvalidCursor {
			t.Errorf("a bad cursor: %v", err)
		}
		if n, err := p.PurgeMany(t.Context(), tenant, ListRequest{Prefix: "a"}); err != nil || n != 2 {
			t.Errorf("purged %d: %v", n, err)
		}
		if got := fmt.Sprint(ids(ListRequest{})); got != "[a6 b5 a4 b3 b1]" {
			t.Errorf("left are %s", got)
		}
	})
}

func TestTimersChildrenAndContinuing(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
			var n int
			if err := ctx.GetInput(&n); err != nil {
				return nil, err
			}
			if err := ctx.CreateTimer(50 * time.Millisecond).Await(nil); err != nil {
				return nil, err
			}
			if n < 0 {
				return nil, errors.New("negative")
			}
			return n + 1, nil
		})
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			var round int
			if err := ctx.GetInput(&round); err != nil {
				return nil, err
			}
			if err := ctx.CallChildWorkflow("child", task.WithChildWorkflowInput(round)).Await(&round); err != nil {
				return nil, err
			}
			if round < 3 {
				ctx.ContinueAsNew(round)
				return nil, nil
			}
			failed := ctx.CallChildWorkflow("child", task.WithChildWorkflowInput(-1)).Await(nil)
			timedOut := ctx.WaitForSingleEvent("never", 20*time.Millisecond).Await(nil)
			return fmt.Sprint(round, failed, timedOut), nil
		})
		addOrchestrator(t, r, "restless", func(ctx *task.WorkflowContext) (any, error) {
			ctx.ContinueAsNew(nil)
			return nil, nil
		})
		p := run(t, where, Options{Registry: r})
		if o := p.ends(t, p.start(t, StartRequest{Name: "restless"}), forebay.OrchestrationFailed); o.Failure.Type != "ContinuesForEver" {
			t.Errorf("%+v", o.Failure)
		}
		id := p.start(t, StartRequest{Name: "parent", ID: "p", Input: json.RawMessage("0")})
		o := p.ends(t, id, forebay.OrchestrationCompleted)
		if want := `"3 task failed with an error: negative the task was canceled"`; string(o.Output) != want {
			t.Errorf("%s, not %s", o.Output, want)
		}
		// The id of a child follows from that of its parent. So the child of the next round
		// replaces it.
		children, _, err := p.List(t.Context(), tenant, ListRequest{Name: "child"})
		if err != nil || len(children) != 2 {
			t.Fatalf("%d children: %v", len(children), err)
		}
		for _, c := range children {
			if c.ParentID != id {
				t.Errorf("%+v", c)
			}
		}
		want := "ExecutionStarted SubOrchestrationInstanceCreated SubOrchestrationInstanceCompleted SubOrchestrationInstanceCreated SubOrchestrationInstanceFailed TimerCreated TimerFired ExecutionCompleted"
		if got := p.types(t, id); got != want {
			t.Errorf("the history is %s", got)
		}
	})
}

// A change of the code that an instance cannot follow fails the instance, and says where.
func TestChangedCode(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		steps := func(names ...string) task.Workflow {
			return func(ctx *task.WorkflowContext) (any, error) {
				for _, name := range names {
					var err error
					switch name {
					case "timer":
						err = ctx.CreateTimer(time.Millisecond).Await(nil)
					case "wait":
						err = ctx.WaitForSingleEvent("go", -1).Await(nil)
					default:
						err = activity(ctx, name, nil, forebay.RetryPolicy{}).Await(nil)
					}
					if err != nil {
						return nil, err
					}
				}
				return "done", nil
			}
		}
		with := func(code task.Workflow) Options {
			r := NewRegistry()
			for _, name := range []string{"a", "b"} {
				add(t, r, name, func(context.Context, any) (any, error) { return nil, nil })
			}
			addOrchestrator(t, r, "steps", code)
			return Options{Registry: r}
		}
		for name, c := range map[string]struct {
			changed []string
			words   string // "": it may
		}{
			"same":     {[]string{"a", "timer", "wait"}, ""},
			"grown":    {[]string{"a", "timer", "wait", "b"}, ""},
			"renamed":  {[]string{"b", "timer", "wait"}, `event 0 of the history is the activity "a", but the code now asks for the activity "b"`},
			"kind":     {[]string{"a", "b", "wait"}, `event 1 of the history is a timer, but the code now asks for the activity "b"`},
			"inserted": {[]string{"b", "a", "timer", "wait"}, `event 0 of the history is the activity "a", but the code now asks for the activity "b"`},
			"shorter":  {[]string{"a"}, `event 1 of the history is a timer, but the code now asks for an end`},
		} {
			p := run(t, where, with(steps("a", "timer", "wait")))
			id := p.start(t, StartRequest{Name: "steps", ID: name})
			p.waitsFor(t, id, "TimerFired")
			p.stop()
			p = run(t, where, with(steps(c.changed...)))
			if err := p.Raise(t.Context(), tenant, id, "go", nil); err != nil {
				t.Fatal(err)
			}
			if c.words == "" {
				p.ends(t, id, forebay.OrchestrationCompleted)
				p.stop()
				continue
			}
			o := p.ends(t, id, forebay.OrchestrationFailed)
			if o.Failure == nil || o.Failure.Type != forebay.FailureNonDeterministic || !strings.Contains(o.Failure.Message, c.words) {
				t.Errorf("%s: %+v", name, o.Failure)
			}
			p.stop()
			// The instance goes on once the old code is back.
			p = run(t, where, with(steps("a", "timer", "wait")))
			if err := p.Rewind(t.Context(), tenant, id, "the code is back"); err != nil {
				t.Fatal(err)
			}
			p.ends(t, id, forebay.OrchestrationCompleted)
			p.stop()
		}
	})
}

func TestVersions(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		code := func(version string) task.Workflow {
			return func(ctx *task.WorkflowContext) (any, error) {
				if err := ctx.WaitForSingleEvent("go", -1).Await(nil); err != nil {
					return nil, err
				}
				return version, nil
			}
		}
		with := func(versions ...string) Options {
			r := NewRegistry()
			for _, v := range versions {
				if err := r.AddOrchestrator("versioned", v, code(v)); err != nil {
					t.Fatal(err)
				}
			}
			return Options{Registry: r}
		}
		p := run(t, where, with(""))
		old := p.start(t, StartRequest{Name: "versioned"})
		p.waitsFor(t, old, "TimerCreated")
		p.stop()
		p = run(t, where, with("", "2", "3"))
		latest := p.start(t, StartRequest{Name: "versioned"})
		chosen := p.start(t, StartRequest{Name: "versioned", Version: "2"})
		for id, want := range map[string]string{old: `""`, latest: `"3"`, chosen: `"2"`} {
			if err := p.Raise(t.Context(), tenant, id, "go", nil); err != nil {
				t.Fatal(err)
			}
			if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != want {
				t.Errorf("%s ran version %s, not %s", id, o.Output, want)
			}
		}
		if o, err := p.Get(t.Context(), tenant, chosen); err != nil || o.Version != "2" {
			t.Errorf("%+v: %v", o, err)
		}
	})
}

// A terminated instance does not terminate another's child, whose id it tried to use.
func TestTerminateSparesOthersChildren(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			var got string
			err := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID("c")).Await(&got)
			return got, err
		})
		addOrchestrator(t, r, "in vain", func(ctx *task.WorkflowContext) (any, error) {
			if err := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID("c")).Await(nil); err == nil {
				return nil, errors.New("there were two")
			}
			return waiting(ctx)
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "parent"})
		p.waitsFor(t, id, "SubOrchestrationInstanceCreated")
		other := p.start(t, StartRequest{Name: "in vain"})
		p.waitsFor(t, other, "SubOrchestrationInstanceFailed")
		if err := p.Terminate(t.Context(), tenant, other, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, other, forebay.OrchestrationTerminated)
		if err := p.Raise(t.Context(), tenant, "c", "go", json.RawMessage(`"well"`)); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"well"` {
			t.Errorf("%s", o.Output)
		}
	})
}

// A termination reaches sub-orchestrations, and running activities are dropped.
func TestTerminateReachesChildren(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		begun, over := make(chan struct{}), make(chan error, 1)
		began := sync.OnceFunc(func() { close(begun) })
		add(t, r, "long", func(ctx context.Context, _ any) (any, error) {
			began()
			<-ctx.Done()
			over <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, "long", nil, forebay.RetryPolicy{}).Await(nil)
		})
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("c")).Await(nil)
		})
		p := run(t, where, Options{Registry: r, Lock: 6 * time.Second})
		id := p.start(t, StartRequest{Name: "parent"})
		<-begun
		if err := p.Terminate(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationTerminated)
		p.ends(t, "c", forebay.OrchestrationTerminated)
		if cause := <-over; !errors.Is(cause, forebay.ErrLockLost) {
			t.Errorf("cut off by %v", cause)
		}
	})
}
