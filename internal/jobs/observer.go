package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// Observer hears what happens to jobs, on the goroutines that do the work: it must be quick. Without one
// nothing is spent on it.
type Observer interface {
	// Submitting hears of a job that is about to be stored and may give it another trace context to keep.
	Submitting(ctx context.Context, s *Submission)
	// Submitted hears how that ended, once it is on disk.
	Submitted(s *Submission, existing bool, err error)
	// Starting hears of a call that is about to be made. The call runs under the returned context.
	Starting(ctx context.Context, d *Delivery) (context.Context, ObservedCall)
	// Returned hears of a delivery that went back without a call.
	Returned(d *Delivery, why forebay.WaitReason)
	// Held hears that jobs of a queue were found ready and could not be called. It runs in transactions.
	Held(queue string, why forebay.WaitReason)
}

// ObservedCall hears of one call.
type ObservedCall interface {
	// Traceparent is the trace context of the call; "": none.
	Traceparent() string
	// Called hears that the call is over.
	Called(err error)
	// Settled hears what the call led to, once that is on disk; status is the job's if it has ended, and
	// the outcome is "" when another has settled the delivery: a cancel, or the end of its lock.
	Settled(a AttemptRecord, status forebay.Status)
	// Over is called last, whatever happened.
	Over()
}

// Submission is a job on its way into the store.
type Submission struct {
	Tenant, Queue, Task, JobID, CorrelationID string
	Traceparent                               string // the client's, then the one that the job keeps
	InputBytes                                int64
	Began                                     time.Time
	Trace                                     any // the observer's own
}

// submissions are those of one batch; nil when nobody watches.
type submissions struct {
	observer Observer
	began    time.Time
	list     []Submission
}

func (s *Service) observeSubmits(n int) *submissions {
	if s.observer == nil {
		return nil
	}
	return &submissions{observer: s.observer, began: time.Now(), list: make([]Submission, n)}
}

// storing tells that the request has become a job that will be stored.
func (o *submissions) storing(ctx context.Context, i int, tenant, queue string, job *NewJob) {
	if o == nil {
		return
	}
	o.list[i] = Submission{Tenant: tenant, Queue: queue, Task: job.Task, JobID: job.ID, CorrelationID: correlation(job.CorrelationID, job.ID),
		Traceparent: job.Traceparent, InputBytes: job.InputSize, Began: o.began}
	o.observer.Submitting(ctx, &o.list[i])
	job.Traceparent = o.list[i].Traceparent
}

// ended tells what became of all requests.
func (o *submissions) ended(tenant string, results []forebay.SubmitResult) {
	if o == nil {
		return
	}
	for i := range results {
		s := &o.list[i]
		s.Tenant, s.Began = tenant, o.began // of one that was refused nothing else is known to be so
		var err error
		if results[i].Error != nil {
			err = results[i].Error
		}
		o.observer.Submitted(s, results[i].Existing, err)
	}
}

// Observe tells whoever watches that the delivery's call begins, which is to run under the returned
// context; over must be called when nothing more will come of it.
func (s *Service) Observe(ctx context.Context, d *Delivery) (_ context.Context, over func()) {
	if s.observer == nil {
		return ctx, func() {}
	}
	ctx, d.observed = s.observer.Starting(ctx, d)
	return ctx, d.observed.Over
}

// Called tells whoever watches that the delivery's call is over.
func (d *Delivery) Called(err error) {
	if d.observed != nil {
		d.observed.Called(err)
	}
}

func (d *Delivery) settled(a AttemptRecord, status forebay.Status, err error) error {
	if err == nil && d.observed != nil {
		d.observed.Settled(a, status)
	}
	return err
}

// traceparent is what a call hands on: its own trace context, else the one that the job came with.
func (d *Delivery) traceparent() string {
	if d.observed != nil {
		if own := d.observed.Traceparent(); own != "" {
			return own
		}
	}
	return d.Traceparent
}

// release puts a delivery back of which nothing was called.
func (s *Service) release(ctx context.Context, d *Delivery, delay time.Duration, why forebay.WaitReason) error {
	err := s.store.Release(ctx, &d.LockedJob, delay, why)
	if err == nil && s.observer != nil {
		s.observer.Returned(d, why)
	}
	return err
}
