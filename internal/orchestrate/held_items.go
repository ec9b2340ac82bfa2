package orchestrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// heldItems are the work items that are executed here under a lock, and the slots for more.
type heldItems struct {
	orchestrationSlots chan struct{} // one value for each free slot
	activitySlots      chan struct{}
	jobSlots           chan struct{} // for activities that are jobs, while these are submitted

	mu             sync.Mutex
	held           map[int64]*heldItem // by lock token
	heldActivities int                 // without those that are jobs
	heldByTenant   map[int64]int       // the same, of each tenant
	restartClaim   func()              // starts the claim of activities again; nil: no need
	running        context.Context
	stopped        bool          // no more items are claimed
	idle           chan struct{} // closed once nothing is held; nil: nobody waits
}

func newHeldItems(orchestrations, activities int) *heldItems {
	filled := func(n int) chan struct{} {
		slots := make(chan struct{}, n)
		returnSlots(slots, n)
		return slots
	}
	return &heldItems{orchestrationSlots: filled(orchestrations), activitySlots: filled(activities), jobSlots: filled(maxSubmits),
		held: map[int64]*heldItem{}, heldByTenant: map[int64]int{}}
}

// heldItem is a work item that is executed here.
type heldItem struct {
	orchestration *OrchestrationItem
	activity      *ActivityItem
	cancel        context.CancelCauseFunc
	ctx           context.Context
	notBegun      bool // no worker has begun with the activity
}

// isPlain reports whether the item is an activity that is not a job.
func (h *heldItem) isPlain() bool { return h.activity != nil && h.activity.Name != TaskActivity }

var errStopping = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")

// cutOffTime bounds how long cancelled work items may take to be given back before the engine
// stops.
const cutOffTime = 5 * time.Second

// drain waits for the held work items. After the grace period it cancels them, so that they are
// given back.
func (s *heldItems) drain(grace time.Duration) {
	s.mu.Lock()
	s.stopped = true
	idle := make(chan struct{})
	s.idle = idle
	if len(s.held) == 0 {
		close(idle)
		s.idle = nil
	}
	s.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-timer.C:
	}
	s.mu.Lock()
	for _, h := range s.held {
		h.cancel(errStopping)
	}
	s.mu.Unlock()
	timer.Reset(cutOffTime)
	select {
	case <-idle:
	case <-timer.C:
	}
}

// hold registers a work item that is executed here from now on.
func (s *heldItems) hold(token int64, h *heldItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.ctx, h.cancel = context.WithCancelCause(s.running)
	s.held[token] = h
	if h.isPlain() {
		s.heldActivities++
		s.heldByTenant[h.activity.Tenant]++
	}
}

// release unregisters a work item and frees its slot.
func (s *heldItems) release(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[token]
	if h == nil {
		return
	}
	h.cancel(nil)
	delete(s.held, token)
	switch {
	case h.orchestration != nil:
		s.orchestrationSlots <- struct{}{}
	case h.isPlain():
		s.heldActivities--
		if s.heldByTenant[h.activity.Tenant]--; s.heldByTenant[h.activity.Tenant] == 0 {
			delete(s.heldByTenant, h.activity.Tenant)
		}
		s.activitySlots <- struct{}{}
		if s.restartClaim != nil {
			s.restartClaim()
		}
	default:
		s.jobSlots <- struct{}{}
	}
	if len(s.held) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// room is how many more activities of a tenant are claimed, beside those that the claim has got.
// If there is no room, full is called while s.mu is held.
func (s *heldItems) room(tenant int64, held, all int, full func()) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	held += s.heldByTenant[tenant]
	left := cap(s.activitySlots) - s.heldActivities - all
	// The largest n with held+n <= tenantShare*(left-n).
	n := (tenantShare*left - held) / (tenantShare + 1)
	if held == 0 {
		n = max(n, min(left, 1))
	}
	if n <= 0 {
		full()
	}
	return n
}

// notBegun notes that no worker has begun with an attempt.
func (s *heldItems) notBegun(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[token]; h != nil {
		h.notBegun = true
	}
}

// bound returns a context that ends when the work item must not be executed here any more. A
// stop alone does not end it: items may finish.
func (s *heldItems) bound(ctx context.Context, token int64) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock()
	h := s.held[token]
	s.mu.Unlock()
	if h == nil {
		cancel(forebay.ErrLockLost)
		return ctx, cancel
	}
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// cutOff reports whether the attempt was cancelled because the server stops.
func (s *heldItems) cutOff(token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[token]
	return h != nil && errors.Is(context.Cause(h.ctx), errStopping)
}

// mayHaveBegun reports whether an attempt without an outcome counts as an attempt.
func (s *heldItems) mayHaveBegun(token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[token]
	return !s.stopped && (h == nil || !h.notBegun)
}

func (s *heldItems) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
