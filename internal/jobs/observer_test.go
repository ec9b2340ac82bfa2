package jobs

import (
	"context"
	"testing"
)

// While nobody watches, watching costs a job no memory.
func TestNotObservedCostsNothing(t *testing.T) {
	w, d, job, ctx := &Worker{}, &Delivery{}, &NewJob{Traceparent: "mine"}, context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		o := newSubmissions(nil, 1)
		o.storing(ctx, 0, "acme", "default", job)
		o.ended("acme", nil)
		called, over := w.Observe(ctx, d)
		if called != ctx || d.traceparent() != "" {
			t.Fatal("something watches")
		}
		d.Called(nil)
		if err := d.settled(AttemptRecord{}, "", nil); err != nil {
			t.Fatal(err)
		}
		over()
	})
	if allocs != 0 {
		t.Errorf("%v allocations a job", allocs)
	}
	if job.Traceparent != "mine" {
		t.Errorf("the job's trace context became %q", job.Traceparent)
	}
}
