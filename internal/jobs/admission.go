package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/store"
)

// plan lists where a job of a task could be called, and what the call would need there. Functions of the
// embedding program, and tasks that this process does not know, are not held back.
func (s *Service) plan(task string, input []byte, size int64) []store.Option {
	t, known := s.tasks[task]
	switch {
	case !known || s.deployments == nil:
		return nil
	case t.Endpoint != "":
		return []store.Option{{Deployment: t.Endpoint, Request: quota.Request{MaxOutputTokens: -1}}}
	case t.Model == "":
		return nil
	}
	e := forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken}
	if t.Estimate != nil {
		e = t.Estimate(input, size)
	}
	options := s.deployments(t.Model)
	for i := range options {
		options[i].Request = quota.Request{PromptTokens: e.PromptTokens, MaxOutputTokens: e.MaxOutputTokens}
	}
	return options
}

// share is a tenant's weight.
func (s *Service) share(tenant int64) float64 {
	if weight, set := s.weights[tenant]; set {
		return weight
	}
	return 1
}

// held tells the observer why jobs of a queue could not be called.
func (s *Service) held(q *Queue) func(forebay.WaitReason) {
	if s.observer == nil {
		return nil
	}
	return func(why forebay.WaitReason) { s.observer.Held(q.Name, why) }
}

// Admit returns a context that carries where the delivery's call was admitted to, and what is to be
// called when the call is over, before its outcome is settled.
func (s *Service) Admit(ctx context.Context, d *Delivery) (admitted context.Context, over func()) {
	if d.Admission == nil {
		return ctx, func() {}
	}
	told := *d.Admission // of its own: it may be told while the call goes on
	call := &quota.Call{Deployment: told.Deployment, Headers: func(h quota.Headers) {
		told.Outcome = &quota.Outcome{Kind: quota.HeadersArrived, Headers: h}
		s.store.Tell(told)
	}}
	return quota.WithCall(ctx, call), func() { d.Admission.Outcome = call.Outcome }
}
