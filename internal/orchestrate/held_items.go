package orchestrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// heldItems are the work items that are carried out here, and the slots for more.
type heldItems struct {
	orchestrationSlots chan struct{} // a value for each item that may still be taken
	activitySlots      chan struct{}
	jobSlots           chan struct{} // for activities that are jobs, while these are submitted

	mu             sync.Mutex
	held           map[int64]*heldItem // by lock token
	heldActivities int                 // but for those that are jobs
	heldByTenant   map[int64]int       // the same of each tenant
	restartClaim   func()              // claims activities anew; nil: that would change nothing
	running        context.Context
	stopped        bool          // nothing is taken any more
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

// held is a turn or an activity that is being carried out here.
type heldItem struct {
	orchestration *OrchestrationItem
	activity      *ActivityItem
	cancel        context.CancelCauseFunc
	ctx           context.Context
	notBegun      bool // the activity was handed to nobody
}

// isPlain reports whether it is an activity that is no job.
func (h *heldItem) isPlain() bool { return h.activity != nil && h.activity.Name != TaskActivity }

var errStopping = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")

// cutOffTime bounds how long what is cut off has to be given back before the engine is stopped.
const cutOffTime = 5 * time.Second

// drain waits for what is being carried out. After the grace period it is cut off, and given back.
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

// hold notes that something is carried out here from now on.
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

// release is for what is not carried out any more; its place is free.
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

// room is how many more activities of a tenant are taken, beside those that a claim has got already. If there is none, full is called, under s.mu.
func (s *heldItems) room(tenant int64, its, all int, full func()) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	its += s.heldByTenant[tenant]
	left := cap(s.activitySlots) - s.heldActivities - all
	n := (tenantShare*left - its) / (tenantShare + 1) // the largest for which its+n is no more than its share of what is left then
	if its == 0 {
		n = max(n, min(left, 1))
	}
	if n <= 0 {
		full()
	}
	return n
}

// notBegun notes of an attempt that it was handed to nobody.
func (s *heldItems) notBegun(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[token]; h != nil {
		h.notBegun = true
	}
}

// bound returns a context that ends when the activity is not to be carried out here any more, and not just because no new ones are taken.
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

// cutOff reports whether the attempt was ended because the server stops.
func (s *heldItems) cutOff(token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[token]
	return h != nil && errors.Is(context.Cause(h.ctx), errStopping)
}

// mayHaveBegun reports whether an attempt that came to nothing counts as one.
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
