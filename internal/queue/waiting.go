package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay/internal/db"
)

// Waiter waits in the writer for something that a transaction finds. It belongs to its caller
// while it waits, and to the writer while it is served.
type Waiter struct {
	State  atomic.Int32
	Err    error
	answer chan struct{}
}

// NewWaiter returns a waiter that is not served yet.
func NewWaiter() Waiter { return Waiter{answer: make(chan struct{})} }

const (
	ClaimWaiting int32 = iota
	claimServing
	claimGone
)

// Await hands a visitor to the writer and waits for its answer.
func Await(ctx context.Context, w *db.Writer, v db.Visitor, its *Waiter) error {
	select {
	case w.Visits <- v:
	case <-w.Stopped:
		return db.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-its.answer:
		return its.Err
	case <-w.Stopped:
		select {
		case <-its.answer:
			return its.Err
		default:
			return db.ErrClosed
		}
	case <-ctx.Done():
		return its.abandon(ctx.Err())
	}
}

// abandon gives up waiting, unless the writer serves the waiter right now: what it takes must not
// be lost.
func (c *Waiter) abandon(why error) error {
	for !c.State.CompareAndSwap(ClaimWaiting, claimGone) {
		select {
		case <-c.answer:
			return c.Err
		case <-time.After(time.Millisecond): // its transaction may fail, and it waits again
		}
	}
	return why
}

func (c *Waiter) Waits() bool { return c.State.Load() == ClaimWaiting }
func (c *Waiter) Gone() bool  { return c.State.Load() == claimGone }

// Begin reports whether the waiter still waits, and if so begins to serve it.
func (c *Waiter) Begin() bool { return c.State.CompareAndSwap(ClaimWaiting, claimServing) }

func (c *Waiter) Deliver() { close(c.answer) }

func (c *Waiter) Refuse(err error) {
	if c.Begin() {
		c.Err = err
		c.Deliver()
	}
}

// claimant waits for a subqueue.
type claimant interface {
	comparable
	Waits() bool
	Gone() bool
	Refuse(error)
}

// Waiting has those who wait for subqueues, and when each subqueue is to be scanned.
type Waiting[C claimant] struct {
	Waiters map[Subqueue][]C   // oldest first
	DueAt   map[Subqueue]int64 // when to scan; absent: no message will become ready
	// seen has the subqueues that somebody has waited for. The first to wait scans anyway, so
	// DueAt is not kept before.
	seen map[Subqueue]bool
}

// NewWaiting returns a Waiting without waiters.
func NewWaiting[C claimant]() Waiting[C] {
	return Waiting[C]{Waiters: map[Subqueue][]C{}, DueAt: map[Subqueue]int64{}, seen: map[Subqueue]bool{}}
}

// Add lets c wait for a subqueue, before those for which after is true.
func (w *Waiting[C]) Add(subqueue Subqueue, c C, after func(C) bool) {
	list := w.Waiters[subqueue]
	if len(list) == cap(list) { // waiters that time out at an empty subqueue would pile up
		list = slices.DeleteFunc(list, C.Gone)
	}
	if !w.seen[subqueue] { // DueAt was not kept
		w.DueAt[subqueue] = 0
		if subqueue.IsOfQueue() {
			w.seen[subqueue] = true
		}
	}
	if after != nil {
		if i := slices.IndexFunc(list, after); i >= 0 {
			w.Waiters[subqueue] = slices.Insert(list, i, c)
			w.DueAt[subqueue] = 0
			return
		}
	}
	w.Waiters[subqueue] = append(list, c)
}

// Leave forgets the waiters of a subqueue.
func (w *Waiting[C]) Leave(subqueue Subqueue) {
	delete(w.Waiters, subqueue)
	if !subqueue.IsOfQueue() {
		delete(w.DueAt, subqueue)
	}
}

// RemoveFirst forgets the first n waiters of a subqueue, once they were served for good.
func (w *Waiting[C]) RemoveFirst(subqueue Subqueue, n int) {
	list, ok := w.Waiters[subqueue]
	if !ok {
		return // its queue was dropped in the same transaction
	}
	clear(list[:n]) // the array would keep what they got
	if w.Waiters[subqueue] = list[n:]; len(w.Waiters[subqueue]) == 0 {
		w.Leave(subqueue)
	}
}

// Drop refuses the waiters of a subqueue and forgets it.
func (w *Waiting[C]) Drop(subqueue Subqueue, err error) {
	for _, c := range w.Waiters[subqueue] {
		c.Refuse(err)
	}
	w.Leave(subqueue)
	delete(w.DueAt, subqueue)
	delete(w.seen, subqueue)
}

// Refuse answers all waiters with an error.
func (w *Waiting[C]) Refuse(err error) {
	for subqueue, list := range w.Waiters {
		for _, c := range list {
			c.Refuse(err)
		}
		w.Leave(subqueue)
	}
}

// HasWaiters reports whether somebody still waits for a subqueue; if not, it forgets the others.
func (w *Waiting[C]) HasWaiters(subqueue Subqueue) bool {
	if slices.ContainsFunc(w.Waiters[subqueue], C.Waits) {
		return true
	}
	w.Leave(subqueue)
	return false
}

// Tracks reports whether DueAt is kept for a subqueue.
func (w *Waiting[C]) Tracks(subqueue Subqueue) bool {
	return w.seen[subqueue] || len(w.Waiters[subqueue]) > 0
}

// ScanAt notes that a subqueue is to be scanned at that time.
func (w *Waiting[C]) ScanAt(subqueue Subqueue, at int64) {
	if due, ok := w.DueAt[subqueue]; !ok || at < due {
		w.DueAt[subqueue] = at
	}
}

// Due reports whether a subqueue is to be scanned now.
func (w *Waiting[C]) Due(subqueue Subqueue, now int64) bool {
	at, ok := w.DueAt[subqueue]
	return ok && at <= now
}

// Queues returns the queues that somebody has waited for, without those that were dropped.
func (w *Waiting[C]) Queues() map[int64]bool {
	queues := map[int64]bool{}
	for subqueue := range w.seen {
		queues[subqueue.Queue()] = true
	}
	return queues
}

// AllDue lets all subqueues be scanned at that time.
func (w *Waiting[C]) AllDue(at int64) {
	for subqueue := range w.Waiters {
		w.DueAt[subqueue] = at
	}
	for subqueue := range w.seen { // for later waiters too
		w.DueAt[subqueue] = at
	}
}

// NextDue returns the earliest time at which a subqueue with waiters is to be scanned.
func (w *Waiting[C]) NextDue(paused map[int64]bool) int64 {
	next := int64(db.Never)
	for subqueue, list := range w.Waiters {
		if due, ok := w.DueAt[subqueue]; ok && len(list) > 0 && !paused[subqueue.Queue()] {
			next = min(next, due)
		}
	}
	return next
}
