package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
)

// NewJobs validates requests whose jobs the caller stores in a transaction of its own. Their
// inputs must be small enough to stay in the database.
func (s *Service) NewJobs(ctx context.Context, tenant string, reqs []forebay.SubmitRequest) ([]NewJob, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := make([]NewJob, len(reqs))
	for i := range reqs {
		if list[i], err = s.newJob(ctx, tenant, no, &reqs[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Abort ends the calls of this process whose locks a transaction of the caller's voided.
func (s *Service) Abort(tokens []int64) {
	for _, token := range tokens {
		s.running.abort(token)
	}
}
