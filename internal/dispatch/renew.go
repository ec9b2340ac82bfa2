package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/jobs"
)

// renewer renews the locks of all running jobs of a process. It works in batches, with one
// transaction per queue and round. It cancels a call whose lock is lost.
type renewer struct {
	worker   *jobs.Worker
	log      *slog.Logger
	mu       sync.Mutex
	held     map[*jobs.Delivery]*holding
	wake     chan struct{}
	renewing sync.WaitGroup
}

type holding struct {
	cancel context.CancelCauseFunc
	due    time.Time
	until  time.Time // when the lock expires, by this process's clock
}

func newRenewer(w *jobs.Worker, log *slog.Logger) *renewer {
	return &renewer{worker: w, log: log, held: map[*jobs.Delivery]*holding{}, wake: make(chan struct{}, 1)}
}

// A lock is renewed after a third of its duration, so that two rounds can fail before it is lost.
func renewAfter(q *jobs.Queue) time.Duration { return q.LockDuration / 3 }

// hold renews the delivery's lock until it is released.
func (r *renewer) hold(d *jobs.Delivery, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	r.held[d] = &holding{cancel: cancel, due: d.Received.Add(renewAfter(d.Queue)), until: d.Received.Add(d.Queue.LockDuration)}
	first := len(r.held) == 1
	r.mu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *renewer) release(d *jobs.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, d)
}

// holding returns the number of deliveries whose locks are renewed.
func (r *renewer) holding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// run renews until ctx ends. It sleeps while there are no deliveries.
func (r *renewer) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer r.renewing.Wait()
	for {
		timer.Reset(r.pass(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// pass renews the locks that are due and returns the time until the next one is due.
func (r *renewer) pass(ctx context.Context, now time.Time) time.Duration {
	const idle = time.Hour
	due, next := map[*jobs.Queue][]*jobs.Delivery{}, now.Add(idle)
	r.mu.Lock()
	for d, h := range r.held {
		if !h.due.After(now) {
			due[d.Queue] = append(due[d.Queue], d)
			h.due = now.Add(renewAfter(d.Queue))
		}
		if h.due.Before(next) {
			next = h.due
		}
	}
	r.mu.Unlock()
	for q, deliveries := range due {
		r.renewing.Go(func() { r.renew(ctx, q, deliveries) })
	}
	// A new delivery may have a shorter lock than the others, so the sleep is never longer than
	// the shortest lock allows.
	return max(10*time.Millisecond, min(next.Sub(now), r.shortest()))
}

// shortest returns the shortest time after which a new lock may need renewal.
func (r *renewer) shortest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		return time.Hour
	}
	shortest := time.Hour
	for _, q := range r.worker.Configured() {
		shortest = min(shortest, renewAfter(q))
	}
	return shortest
}

func (r *renewer) renew(ctx context.Context, q *jobs.Queue, deliveries []*jobs.Delivery) {
	until := time.Now().Add(q.LockDuration)
	r.mu.Lock()
	for _, d := range deliveries {
		if h, ok := r.held[d]; ok && r.worker.Shared && h.until.Before(until) {
			until = h.until
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	began := time.Now()
	held, err := r.worker.Renew(ctx, q, deliveries)
	if err != nil {
		r.log.Warn("cannot renew locks", slog.String("queue", q.Name), slog.Int("locks", len(deliveries)), slog.Any("error", err))
		r.soon(deliveries)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, d := range deliveries {
		h, ok := r.held[d]
		switch {
		case ok && held[i]:
			h.until = began.Add(q.LockDuration)
		case ok:
			h.cancel(jobs.ErrLockLost)
			delete(r.held, d)
		}
	}
}

// soon makes the next round retry these. If one process uses the database and cannot write, no
// other can take its jobs, so its calls continue. If several do, another process can take the jobs
// when their locks expire.
func (r *renewer) soon(deliveries []*jobs.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deliveries {
		h, ok := r.held[d]
		switch now := time.Now(); {
		case ok && r.worker.Shared && !now.Before(h.until):
			h.cancel(jobs.ErrLockLost)
			delete(r.held, d)
		case ok:
			h.due = now.Add(renewAfter(d.Queue) / 4)
		}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
