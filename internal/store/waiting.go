package store

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// waiter is somebody who waits in the writer for something that a transaction finds. It belongs to its caller
// while it waits, to the writer while it is served.
type waiter struct {
	state  atomic.Int32
	err    error
	answer chan struct{}
}

func newWaiter() waiter { return waiter{answer: make(chan struct{})} }

const (
	claimWaiting int32 = iota
	claimServing
	claimGone
)

// await hands a visitor to the writer and waits for its answer.
func await(ctx context.Context, w *writer, v visitor, its *waiter) error {
	select {
	case w.visits <- v:
	case <-w.stopped:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-its.answer:
		return its.err
	case <-w.stopped:
		select {
		case <-its.answer:
			return its.err
		default:
			return errClosed
		}
	case <-ctx.Done():
		return its.abandon(ctx.Err())
	}
}

// abandon gives up waiting, unless the writer is serving the claim right now: what it takes must
// not be lost.
func (c *waiter) abandon(why error) error {
	for !c.state.CompareAndSwap(claimWaiting, claimGone) {
		select {
		case <-c.answer:
			return c.err
		case <-time.After(time.Millisecond): // its transaction may fail, which puts it back to waiting
		}
	}
	return why
}

func (c *waiter) waits() bool { return c.state.Load() == claimWaiting }
func (c *waiter) gone() bool  { return c.state.Load() == claimGone }

// begin reports whether the claim still waits, and if so begins to serve it.
func (c *waiter) begin() bool { return c.state.CompareAndSwap(claimWaiting, claimServing) }

func (c *waiter) deliver() { close(c.answer) }

func (c *waiter) refuse(err error) {
	if c.begin() {
		c.err = err
		c.deliver()
	}
}

// parkable is a claim that waits for a subqueue.
type parkable interface {
	comparable
	waits() bool
	gone() bool
	refuse(error)
}

// waiting are those who wait for subqueues, and when each subqueue is worth a look.
type waiting[C parkable] struct {
	parked map[Subqueue][]C   // oldest first
	dueAt  map[Subqueue]int64 // when a message of it may become ready; absent: none will
	// seen are the subqueues that somebody has waited for. Not before that it matters when one is worth a look,
	// for the first to come looks anyway.
	seen map[Subqueue]bool
}

func newWaiting[C parkable]() waiting[C] {
	return waiting[C]{parked: map[Subqueue][]C{}, dueAt: map[Subqueue]int64{}, seen: map[Subqueue]bool{}}
}

// park has somebody wait: before those of whom after says so.
func (w *waiting[C]) park(subqueue Subqueue, c C, after func(C) bool) {
	list := w.parked[subqueue]
	if len(list) == cap(list) { // who waits in vain comes and goes for as long as the subqueue is empty
		list = slices.DeleteFunc(list, C.gone)
	}
	if !w.seen[subqueue] { // what is ready was not noted
		w.dueAt[subqueue] = 0
		if subqueue.lasts() {
			w.seen[subqueue] = true
		}
	}
	if after != nil {
		if place := slices.IndexFunc(list, after); place >= 0 {
			w.parked[subqueue] = slices.Insert(list, place, c)
			w.dueAt[subqueue] = 0
			return
		}
	}
	w.parked[subqueue] = append(list, c)
}

// leave forgets who waited for a subqueue.
func (w *waiting[C]) leave(subqueue Subqueue) {
	delete(w.parked, subqueue)
	if !subqueue.lasts() {
		delete(w.dueAt, subqueue)
	}
}

// unpark forgets the first n who waited for a subqueue, once they were served for good.
func (w *waiting[C]) unpark(subqueue Subqueue, n int) {
	list, ok := w.parked[subqueue]
	if !ok {
		return // its queue was dropped in the same transaction
	}
	if w.parked[subqueue] = list[n:]; len(w.parked[subqueue]) == 0 {
		w.leave(subqueue)
	}
}

// drop refuses those who wait for a subqueue and forgets it.
func (w *waiting[C]) drop(subqueue Subqueue, err error) {
	for _, c := range w.parked[subqueue] {
		c.refuse(err)
	}
	w.leave(subqueue)
	delete(w.dueAt, subqueue)
	delete(w.seen, subqueue)
}

// refuse answers all with an error.
func (w *waiting[C]) refuse(err error) {
	for subqueue, list := range w.parked {
		for _, c := range list {
			c.refuse(err)
		}
		w.leave(subqueue)
	}
}

// anybody reports whether somebody still waits for a subqueue; else it forgets who did.
func (w *waiting[C]) anybody(subqueue Subqueue) bool {
	if slices.ContainsFunc(w.parked[subqueue], C.waits) {
		return true
	}
	w.leave(subqueue)
	return false
}

// heeds reports whether it matters when a subqueue is worth a look.
func (w *waiting[C]) heeds(subqueue Subqueue) bool {
	return w.seen[subqueue] || len(w.parked[subqueue]) > 0
}

// lookBy notes that a subqueue is worth another look at that time.
func (w *waiting[C]) lookBy(subqueue Subqueue, at int64) {
	if due, ok := w.dueAt[subqueue]; !ok || at < due {
		w.dueAt[subqueue] = at
	}
}

// due reports whether a subqueue is worth a look now.
func (w *waiting[C]) due(subqueue Subqueue, now int64) bool {
	at, ok := w.dueAt[subqueue]
	return ok && at <= now
}

// allDue makes all subqueues worth a look at that time.
func (w *waiting[C]) allDue(at int64) {
	for subqueue := range w.parked {
		w.dueAt[subqueue] = at
	}
	for subqueue := range w.seen { // also for whoever comes to wait
		w.dueAt[subqueue] = at
	}
}

// nextDue returns when a subqueue is worth a look that somebody waits for.
func (w *waiting[C]) nextDue(paused map[int64]bool) int64 {
	next := int64(never)
	for subqueue, list := range w.parked {
		if due, ok := w.dueAt[subqueue]; ok && len(list) > 0 && !paused[subqueue.Queue()] {
			next = min(next, due)
		}
	}
	return next
}
