package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// takeStart takes what a new instance needs from the tenant's limits. at is its start in
// milliseconds; 0: now.
func (s *Instances) takeStart(ctx context.Context, tenant, at, size int64) (done func(), err error) {
	if s.opts.Limits == nil {
		return func() {}, nil
	}
	name, err := s.store.TenantName(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if at > 0 {
		start := time.UnixMilli(at)
		if err := s.opts.Limits.CheckSchedule(ctx, name, "scheduledStartTimestamp", &start, s.store.Now()); err != nil {
			return nil, err
		}
	}
	return s.takeBoth(ctx, name, forebay.LimitOrchestrations, size)
}

// takeEvent takes what an event of a client needs from the tenant's limits.
func (s *Instances) takeEvent(ctx context.Context, tenant string, size int64) (done func(), err error) {
	return s.takeBoth(ctx, tenant, forebay.LimitOrchestrationEvents, size)
}

func (s *Instances) takeBoth(ctx context.Context, tenant string, name forebay.LimitName, size int64) (done func(), err error) {
	one, err := s.opts.Limits.Take(ctx, tenant, name, 1)
	if err != nil {
		return nil, err
	}
	bytes, err := s.opts.Limits.Take(ctx, tenant, forebay.LimitStoredBytes, size)
	if err != nil {
		one()
		return nil, err
	}
	return func() { one(); bytes() }, nil
}
