package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/limits"
)

// taken is what requests have taken of a tenant's limits.
type taken struct{ of []limits.Taken }

// done ends the reservations: what was taken is stored by now, or is not.
func (k *taken) done() {
	for i := range k.of {
		k.of[i].Done()
	}
}

// job takes what a job needs, or returns why it is refused.
func (k *taken) job(ctx context.Context, s *Service, tenant string, req *forebay.SubmitRequest) error {
	if s.limits == nil || ctx.Value(continuingKey{}) != nil {
		return nil
	}
	if err := s.limits.CheckSchedule(ctx, tenant, "scheduled_at", req.ScheduledAt, s.store.Now()); err != nil {
		return err
	}
	scheduled := int64(0)
	if at := req.ScheduledAt; at != nil && at.After(s.store.Now()) {
		scheduled = 1
	}
	size := int64(len(req.Input))
	for key, value := range req.Metadata {
		size += int64(len(key) + len(value))
	}
	for _, one := range [...]struct {
		name forebay.LimitName
		n    int64
	}{{forebay.LimitWaitingJobs, 1}, {forebay.LimitScheduled, scheduled}, {forebay.LimitStoredBytes, size}} {
		if one.n == 0 {
			continue
		}
		taken, err := s.limits.TakeOne(ctx, tenant, one.name, one.n)
		if err != nil {
			return err
		}
		k.of = append(k.of, taken)
	}
	return nil
}
