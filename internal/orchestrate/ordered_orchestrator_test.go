package orchestrate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// An ordered orchestrator takes up the task that ends first, does the same in each replay, and
// fails with its error's type.
func TestOrdered(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		gates := map[int]chan struct{}{0: make(chan struct{}), 1: make(chan struct{}), 2: make(chan struct{})}
		taken := make(chan int32, 100)
		add(t, r, "gate", func(ctx context.Context, n int) (any, error) {
			select {
			case <-gates[n]:
				return n, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		add(t, r, "after", func(_ context.Context, n int) (any, error) { taken <- int32(n); return n, nil })
		err := r.AddOrdered("ordered", func(ctx *task.WorkflowContext, ended []Ended, _ time.Time) (any, error) {
			var tasks []task.Task
			for n := range 3 {
				tasks = append(tasks, activity(ctx, "gate", n, forebay.RetryPolicy{}))
			}
			var order []int32
			for _, e := range ended {
				if err := tasks[e.ID].Await(nil); err != nil {
					return nil, err
				}
				if order = append(order, e.ID); e.ID < 3 {
					tasks = append(tasks, activity(ctx, "after", e.ID, forebay.RetryPolicy{}))
				}
			}
			if len(order) < 6 {
				for n, t := range tasks {
					if !slices.Contains(order, int32(n)) {
						return nil, t.Await(nil)
					}
				}
			}
			return nil, typedError(fmt.Sprint(order))
		})
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, where, Options{Registry: r})
		if _, err := p.Start(t.Context(), tenant, StartRequest{Name: "ordered", Version: "2"}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("another version: %v", err)
		}
		id := p.start(t, StartRequest{Name: "ordered"})
		for _, n := range []int{2, 0, 1} {
			close(gates[n])
			if got := <-taken; got != int32(n) {
				t.Errorf("%d is taken up after %d", got, n)
			}
		}
		o := p.ends(t, id, forebay.OrchestrationFailed)
		if o.Failure.Type != "typed" || len(o.Failure.Message) != len("[2 3 0 4 1 5]") {
			t.Errorf("%+v", o.Failure)
		}
	})
}

type typedError string

func (e typedError) Error() string       { return string(e) }
func (e typedError) FailureType() string { return "typed" }
