package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Service deletes old jobs, with all that belongs to them.
type Service struct {
	store *jobs.Store
	blobs *blob.Store
}

// New returns the service of a store whose payloads are in blobs.
func New(store *jobs.Store, blobs *blob.Store) *Service { return &Service{store, blobs} }

// Policy says how long jobs are kept once they are over; 0: for ever.
type Policy struct {
	Succeeded time.Duration
	Failed    time.Duration // also cancelled and expired
	SetAside  time.Duration // in a dead-letter or quarantine subqueue, since they came there
}

// query selects what is kept no longer at that time.
func (r Policy) query(now time.Time) (q query) {
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

// PurgeExpired deletes the jobs that are kept no longer and returns how many. All processes that
// share a database call it at the same interval. It does its work in one of them. A policy that is
// new takes no heed of when another one was followed.
func (s *Service) PurgeExpired(ctx context.Context, r Policy, every time.Duration) (purged int, err error) {
	if r == (Policy{}) {
		return 0, nil
	}
	// A little less, so that a process that is alone does not come just too early.
	mine, err := s.store.ClaimChore(ctx, fmt.Sprint("purge ", r.Succeeded, " ", r.Failed, " ", r.SetAside), every*9/10)
	if err != nil || !mine {
		return 0, err
	}
	return s.purge(ctx, r.query(s.store.Now()))
}

// purge deletes what the query selects, oldest first, in short transactions.
func (s *Service) purge(ctx context.Context, q query) (purged int, err error) {
	for step := (stretch{More: true}); step.More; {
		var n int
		if step, n, err = s.purgeStep(ctx, q, step.Last, func(step stretch) (removed, error) {
			return s.remove(ctx, q, step, nil)
		}); err != nil {
			return purged, err
		}
		purged += n
	}
	return purged, nil
}

// purgeStep deletes the next stretch of jobs above a number, and pauses if there may be more.
func (s *Service) purgeStep(ctx context.Context, q query, above int64, remove func(stretch) (removed, error)) (step stretch, purged int, err error) {
	if step, err = s.next(ctx, q, above); err != nil {
		return step, 0, err
	}
	began := time.Now()
	if step.Count > 0 {
		done, err := remove(step)
		if err != nil {
			return step, 0, err
		}
		purged = done.Jobs
		for _, key := range done.Blobs {
			_ = s.blobs.Delete(ctx, key) // the sweep would find it too
		}
	}
	if step.More {
		err = sleep.For(ctx, max(10*time.Millisecond, 3*time.Since(began))) // and others have the database for as long
	}
	return step, purged, err
}

// purgeSteps bounds one call.
const purgeSteps = 10

// PurgeJobs deletes jobs that are over, as an operator asks. One call does a part of it.
func (s *Service) PurgeJobs(ctx context.Context, tenant string, req forebay.PurgeJobsRequest, actor string) (forebay.PurgeJobsReport, error) {
	report := forebay.PurgeJobsReport{DryRun: req.DryRun}
	q := query{Ended: map[forebay.Status]time.Time{}}
	if req.Before.Year() < 1970 || req.Before.Year() > 9999 {
		return report, forebay.Invalid("before", "is required: a time from 1970 on")
	}
	if req.Status == nil {
		req.Status = []forebay.Status{forebay.StatusSucceeded, forebay.StatusFailed, forebay.StatusCancelled, forebay.StatusExpired}
	}
	for _, status := range req.Status {
		if !status.Terminal() {
			return report, forebay.Invalid("status", "must be of jobs that are over: succeeded, failed, cancelled, expired")
		}
		q.Ended[status] = req.Before
	}
	above, err := listing.DecodeCursor(req.Cursor)
	if err != nil {
		return report, err
	}
	if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
		return report, err
	}
	audit := audit.Act{Tenant: tenant, Actor: actor, Action: "purge-jobs", Target: tenant, Detail: purgeDetail(req)}
	remove := func(step stretch) (removed, error) {
		if req.DryRun {
			return removed{Jobs: step.Count}, nil
		}
		return s.remove(ctx, q, step, &audit)
	}
	step := stretch{Last: above, More: true}
	for n := 0; n < purgeSteps && step.More; n++ {
		var purged int
		step, purged, err = s.purgeStep(ctx, q, step.Last, remove)
		report.Purged += purged
		if err != nil {
			return report, err
		}
	}
	if step.More {
		report.NextCursor = listing.EncodeCursor(step.Last)
	}
	return report, nil
}

func purgeDetail(req forebay.PurgeJobsRequest) string {
	req.Cursor = ""
	b, err := json.Marshal(req)
	if err != nil {
		return ""
	}
	return string(b)
}

// ForgetIdempotencyKeys removes keys made before that time, in short transactions.
func (s *Service) ForgetIdempotencyKeys(ctx context.Context, before time.Time) error {
	const step = 1000
	for {
		n, err := s.forgetKeys(ctx, before, step)
		if err != nil || n < step {
			return err
		}
	}
}
