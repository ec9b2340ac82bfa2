package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

type callerKey struct{}

func callerOf(ctx context.Context) *store.Activity {
	a, _ := ctx.Value(callerKey{}).(*store.Activity)
	return a
}

// SubmitCalled stores a job that is an activity of an orchestration: the instance waits for it from then on, and hears of its end in the
// transaction that ends it. It is refused with forebay.ErrLockLost if the activity is another's by now, which may have submitted it.
func (s *Service) SubmitCalled(ctx context.Context, tenant string, req forebay.SubmitRequest, caller *store.Activity) error {
	correlation := store.CallerCorrelation(caller.ID)
	req.CorrelationID, req.IdempotencyKey = &correlation, ""
	if caller.KeyID != "" {
		ctx = forebay.WithBudgetKey(ctx, caller.KeyID)
	}
	_, _, err := s.Submit(context.WithValue(Continuing(ctx), callerKey{}, caller), tenant, req)
	return err
}
