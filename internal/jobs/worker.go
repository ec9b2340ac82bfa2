package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/payload"
)

// Worker is the side of a Service that carries jobs out. It claims jobs, renews their locks and
// settles what their calls lead to. All methods are safe for concurrent use.
type Worker struct {
	Shared bool // other processes may carry out jobs of the same database
	*runningCalls
	store    *Store
	payloads *payload.Store
	queues   *queueSet
	settings *liveSettings
	observer Observer
}

// Worker returns the worker's side of the service.
func (s *Service) Worker() *Worker {
	return &Worker{Shared: s.store.Shared(), runningCalls: &s.running, store: s.store, payloads: s.payloads, queues: &s.queues, settings: &s.settings, observer: s.observer}
}

// runningCalls are the calls of this process that a cancel can abort.
type runningCalls struct {
	byToken sync.Map // lock token → context.CancelCauseFunc
}

// Begin registers cancel as the way to abort this process's call for the delivery, until End. The
// key is the lock's token, because an older call of the same job may still be running.
func (r *runningCalls) Begin(d *Delivery, cancel context.CancelCauseFunc) {
	if _, early := r.byToken.LoadOrStore(d.Token, cancel); early {
		cancel(ErrCancelled)
	}
}

// End is for a call that is over.
func (r *runningCalls) End(d *Delivery) { r.byToken.Delete(d.Token) }

// abort ends the call whose lock a cancel voided. If the call has not begun yet, it leaves a note
// for Begin for a while. Perhaps no call ever begins.
func (r *runningCalls) abort(token int64) {
	const keep = time.Minute
	if cancel, begun := r.byToken.LoadOrStore(token, context.CancelCauseFunc(func(error) {})); begun {
		cancel.(context.CancelCauseFunc)(ErrCancelled)
		return
	}
	time.AfterFunc(keep, func() { r.byToken.Delete(token) })
}

// abortRunning ends the call whose lock a cancel in another process voided, if it runs here.
func (r *runningCalls) abortRunning(token int64) {
	if cancel, ok := r.byToken.Load(token); ok {
		cancel.(context.CancelCauseFunc)(ErrCancelled)
	}
}
