package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/jobs"
)

// idlers are the goroutines of a lane that wait for a delivery. A goroutine that is reused
// already has the large stack that a call needs. The one that became idle last is used first, so
// that those that are not needed are idle for long, and end.
type idlers struct {
	mu      sync.Mutex
	waiting []*idler // by the time at which they became idle
	period  int64    // number of the current one
	stopped bool
}

// idler is one of the goroutines.
type idler struct {
	next  chan *jobs.Delivery // closed: it is to end
	since int64               // the period in which it became idle
}

func newIdler() *idler { return &idler{next: make(chan *jobs.Delivery, 1)} }

// hand gives the delivery to a goroutine that is idle. It reports whether there is one.
func (l *idlers) hand(d *jobs.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.waiting) - 1
	if last < 0 {
		return false
	}
	l.waiting[last].next <- d
	l.waiting[last], l.waiting = nil, l.waiting[:last]
	return true
}

// wait returns the next delivery for a goroutine, or nil if it is to end.
func (l *idlers) wait(w *idler) *jobs.Delivery {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return nil
	}
	w.since = l.period
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	return <-w.next
}

// trim ends goroutines that were idle for a whole period, and all that are idle once ctx ends.
func (l *idlers) trim(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.endPeriod()
		case <-ctx.Done():
			l.mu.Lock()
			l.stopped = true
			l.end(len(l.waiting))
			l.mu.Unlock()
			return
		}
	}
}

// endPeriod begins the next period.
func (l *idlers) endPeriod() {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := slices.IndexFunc(l.waiting, func(w *idler) bool { return w.since == l.period })
	if idle < 0 {
		idle = len(l.waiting)
	}
	l.end(idle)
	l.period++
}

// end ends those that have been idle for longest.
func (l *idlers) end(n int) {
	for _, w := range l.waiting[:n] {
		close(w.next)
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
}
