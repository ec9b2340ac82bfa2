// Package dispatch carries jobs out: it claims them, runs their tasks, renews their locks and
// settles the results.
//
// Each queue has two lanes with worker pools of their own: the main lane, and the smaller retry
// lane for failed jobs. So retries never take slots from new work. A lane claims only as many jobs
// as it has free slots. Stopping has two steps. The dispatcher first stops claiming. After a grace
// period it cancels the remaining calls and returns their jobs without a charge.
//
// # Lanes and pools
//
// Each queue has a main lane and a retry lane with pools of their own. A job that fails is not
// retried in place. The attempt is recorded and the message moves to the retry lane with a delay
// (exponential with full jitter, unless the provider named one). The retry lane is small, can be
// rate-limited, and has a budget. Retries that fail are bounded to a share of all calls (20 % by
// default) plus one a second. So an outage does not multiply load. A success earns budget back,
// so the backlog drains at full speed afterwards.
//
// A place in a pool is free again as soon as its call is over; the outcome reaches the disk while
// the next call runs. Large results keep their places once 64 MiB of them wait for blob storage.
// Some jobs cannot be called right now: a deployment is paused, no process
// here knows the task, or the input cannot be read. They go back uncharged. A lane that meets
// nothing else pauses for a second.
package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/deltas"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/retry"
)

// Options makes a Dispatcher.
type Options struct {
	Worker          *jobs.Worker
	Lanes           Lanes
	Logger          *slog.Logger
	MemoryBytes     int64         // large inputs held by running jobs, shared by tenants
	ShutdownTimeout time.Duration // how long a stop lets calls finish
	Deltas          *deltas.Hub   // what running calls write; nil: nobody follows it
}

// Lanes says which lanes of its queues a dispatcher works.
type Lanes int

const (
	AllLanes Lanes = iota
	RetryLanes
	NoLanes
)

// Dispatcher runs the lanes of all queues of one process.
type Dispatcher struct {
	worker   *jobs.Worker
	log      *slog.Logger
	memory   *memory.Pool
	grace    time.Duration
	renewer  *renewer
	lanes    []*lane
	settling context.Context // for settlements: a stop does not end it
	deltas   *deltas.Hub
	unstored atomic.Int64 // bytes of large results that are not on disk yet
}

// New makes a dispatcher for the configured queues of the worker.
func New(opts Options) *Dispatcher {
	d := &Dispatcher{
		worker: opts.Worker, log: opts.Logger, grace: opts.ShutdownTimeout,
		memory: memory.New(opts.MemoryBytes), deltas: opts.Deltas,
	}
	d.renewer = newRenewer(opts.Worker, opts.Logger)
	for _, q := range opts.Worker.Configured() {
		budget := retry.NewBudget(q.Retry)
		if opts.Lanes == AllLanes || q.Own {
			d.lanes = append(d.lanes, newLane(d, q, false, budget))
		}
		if opts.Lanes != NoLanes || q.Own {
			q.PaceRetries(func() float64 { return budget.Pace(time.Now()) })
			d.lanes = append(d.lanes, newLane(d, q, true, budget))
		}
	}
	return d
}

// Queues tells what the process has for the jobs of each queue, and what of that is in use.
func (d *Dispatcher) Queues() []forebay.ProcessQueue {
	of, list := map[string]int{}, []forebay.ProcessQueue{}
	for _, l := range d.lanes {
		i, known := of[l.queue.Name]
		if !known {
			i = len(list)
			of[l.queue.Name] = i
			list = append(list, forebay.ProcessQueue{Queue: l.queue.Name})
		}
		if q := &list[i]; l.retry {
			q.RetryConcurrency, q.RetryCalls = cap(l.slots), int(l.calling.Load())
		} else {
			q.Concurrency, q.Calls = cap(l.slots), int(l.calling.Load())
		}
	}
	slices.SortFunc(list, func(a, b forebay.ProcessQueue) int { return strings.Compare(a.Queue, b.Queue) })
	return list
}

// Run claims and carries out jobs until ctx ends. Then it lets running calls finish within the
// grace period and returns the other jobs to their queues. It returns when all its goroutines have
// ended.
func (d *Dispatcher) Run(ctx context.Context) {
	d.settling = context.WithoutCancel(ctx)
	work, cancel := context.WithCancelCause(d.settling)
	defer cancel(nil)
	var claiming, calls, renewing sync.WaitGroup
	renewing.Go(func() { d.renewer.run(work) })
	for _, l := range d.lanes {
		claiming.Go(func() { l.run(ctx, work, &calls) })
	}
	claiming.Wait()
	if n := d.renewer.holding(); n > 0 {
		d.log.Info("stopping: calls in flight may finish", slog.Int("calls", n), slog.Duration("within", d.grace))
	}

	finished := make(chan struct{})
	go func() {
		calls.Wait()
		close(finished)
	}()
	timer := time.NewTimer(d.grace)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		d.log.Info("cutting off the calls that still run; their jobs go back to the queue")
		cancel(jobs.ErrStopping)
		d.await(finished)
	}
	cancel(jobs.ErrStopping)
	renewing.Wait()
}

// await waits until the cancelled calls have settled. It leaves a function behind that ignores its
// context.
func (d *Dispatcher) await(finished <-chan struct{}) {
	const patience = 15 * time.Second
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		d.log.Error("calls ignore the stop; the next start runs their jobs again")
	}
}
