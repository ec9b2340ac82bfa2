package orchestrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/places"
)

// heldItems are the work items that are executed here under a lock, and the places for more.
type heldItems struct {
	orchestrationPlaces, activityPlaces *places.Places
	jobPlaces                           *places.Places // for activities that are jobs, while these are submitted

	mu      sync.Mutex
	held    map[int64]*heldItem // by lock token
	running context.Context
	stopped bool          // no more items are claimed
	idle    chan struct{} // closed once nothing is held; nil: nobody waits
}

func newHeldItems(orchestrations, activities int) *heldItems {
	return &heldItems{orchestrationPlaces: places.New(orchestrations), activityPlaces: places.New(activities), jobPlaces: places.New(maxSubmits),
		held: map[int64]*heldItem{}}
}

// heldItem is a work item that is executed here.
type heldItem struct {
	orchestration *OrchestrationItem
	activity      *ActivityItem
	cancel        context.CancelCauseFunc
	ctx           context.Context
	notBegun      bool // no worker has begun with the activity
}

// place returns the places of which the item has one, and the tenant that has it.
func (s *heldItems) place(h *heldItem) (of *places.Places, tenant int64) {
	switch {
	case h.orchestration != nil:
		return s.orchestrationPlaces, h.orchestration.Tenant
	case h.activity.Name == TaskActivity:
		return s.jobPlaces, h.activity.Tenant
	}
	return s.activityPlaces, h.activity.Tenant
}

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
	of, tenant := s.place(h)
	of.Hold(tenant)
}

// release unregisters a work item and frees its place.
func (s *heldItems) release(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[token]
	if h == nil {
		return
	}
	h.cancel(nil)
	delete(s.held, token)
	of, tenant := s.place(h)
	of.Release(tenant)
	if len(s.held) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
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
