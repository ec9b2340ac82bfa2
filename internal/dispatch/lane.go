package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/sleep"
)

// lane is one worker pool. The number of its slots limits its concurrent calls.
type lane struct {
	d      *Dispatcher
	queue  *jobs.Queue
	retry  bool
	slots  chan struct{}       // free slots
	idle   chan *jobs.Delivery // hands a delivery to an idle goroutine
	budget *retry.Budget       // budget of the queue's retries
	// fruitless counts consecutive deliveries that were returned without a call.
	fruitless atomic.Int64
	calling   atomic.Int64 // deliveries that take a slot
}

// claimBytes bounds the bytes of inline inputs that one claim loads.
const claimBytes = 8 << 20

func newLane(d *Dispatcher, q *jobs.Queue, retry bool, budget *retry.Budget) *lane {
	l := &lane{d: d, queue: q, retry: retry, budget: budget, idle: make(chan *jobs.Delivery)}
	slots := q.Concurrency
	if retry {
		slots = q.Retry.Concurrency
	}
	l.slots = make(chan struct{}, slots)
	for range slots {
		l.slots <- struct{}{}
	}
	return l
}

// run claims until ctx ends. The calls run under work and are counted in calls.
func (l *lane) run(ctx, work context.Context, calls *sync.WaitGroup) {
	// The pause after a failed claim, or if no claimed job can be called.
	const pause = time.Second
	for ctx.Err() == nil {
		if l.fruitless.Load() >= int64(cap(l.slots)) {
			_ = sleep.For(ctx, pause)
			l.fruitless.Store(0)
		}
		n := l.takeSlots(ctx)
		if n == 0 {
			return
		}
		if err := l.pass(ctx, work, n, calls); err != nil && ctx.Err() == nil {
			l.d.log.Warn("cannot claim jobs", slog.String("queue", l.queue.Name), slog.Any("error", err))
			_ = sleep.For(ctx, pause)
		}
	}
}

// pass claims up to n jobs and starts their calls. It frees the slots that it did not use.
func (l *lane) pass(ctx, work context.Context, n int, calls *sync.WaitGroup) error {
	allowed, err := l.admit(ctx, n)
	l.giveSlots(n - allowed)
	if err != nil {
		return err
	}
	deliveries, err := l.d.worker.Claim(ctx, l.queue, l.retry, allowed, claimBytes)
	l.giveSlots(allowed - len(deliveries))
	l.refund(allowed - len(deliveries))
	for _, d := range deliveries {
		select {
		case l.idle <- d:
		default:
			calls.Go(func() { l.work(ctx, work, d) })
		}
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// work carries out deliveries one after the other, and ends when none comes for a while. A
// goroutine that is reused already has the large stack that a call needs.
func (l *lane) work(ctx, work context.Context, d *jobs.Delivery) {
	const patience = 5 * time.Second
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var held atomic.Bool
	free := func() {
		if held.CompareAndSwap(true, false) {
			l.calling.Add(-1)
			l.giveSlots(1)
		}
	}
	call := func() error { return l.d.carryOut(work, d, free) }
	for {
		held.Store(true)
		l.calling.Add(1)
		if ctx.Err() != nil {
			// The stop came during the claim: nothing has been called yet.
			l.d.settle(work, work, d, forebay.TaskResult{}, func(ctx context.Context) error { return l.d.worker.Return(ctx, d, 0, "") })
		} else {
			// After a panic around the call, the lock of the delivery expires and the delivery
			// counts.
			l.note(panics.Run(l.d.log, "the delivery of a job", call))
		}
		free()
		timer.Reset(patience)
		select {
		case d = <-l.idle:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// admit waits until the budget and the rate of the retry lane allow at least one start. It returns
// how many of n starts they allow. The main lane has no such limit.
func (l *lane) admit(ctx context.Context, n int) (int, error) {
	if !l.retry {
		return n, nil
	}
	for {
		allowed, wait := l.budget.Take(time.Now(), n)
		if allowed > 0 {
			return allowed, nil
		}
		if sleep.For(ctx, wait) != nil {
			return 0, ctx.Err()
		}
	}
}

// refund returns what admit took for starts that found no job.
func (l *lane) refund(n int) {
	if l.retry {
		l.budget.Refund(n)
	}
}

// note reports the outcome of a call to the retry budget.
func (l *lane) note(err error) {
	switch {
	case errors.Is(err, errNotCalled):
		l.refund(1)
		l.fruitless.Add(1)
		return
	case errors.Is(err, errRefused): // it is over, so it does not come back at once
		l.refund(1)
		return
	}
	l.fruitless.Store(0)
	l.budget.Ended(l.retry, err == nil)
}

// takeSlots waits for one free slot and takes all other free ones. It returns 0 if ctx ended.
func (l *lane) takeSlots(ctx context.Context) int {
	select {
	case <-l.slots:
	case <-ctx.Done():
		return 0
	}
	n := 1
	for {
		select {
		case <-l.slots:
			n++
		default:
			return n
		}
	}
}

func (l *lane) giveSlots(n int) {
	for range n {
		l.slots <- struct{}{}
	}
}

// errNotCalled means that the job was returned without a call, and errRefused that it has failed
// without one.
var (
	errNotCalled = &forebay.TaskError{Class: forebay.ClassThrottled, Code: "not_called", Message: "nothing was called"}
	errRefused   = &forebay.TaskError{Class: forebay.ClassPermanent, Code: "refused", Message: "nothing was called"}
)
