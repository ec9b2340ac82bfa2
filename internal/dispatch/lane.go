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

// lane is one pool: as many calls at once as it has slots.
type lane struct {
	d      *Dispatcher
	queue  *jobs.Queue
	retry  bool
	slots  chan struct{}       // free places
	idle   chan *jobs.Delivery // to a goroutine that has none
	budget *retry.Budget       // of the queue's retries
	// fruitless counts deliveries in a row that went back without a call.
	fruitless atomic.Int64
}

// claimBytes bounds the inline inputs that one claim brings into memory.
const claimBytes = 8 << 20

func newLane(d *Dispatcher, q *jobs.Queue, retry bool, budget *retry.Budget) *lane {
	l := &lane{d: d, queue: q, retry: retry, budget: budget, idle: make(chan *jobs.Delivery)}
	places := q.Concurrency
	if retry {
		places = q.Retry.Concurrency
	}
	l.slots = make(chan struct{}, places)
	for range places {
		l.slots <- struct{}{}
	}
	return l
}

// run claims until ctx ends; the calls run under work and are counted in calls.
func (l *lane) run(ctx, work context.Context, calls *sync.WaitGroup) {
	const pause = time.Second // after a failed claim, or when nothing that is claimed can be called
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

// pass claims up to n jobs and starts their calls. Slots that were not used are free again.
func (l *lane) pass(ctx, work context.Context, n int, calls *sync.WaitGroup) error {
	allowed, err := l.admit(ctx, n)
	l.giveSlots(n - allowed)
	if err != nil {
		return err
	}
	deliveries, err := l.d.jobs.Claim(ctx, l.queue, l.retry, allowed, claimBytes)
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

// work carries out one delivery after the other and ends when there is none for a while: a goroutine
// that goes on has the stack already that a call needs.
func (l *lane) work(ctx, work context.Context, d *jobs.Delivery) {
	const patience = 5 * time.Second
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var held atomic.Bool
	free := func() {
		if held.CompareAndSwap(true, false) {
			l.giveSlots(1)
		}
	}
	call := func() error { return l.d.carryOut(work, d, free) }
	for {
		held.Store(true)
		if ctx.Err() != nil {
			// Claimed while the stop came: nothing was called yet.
			l.d.settle(work, d, forebay.TaskResult{}, func(ctx context.Context) error { return l.d.jobs.Return(ctx, d, 0, "") })
		} else {
			// Should anything around the call panic, the delivery's lock ends, and it counts.
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

// admit waits until the retry lane's budget and rate allow at least one start, and returns how many
// of n they allow. The main lane is always allowed.
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

// refund gives back what admit took for starts that found no job.
func (l *lane) refund(n int) {
	if l.retry {
		l.budget.Refund(n)
	}
}

// note tells the retry budget how a call went.
func (l *lane) note(err error) {
	if errors.Is(err, errNotCalled) {
		l.refund(1)
		l.fruitless.Add(1)
		return
	}
	l.fruitless.Store(0)
	l.budget.Ended(l.retry, err == nil)
}

// takeSlots waits for one free slot and takes all others that are free; 0 means ctx ended.
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

// errNotCalled is what carryOut returns when the job went back without a call.
var errNotCalled = &forebay.TaskError{Class: forebay.ClassThrottled, Code: "not_called", Message: "nothing was called"}
