package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/jobs"
)

// renewer keeps the locks of all running jobs of a process for as long as their calls take. It works
// in batches, one transaction per queue and round, and cancels a call whose lock is lost.
type renewer struct {
	jobs     *jobs.Service
	log      *slog.Logger
	mu       sync.Mutex
	held     map[*jobs.Delivery]*holding
	wake     chan struct{}
	renewing sync.WaitGroup
}

type holding struct {
	cancel context.CancelCauseFunc
	due    time.Time
	until  time.Time // when the lock ends unless it is renewed, by this process's clock
}

func newRenewer(svc *jobs.Service, log *slog.Logger) *renewer {
	return &renewer{jobs: svc, log: log, held: map[*jobs.Delivery]*holding{}, wake: make(chan struct{}, 1)}
}

// A lock is renewed after a third of its time, so that two rounds may fail before it is lost.
func renewAfter(q *jobs.Queue) time.Duration { return q.LockDuration / 3 }

// hold renews the delivery's lock until the returned function is called.
func (r *renewer) hold(d *jobs.Delivery, cancel context.CancelCauseFunc) (release func()) {
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
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.held, d)
	}
}

// holding returns how many deliveries are held right now.
func (r *renewer) holding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// run renews until ctx ends. It sleeps while nothing is held.
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

// pass renews what is due and returns how long until the next lock is.
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
	// A queue may have shorter locks than all held now: look again when its first could be due.
	return max(10*time.Millisecond, min(next.Sub(now), r.shortest()))
}

// shortest is the earliest that a lock taken from now on could need renewal.
func (r *renewer) shortest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		return time.Hour
	}
	shortest := time.Hour
	for _, q := range r.jobs.Configured() {
		shortest = min(shortest, renewAfter(q))
	}
	return shortest
}

func (r *renewer) renew(ctx context.Context, q *jobs.Queue, deliveries []*jobs.Delivery) {
	until := time.Now().Add(q.LockDuration)
	r.mu.Lock()
	for _, d := range deliveries {
		if h, ok := r.held[d]; ok && r.jobs.Shared() && h.until.Before(until) {
			until = h.until
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	began := time.Now()
	held, err := r.jobs.Renew(ctx, q, deliveries)
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

// soon makes the next round try these again. While the only process of a database cannot write,
// nobody else can take its jobs, so that their calls go on; others could be given them, once the locks
// have ended.
func (r *renewer) soon(deliveries []*jobs.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deliveries {
		h, ok := r.held[d]
		switch now := time.Now(); {
		case ok && r.jobs.Shared() && !now.Before(h.until):
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
