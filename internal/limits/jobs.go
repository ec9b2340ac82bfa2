package limits

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// Jobs is what jobs that are being submitted have taken of a tenant's limits.
type Jobs struct {
	of    []Taken
	first [needs]Taken // of, for one job
}

// needs is how many limits a job takes of.
const needs = 3

// Done ends the reservations: what was taken is stored by now, or is not.
func (k *Jobs) Done() {
	for i := range k.of {
		k.of[i].Done()
	}
}

// Take takes what a job needs, or returns why it is refused.
func (k *Jobs) Take(ctx context.Context, m *Meter, tenant string, req *forebay.SubmitRequest, now time.Time) error {
	if m == nil {
		return nil
	}
	if err := m.CheckSchedule(ctx, tenant, "scheduled_at", req.ScheduledAt, now); err != nil {
		return err
	}
	scheduled := int64(0)
	if at := req.ScheduledAt; at != nil && at.After(now) {
		scheduled = 1
	}
	size := int64(len(req.Input))
	for key, value := range req.Metadata {
		size += int64(len(key) + len(value))
	}
	wanted := [needs]struct {
		name forebay.LimitName
		n    int64
	}{{forebay.LimitWaitingJobs, 1}, {forebay.LimitScheduled, scheduled}, {forebay.LimitStoredBytes, size}}
	if k.of == nil {
		k.of = k.first[:0]
	}
	for _, one := range wanted {
		if one.n == 0 {
			continue
		}
		taken, err := m.TakeOne(ctx, tenant, one.name, one.n)
		if err != nil {
			return err
		}
		k.of = append(k.of, taken)
	}
	return nil
}
