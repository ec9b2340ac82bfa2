package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
)

type callerKey struct{}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// callerCorrelation begins the correlation ids of jobs that an orchestration has called. A
// succeeded job without it is known to have no caller.
const callerCorrelation = "orchestration/"

// CallerCorrelation is the correlation id of the jobs that an instance calls.
func CallerCorrelation(instanceID string) string {
	return callerCorrelation + instanceID[:min(len(instanceID), forebay.MaxCorrelationBytes-len(callerCorrelation))]
}

// SubmitCalled stores a job that is an activity of an orchestration. The instance waits for it
// from then on and gets its result in the transaction that ends it. The budget of the key pays
// too; "": only the tenant's does. It is refused with forebay.ErrLockLost if another worker has
// the activity by now, which may have submitted the job.
func (s *Service) SubmitCalled(ctx context.Context, tenant string, req forebay.SubmitRequest, caller Caller, instanceID, keyID string) error {
	correlation := CallerCorrelation(instanceID)
	req.CorrelationID, req.IdempotencyKey = &correlation, ""
	if keyID != "" {
		ctx = forebay.WithBudgetKey(ctx, keyID)
	}
	_, _, err := s.Submit(context.WithValue(Continuing(ctx), callerKey{}, caller), tenant, req)
	return err
}
