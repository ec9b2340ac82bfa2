package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// breakable registers the activities "good" and "bad", which fails until works is set. Both
// count their calls.
func breakable(t *testing.T, works, good, bad *atomic.Int32) *Registry {
	r := NewRegistry()
	add(t, r, "good", func(context.Context, any) (any, error) { good.Add(1); return "good", nil })
	add(t, r, "bad", func(context.Context, any) (any, error) {
		bad.Add(1)
		if works.Load() == 0 {
			return nil, errors.New("not yet")
		}
		return "mended", nil
	})
	return r
}

// A failed instance shows its failure, and a rewind repeats only what failed.
func TestRewind(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		body := func(ctx *task.WorkflowContext) (any, error) {
			var first, second string
			a, b := activity(ctx, "good", nil, forebay.RetryPolicy{}), activity(ctx, "bad", nil, forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond})
			if err := errors.Join(a.Await(&first), b.Await(&second)); err != nil {
				return nil, err
			}
			return first + " " + second, nil
		}
		addOrchestrator(t, r, "one", body)
		addOrchestrator(t, r, "above", func(ctx *task.WorkflowContext) (any, error) {
			var s string
			err := ctx.CallChildWorkflow("one").Await(&s)
			return s, err
		})
		p := run(t, where, Options{Registry: r})
		for _, name := range []string{"one", "above"} {
			works.Store(0)
			good.Store(0)
			bad.Store(0)
			id := p.start(t, StartRequest{Name: name})
			p.ends(t, id, forebay.OrchestrationFailed)
			failed, _, err := p.List(t.Context(), tenant, ListRequest{Statuses: []forebay.OrchestrationStatus{forebay.OrchestrationFailed}})
			if err != nil || len(failed) == 0 || failed[0].Failure == nil {
				t.Fatalf("%+v: %v", failed, err)
			}
			works.Store(1)
			if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			o := p.ends(t, id, forebay.OrchestrationCompleted)
			if string(o.Output) != `"good mended"` || good.Load() != 1 || bad.Load() != 3 {
				t.Errorf("%s: %s after %d and %d calls", name, o.Output, good.Load(), bad.Load())
			}
		}
	})
}

// The failed activity may have been scheduled before one that succeeded.
func TestRewindOfAnEarlierActivity(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var first, second, third string
			b, a := activity(ctx, "bad", nil, forebay.RetryPolicy{}), activity(ctx, "good", nil, forebay.RetryPolicy{})
			if err := errors.Join(a.Await(&second), b.Await(&first)); err != nil {
				return nil, err
			}
			err := activity(ctx, "good", nil, forebay.RetryPolicy{}).Await(&third)
			return first + " " + second + " " + third, err
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "one"})
		p.ends(t, id, forebay.OrchestrationFailed)
		if err := p.Rewind(t.Context(), tenant, id, "again"); err != nil { // in vain
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type == forebay.FailureNonDeterministic {
			t.Fatalf("%+v", o.Failure)
		}
		works.Store(1)
		if err := p.Rewind(t.Context(), tenant, id, "again"); err != nil {
			t.Fatal(err)
		}
		o := p.ends(t, id, forebay.OrchestrationCompleted)
		if string(o.Output) != `"mended good good"` || good.Load() != 2 || bad.Load() != 3 {
			t.Errorf("%s after %d and %d calls", o.Output, good.Load(), bad.Load())
		}
	})
}

// Activities that were running when an instance failed are repeated. Sub-orchestrations that go
// on or have completed since are not called twice.
func TestRewindOfWhatWasUnderWay(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad, children atomic.Int32
		r := breakable(t, &works, &good, &bad)
		add(t, r, "slow", func(ctx context.Context, _ any) (any, error) {
			if works.Load() == 0 {
				<-ctx.Done()
			}
			return "slow", ctx.Err()
		})
		addOrchestrator(t, r, "waiting", func(ctx *task.WorkflowContext) (any, error) {
			if !ctx.IsReplaying {
				children.Add(1)
			}
			return waiting(ctx)
		})
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var child, mended, slow string
			called := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID(string(ctx.ID)+" child"))
			timer, long := ctx.CreateTimer(100*time.Millisecond), activity(ctx, "slow", nil, forebay.RetryPolicy{})
			if err := activity(ctx, "bad", nil, forebay.RetryPolicy{}).Await(&mended); err != nil {
				return nil, err
			}
			err := errors.Join(timer.Await(nil), long.Await(&slow), called.Await(&child))
			return mended + " " + slow + " " + child, err
		})
		p := run(t, where, Options{Registry: r, Lock: 6 * time.Second})
		for _, c := range []struct {
			id       string
			before   func(child string) error // the rewind
			after    func(child string) error
			children int32
		}{
			{"goes on", nil, func(child string) error { return p.Raise(t.Context(), tenant, child, "go", json.RawMessage(`"heard"`)) }, 1},
			{"completed", func(child string) error {
				err := p.Raise(t.Context(), tenant, child, "go", json.RawMessage(`"heard"`))
				p.ends(t, child, forebay.OrchestrationCompleted)
				return err
			}, nil, 1},
			{"terminated", func(child string) error {
				err := p.Terminate(t.Context(), tenant, child, "")
				p.ends(t, child, forebay.OrchestrationTerminated)
				return err
			}, func(child string) error {
				p.until(t, child, forebay.OrchestrationRunning)
				return p.Raise(t.Context(), tenant, child, "go", json.RawMessage(`"heard"`))
			}, 2},
		} {
			works.Store(0)
			children.Store(0)
			id := p.start(t, StartRequest{Name: "one", ID: c.id})
			child := id + " child"
			p.ends(t, id, forebay.OrchestrationFailed)
			p.until(t, child, forebay.OrchestrationRunning)
			if c.before != nil {
				if err := c.before(child); err != nil {
					t.Fatal(err)
				}
			}
			works.Store(1)
			if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				if err := c.after(child); err != nil {
					t.Fatal(err)
				}
			}
			if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"mended slow heard"` || children.Load() != c.children {
				t.Errorf("%s: %s with %d children", id, o.Output, children.Load())
			}
		}
	})
}

// Where one id was called twice, each call has the result of the instance that it made.
func TestRewindOfOneIDCalledTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var first, second string
			a := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID("child"))
			b := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID("child")) // there is one already
			if err := b.Await(&second); err != nil {
				return nil, err
			}
			err := a.Await(&first)
			return first + " " + second, err
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "one"})
		p.ends(t, id, forebay.OrchestrationFailed)
		answer := func(text string) {
			t.Helper()
			if err := p.Raise(t.Context(), tenant, "child", "go", json.RawMessage(text)); err != nil {
				t.Fatal(err)
			}
		}
		answer(`"first"`)
		p.ends(t, "child", forebay.OrchestrationCompleted)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.until(t, "child", forebay.OrchestrationRunning)
		answer(`"second"`)
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"first second"` {
			t.Errorf("%s", o.Output)
		}
	})
}

// A refusal in the work item that ended an instance does not answer the call that its rewind
// repeats.
func TestRewindOfACallRefusedAtTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var s string
			if err := activity(ctx, "good", nil, forebay.RetryPolicy{}).Await(nil); err != nil {
				return nil, err
			}
			child := ctx.CallChildWorkflow("waiting", task.WithChildWorkflowInstanceID("child"))
			if works.Load() == 0 {
				return nil, errors.New("it does not wait for the child")
			}
			err := child.Await(&s)
			return s, err
		})
		p := run(t, where, Options{Registry: r})
		p.start(t, StartRequest{Name: "waiting", ID: "child"})
		id := p.start(t, StartRequest{Name: "one"})
		p.ends(t, id, forebay.OrchestrationFailed)
		if err := p.Terminate(t.Context(), tenant, "child", ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, "child", forebay.OrchestrationTerminated)
		works.Store(1)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.until(t, "child", forebay.OrchestrationRunning)
		if err := p.Raise(t.Context(), tenant, "child", "go", json.RawMessage(`"heard"`)); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"heard"` {
			t.Errorf("%s", o.Output)
		}
	})
}

// What a turn had heard is not called again, though what the turn asked for was too large.
func TestRewindOfATurnThatAskedForTooMuch(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
			var first, second string
			if err := activity(ctx, "good", nil, forebay.RetryPolicy{}).Await(&first); err != nil {
				return nil, err
			}
			input := "short"
			if works.Load() == 0 {
				input = strings.Repeat("x", 2<<10)
			}
			err := activity(ctx, "bad", input, forebay.RetryPolicy{}).Await(&second)
			return first + " " + second, err
		})
		p := run(t, where, Options{Registry: r, MaxBytes: 1 << 10})
		id := p.start(t, StartRequest{Name: "one"})
		if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != string(forebay.CodePayloadTooLarge) {
			t.Fatalf("%+v", o.Failure)
		}
		works.Store(1)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		o := p.ends(t, id, forebay.OrchestrationCompleted)
		if string(o.Output) != `"good mended"` || good.Load() != 1 || bad.Load() != 1 {
			t.Errorf("%s after %d and %d calls", o.Output, good.Load(), bad.Load())
		}
	})
}
