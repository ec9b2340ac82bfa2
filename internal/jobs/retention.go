package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// Retention says how long jobs are kept once they are over; 0: for ever.
type Retention struct {
	Succeeded time.Duration
	Failed    time.Duration // and cancelled, and expired
	SetAside  time.Duration // in a dead-letter or quarantine subqueue, from when they came there
}

// query selects what is kept no longer at that time.
func (r Retention) query(now time.Time) (q store.PurgeQuery) {
	q.Ended = map[forebay.Status]time.Time{}
	if r.Succeeded > 0 {
		q.Ended[forebay.StatusSucceeded] = now.Add(-r.Succeeded)
	}
	if r.Failed > 0 {
		for _, status := range []forebay.Status{forebay.StatusFailed, forebay.StatusCancelled, forebay.StatusExpired} {
			q.Ended[status] = now.Add(-r.Failed)
		}
	}
	if r.SetAside > 0 {
		q.SetAside = now.Add(-r.SetAside)
	}
	return q
}

// PurgeExpired deletes the jobs that are kept no longer and returns how many. All processes that share
// a database call it every so often; in that time it does something in one of them.
func (s *Service) PurgeExpired(ctx context.Context, r Retention, every time.Duration) (purged int, err error) {
	if r == (Retention{}) {
		return 0, nil
	}
	// A little less, so that a process that is alone does not come just too early.
	mine, err := s.store.TakeTurn(ctx, "purge", every*9/10)
	if err != nil || !mine {
		return 0, err
	}
	return s.purge(ctx, r.query(s.store.Now()), nil)
}

// purge deletes what the query selects in short transactions, oldest first.
func (s *Service) purge(ctx context.Context, q store.PurgeQuery, audit *store.Audit) (purged int, err error) {
	for step := (store.PurgeStep{More: true}); step.More; {
		if step, err = s.store.NextPurge(ctx, q, step.Last); err != nil {
			return purged, err
		}
		began := time.Now()
		if step.Count > 0 {
			done, err := s.store.PurgeStep(ctx, q, step, audit)
			if err != nil {
				return purged, err
			}
			purged += done.Jobs
			for _, key := range done.Blobs {
				_ = s.blobs.Delete(ctx, key) // the sweep would find it too
			}
		}
		if step.More {
			if err := rest(ctx, time.Since(began)); err != nil {
				return purged, err
			}
		}
	}
	return purged, nil
}

// rest leaves the database to others for three times as long as a step took it.
func rest(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(max(10*time.Millisecond, 3*took))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
