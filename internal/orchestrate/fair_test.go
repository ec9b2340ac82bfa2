package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// blocking registers "many", which calls as many activities as its input says. Each activity
// reports that it has begun, and ends when it is told to.
func blocking(t *testing.T, again forebay.RetryPolicy) (r *Registry, begun, end chan struct{}) {
	r, begun, end = NewRegistry(), make(chan struct{}, 100), make(chan struct{})
	add(t, r, "block", func(ctx context.Context, _ int) (any, error) {
		begun <- struct{}{}
		select {
		case <-end:
			return nil, errors.New("not now")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add(t, r, "quick", func(context.Context, int) (any, error) { return "done", nil })
	addOrchestrator(t, r, "many", func(ctx *task.WorkflowContext) (any, error) {
		var n int
		if err := ctx.GetInput(&n); err != nil {
			return nil, err
		}
		var tasks []task.Task
		for range n {
			tasks = append(tasks, activity(ctx, "block", 0, again))
		}
		for _, one := range tasks {
			if err := one.Await(nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
		return nil, activity(ctx, "quick", 0, forebay.RetryPolicy{}).Await(nil)
	})
	return r, begun, end
}

// begins waits until so many activities have begun. It waits less than the writer's interval for
// missed notifications.
func begins(t *testing.T, begun <-chan struct{}, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-begun:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d activities have begun, not %d", i, n)
		}
	}
}

func (p *process) startFor(t *testing.T, tenant, name, input string) string {
	t.Helper()
	id, err := p.Start(t.Context(), tenant, StartRequest{Name: name, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A tenant whose activities do not end leaves slots for another tenant, and gets more as some
// end. A tenant alone gets all slots.
func TestTenantsShareActivities(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		const places = 4
		r, begun, end := blocking(t, forebay.RetryPolicy{MaxAttempts: 2, First: time.Hour, Max: time.Hour})
		p := run(t, where, Options{Registry: r, ConcurrentActivities: places, Grace: time.Millisecond, Lock: time.Hour}) // no renewal has anything looked at anew
		quick := func() {
			t.Helper()
			o, err := p.Wait(t.Context(), "quiet", p.startFor(t, "quiet", "one", "0"), time.Minute)
			if err != nil || o.Status != forebay.OrchestrationCompleted {
				t.Fatal(o.Status, err)
			}
		}
		p.startFor(t, "loud", "many", "4")
		begins(t, begun, places)
		for range places {
			end <- struct{}{}
		}
		quick()
		p.startFor(t, "loud", "many", "8")
		begins(t, begun, 3)
		quick()
		for range 5 { // of which nobody hears but the server: they are tried again in an hour
			end <- struct{}{}
			begins(t, begun, 1)
		}
		quick()
	})
}

// A tenant whose turns do not end, as with a worker that answers nothing, leaves slots for the
// turns of another tenant, and gets more as some end. A tenant alone gets all slots.
func TestTenantsShareTurns(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		const places = 4
		begun, end := make(chan struct{}, 100), make(chan struct{})
		r := NewRegistry()
		addOrchestrator(t, r, "stuck", func(*task.WorkflowContext) (any, error) {
			begun <- struct{}{}
			<-end
			return nil, nil
		})
		addOrchestrator(t, r, "one", func(*task.WorkflowContext) (any, error) { return nil, nil })
		p := run(t, where, Options{Registry: r, ConcurrentOrchestrations: places, Grace: time.Millisecond, Lock: time.Hour}) // no renewal has anything looked at anew
		t.Cleanup(func() { close(end) })
		quick := func() {
			t.Helper()
			o, err := p.Wait(t.Context(), "quiet", p.startFor(t, "quiet", "one", "0"), 20*time.Second)
			if err != nil || o.Status != forebay.OrchestrationCompleted {
				t.Fatal(o.Status, err)
			}
		}
		stuck := func(n int) {
			for range n {
				p.startFor(t, "loud", "stuck", "0")
			}
		}
		stuck(places)
		begins(t, begun, places)
		for range places {
			end <- struct{}{}
		}
		quick()
		stuck(2 * places)
		begins(t, begun, 3)
		quick()
		for range 5 {
			end <- struct{}{}
			begins(t, begun, 1)
		}
		quick()
	})
}

// refusing refuses all jobs.
type refusing struct{ Jobs }

func (refusing) Submit(context.Context, int64, forebay.SubmitRequest, *ActivityItem) error {
	return forebay.Invalid("task", "is not known")
}

// An activity that is a job needs no slot.
func TestJobsNeedNoSlot(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, begun, _ := blocking(t, forebay.RetryPolicy{})
		addOrchestrator(t, r, "task", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, TaskActivity, TaskRequest{Task: "none"}, forebay.RetryPolicy{}).Await(nil)
		})
		p := run(t, where, Options{Registry: r, ConcurrentActivities: 1, Grace: time.Millisecond, Jobs: refusing{}})
		p.start(t, StartRequest{Name: "many", Input: json.RawMessage("2")})
		begins(t, begun, 1)
		p.ends(t, p.start(t, StartRequest{Name: "task"}), forebay.OrchestrationFailed)
	})
}

// payers records whose budget pays for each job, and refuses the job.
type payers struct {
	refusing
	keys chan string
}

func (p payers) Submit(ctx context.Context, tenant int64, req forebay.SubmitRequest, a *ActivityItem) error {
	p.keys <- a.KeyID
	return p.refusing.Submit(ctx, tenant, req, a)
}

// The budget of the API key that started an instance pays for its jobs and for those of its
// sub-orchestrations.
func TestWhoPaysForTasks(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, TaskActivity, TaskRequest{Task: "none"}, forebay.RetryPolicy{}).Await(nil)
		})
		addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("child").Await(nil)
		})
		keys := make(chan string, 10)
		p := run(t, where, Options{Registry: r, Jobs: payers{keys: keys}})
		for name, key := range map[string]string{"child": "key_a", "parent": "key_b"} {
			id, err := p.Start(forebay.WithBudgetKey(t.Context(), key), tenant, StartRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			p.ends(t, id, forebay.OrchestrationFailed)
			if got := <-keys; got != key {
				t.Errorf("%q pays for the job of the %s, not %s", got, name, key)
			}
		}
	})
}
