package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// Cancel ends a job that is not terminal and aborts its call in flight. A job that is cancelled
// already is returned as it is. Any other terminal job is CodeConflict.
func (s *Service) Cancel(ctx context.Context, tenant, id string) (forebay.Job, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Job{}, err
	}
	// The call of a cancelled job must not go on because the client goes away.
	done, err := s.store.Cancel(context.WithoutCancel(ctx), row.Seq)
	if err != nil {
		return forebay.Job{}, err
	}
	if done.Token != 0 {
		s.running.abort(done.Token)
	}
	job, err := s.Get(ctx, tenant, id)
	if err == nil && !done.Cancelled {
		return job, forebay.Errorf(forebay.CodeConflict, "the job cannot be cancelled: it is %s", job.Status)
	}
	return job, err
}

// Redrive starts the next generation of a dead-lettered or quarantined job; any other is
// CodeConflict.
func (s *Service) Redrive(ctx context.Context, tenant, id, actor string) (forebay.Job, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Job{}, err
	}
	done, err := s.store.Redrive(ctx, []Redrive{{Seq: row.Seq}}, audit.Act{Tenant: tenant, Actor: actor, Action: "redrive", Target: id})
	if err != nil {
		return forebay.Job{}, err
	}
	job, err := s.Get(ctx, tenant, id)
	if err == nil && !done[0] {
		return job, forebay.Errorf(forebay.CodeConflict, "the job cannot be redriven: it is %s and not set aside", job.Status)
	}
	return job, err
}
