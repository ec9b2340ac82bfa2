package jobs

import (
	"cmp"
	"context"
	"hash/fnv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/quota"
)

// Deployments lists where a call of a model with this need may go, in the order in which to try.
type Deployments func(model string, need forebay.CallEstimate) []admission.Option

// plan lists where a job of a task could be called, and what the call would need there. Functions
// of the embedding program, and tasks that this process does not know, are not held back.
func (s *liveSettings) plan(task string, input []byte, size int64, stored *forebay.CallEstimate) []admission.Option {
	now := s.Load()
	t, known := now.tasks[task]
	switch {
	case !known || now.deployments == nil:
		return nil
	case t.Endpoint != "":
		return []admission.Option{{Deployment: t.Endpoint, Limits: EndpointLimits(t), Concurrency: int64(t.Concurrency), Request: quota.Request{MaxOutputTokens: -1}}}
	case t.Model == "":
		return nil
	}
	need := request.Estimate(&t, input, size)
	if stored != nil {
		need = *stored
	}
	return now.deployments(cmp.Or(need.Model, t.Model), need)
}

// EndpointLimits is the quota of a task that calls no model.
func EndpointLimits(t forebay.Task) quota.Limits {
	return quota.Limits{RequestsPerMinute: int64(t.RequestsPerMinute)}
}

// share is a tenant's weight.
func (s *liveSettings) share(tenant int64) float64 {
	if weight, set := s.Load().weights[tenant]; set {
		return weight
	}
	return 1
}

// held notifies the observer why jobs of a queue could not be called.
func (w *Worker) held(q *Queue) func(forebay.WaitReason) {
	if w.observer == nil {
		return nil
	}
	return func(why forebay.WaitReason) { w.observer.Held(q.Name, why) }
}

// classOf returns the class of what a task calls. Jobs whose calls are admitted together have the
// same class in all processes. Others may share it, and then wait in one flow. model is the one
// that the input names; "": the task's.
func classOf(t *forebay.Task, model string) int {
	called := cmp.Or(model, t.Model)
	if t.Endpoint != "" {
		called = "/" + t.Endpoint // a name that no model has
	}
	if called == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(called))
	return 1 + int(h.Sum32()%(flows.Classes-1))
}

// Admit returns a context that carries where the delivery's call was admitted to. over is to be
// called when the call is over, before its outcome is settled.
func (w *Worker) Admit(ctx context.Context, d *Delivery) (admitted context.Context, over func()) {
	if d.Admission == nil {
		return ctx, func() {}
	}
	update := *d.Admission // a copy, because its outcome is sent while the call goes on
	call := &quota.Call{Deployment: update.Deployment, Headers: func(h quota.Headers) {
		update.Outcome = &quota.Outcome{Kind: quota.HeadersArrived, Headers: h}
		w.store.Admission.SendOutcome(update)
	}}
	return quota.WithCall(ctx, call), func() { d.Admission.Outcome = call.Outcome }
}
