package orchestrate

import (
	"context"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
)

// cancelling stores jobs that nobody carries out, and tells which are cancelled.
type cancelling struct {
	Jobs
	stores            *stores
	stored, cancelled chan string
}

func (c cancelling) Submit(ctx context.Context, tenant int64, _ forebay.SubmitRequest, a *ActivityItem) error {
	queue, err := c.stores.Queues.EnsureQueue(ctx, "q")
	if err != nil {
		return err
	}
	id := "job_of_" + a.ID
	made, err := c.stores.Jobs.Submit(ctx, []jobs.NewJob{{ID: id, Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 1,
		Input: []byte("{}"), InputSize: 2, CorrelationID: jobs.CallerCorrelation(a.ID), Caller: a}})
	if err == nil {
		err = made[0].Err
	}
	if err == nil {
		c.stored <- id
	}
	return err
}

func (c cancelling) Cancel(_ context.Context, _ int64, job string) error {
	c.cancelled <- job
	return nil
}

// Whoever purges an instance by force has its jobs cancelled, as with its termination: they cost
// money, and nobody gets their results.
func TestPurgeByForceCancelsJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "task", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, TaskActivity, TaskRequest{Task: "echo"}, forebay.RetryPolicy{}).Await(nil)
		})
		its := cancelling{stored: make(chan string, 1), cancelled: make(chan string, 1)}
		p := runWith(t, where, func(s *stores) Options {
			its.stores = s
			return Options{Registry: r, Jobs: its}
		})
		id := p.start(t, StartRequest{Name: "task"})
		job := <-its.stored
		mustDo(t, p.PurgeByForce(t.Context(), tenant, id, true))
		select {
		case got := <-its.cancelled:
			if got != job {
				t.Errorf("%s is cancelled, not %s", got, job)
			}
		default:
			t.Error("the job goes on")
		}
	})
}

func TestPurgeExpired(t *testing.T) {
	r := NewRegistry()
	addOrchestrator(t, r, "waiting", waiting)
	addOrchestrator(t, r, "nothing", func(*task.WorkflowContext) (any, error) { return nil, nil })
	inBubble(t, func(t *testing.T, p *process) {
		p.start(t, StartRequest{Name: "waiting", ID: "open"})
		for range 450 {
			p.start(t, StartRequest{Name: "nothing"})
		}
		last := p.start(t, StartRequest{Name: "nothing", ID: "old"})
		p.ends(t, last, forebay.OrchestrationCompleted)
		<-time.After(2 * time.Hour)
		p.ends(t, p.start(t, StartRequest{Name: "nothing", ID: "young"}), forebay.OrchestrationCompleted)
		purge := func(keep time.Duration, want int) {
			t.Helper()
			if n, err := p.PurgeExpired(context.Background(), keep, time.Hour); err != nil || n != want {
				t.Errorf("purged %d, not %d: %v", n, want, err)
			}
		}
		purge(3*time.Hour, 0)
		purge(time.Hour, 451) // what is kept for less is purged at once
		purge(time.Hour, 0)   // this hour's turn was taken
		for _, id := range []string{"open", "young"} {
			if _, err := p.Get(t.Context(), tenant, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})(r, Options{})
}
