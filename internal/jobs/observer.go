package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs/request"
)

// Observer is notified of what happens to jobs, on the goroutines that do the work. Its methods
// must be quick. Without an observer nothing is spent on it.
type Observer interface {
	// Submitting is called for a job that is about to be stored. It may replace the trace context
	// that the job keeps.
	Submitting(ctx context.Context, s *Submission)
	// Submitted is called with the outcome, once it is on disk.
	Submitted(s *Submission, existing bool, err error)
	// Starting is called for a call that is about to be made. The call runs under the returned
	// context.
	Starting(ctx context.Context, d *Delivery) (context.Context, ObservedCall)
	// Returned is called for a delivery that went back without a call.
	Returned(d *Delivery, why forebay.WaitReason)
	// Held is called when jobs of a queue were ready and could not be called. It runs in
	// transactions.
	Held(queue string, why forebay.WaitReason)
}

// ObservedCall is notified about one call.
type ObservedCall interface {
	// Traceparent is the trace context of the call; "": none.
	Traceparent() string
	// Called is called when the call is over.
	Called(err error)
	// Settled is called with what the call led to, once that is on disk. status is the job's if
	// it has ended. The outcome is "" if a cancel or the end of its lock has settled the
	// delivery.
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
	Trace                                     any // the observer's own data
}

// submissions are those of one batch; nil without an observer.
type submissions struct {
	observer Observer
	began    time.Time
	list     []Submission
}

func newSubmissions(o Observer, n int) *submissions {
	if o == nil {
		return nil
	}
	return &submissions{observer: o, began: time.Now(), list: make([]Submission, n)}
}

// storing is called when the request has become a job that will be stored.
func (o *submissions) storing(ctx context.Context, i int, tenant, queue string, job *NewJob) {
	if o == nil {
		return
	}
	o.list[i] = Submission{Tenant: tenant, Queue: queue, Task: job.Task, JobID: job.ID, CorrelationID: request.Correlation(job.CorrelationID, job.ID),
		Traceparent: job.Traceparent, InputBytes: job.InputSize, Began: o.began}
	o.observer.Submitting(ctx, &o.list[i])
	job.Traceparent = o.list[i].Traceparent
}

// ended is called with the results of all requests.
func (o *submissions) ended(tenant string, results []forebay.SubmitResult) {
	if o == nil {
		return
	}
	for i := range results {
		s := &o.list[i]
		s.Tenant, s.Began = tenant, o.began // nothing else is known of a refused one
		var err error
		if results[i].Error != nil {
			err = results[i].Error
		}
		o.observer.Submitted(s, results[i].Existing, err)
	}
}

// Observe notifies the observer that the delivery's call begins. The call runs under the returned
// context; over must be called when nothing more will come of it.
func (w *Worker) Observe(ctx context.Context, d *Delivery) (_ context.Context, over func()) {
	if w.observer == nil {
		return ctx, func() {}
	}
	ctx, d.observed = w.observer.Starting(ctx, d)
	return ctx, d.observed.Over
}

// Called notifies the observer that the delivery's call is over.
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

// traceparent is the trace context for the call: the call's own, else the one that the job came
// with.
func (d *Delivery) traceparent() string {
	if d.observed != nil {
		if own := d.observed.Traceparent(); own != "" {
			return own
		}
	}
	return d.Traceparent
}
