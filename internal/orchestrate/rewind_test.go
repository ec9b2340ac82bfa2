package orchestrate

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// What failed may have been asked for before what succeeded.
func TestRewindOfAnEarlierActivity(t *testing.T) {
	onBoth(t, func(t *testing.T, where store.Options) {
		r := NewRegistry()
		var works, good, bad atomic.Int32
		add(t, r, "good", func(context.Context, any) (any, error) { good.Add(1); return "good", nil })
		add(t, r, "bad", func(context.Context, any) (any, error) {
			bad.Add(1)
			if works.Load() == 0 {
				return nil, errors.New("not yet")
			}
			return "mended", nil
		})
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
