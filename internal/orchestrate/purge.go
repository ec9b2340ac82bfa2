package orchestrate

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Purge deletes an ended instance with its history.
func (s *Instances) Purge(ctx context.Context, tenant, id string) error {
	return s.purge(ctx, tenant, id, false, false)
}

// PurgeByForce deletes an instance with its history, whether it has ended or not. The jobs that
// it awaited are cancelled. Its caller gets a failure if tells is set. A caller that is about to
// be purged too gets none: its code would make up for the failure until then.
func (s *Instances) PurgeByForce(ctx context.Context, tenant, id string, tells bool) error {
	return s.purge(ctx, tenant, id, true, tells)
}

func (s *Instances) purge(ctx context.Context, tenant, id string, force, tells bool) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	var orphans []string
	for range maxRewindAttempts {
		var forced *Forced
		if force {
			if forced, err = s.forced(ctx, no, id, tells); err != nil {
				return err
			}
		}
		if orphans, err = s.store.PurgeOrchestration(ctx, no, id, forced, act(ctx, tenant, "purge-orchestration", id, nil)); !errors.Is(err, ErrChanged) {
			break
		}
	}
	if err == nil {
		ctx, cancel := settling(ctx)
		defer cancel()
		s.cancelJobs(ctx, no, orphans)
	}
	return err
}

// forced is what a purge by force needs to know.
func (s *Instances) forced(ctx context.Context, tenant int64, id string, tells bool) (*Forced, error) {
	row, err := s.store.Orchestration(ctx, tenant, id)
	switch {
	case err != nil || row.Status.Terminal():
		return &Forced{}, err
	case row.ParentID == "" || !tells:
		return &Forced{No: row.No}, nil
	}
	start, err := s.startOf(ctx, row.No)
	if err != nil && !errors.Is(err, history.ErrUnreadable) { // then the caller cannot be told
		return nil, err
	}
	failure, err := failureFor(start, &forebay.OrchestrationFailure{Type: "Purged", Message: "the sub-orchestration was purged by force", NonRetryable: true})
	return &Forced{row.No, failure}, err
}

// purgedAtOnce bounds how many instances one transaction deletes.
const purgedAtOnce = 200

// PurgeMany deletes the ended instances of a list, page by page, and returns their number.
func (s *Instances) PurgeMany(ctx context.Context, tenant string, req ListRequest) (purged int, err error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	audit := act(ctx, tenant, "purge-orchestrations", tenant, purgeDetail{req.Prefix, req.Statuses, req.From, req.Until})
	req.Limit = purgedAtOnce
	for {
		page, next, err := s.list(ctx, req.query(no), req.Cursor, false)
		if err != nil {
			return purged, err
		}
		var ids []string
		for _, o := range page {
			if o.Status.Terminal() {
				ids = append(ids, o.ID)
			}
		}
		if len(ids) > 0 {
			n, err := s.store.PurgeEnded(ctx, no, ids, audit)
			if err != nil {
				return purged, err
			}
			purged += n
		}
		if req.Cursor = next; next == "" {
			return purged, nil
		}
	}
}

// PurgeExpired deletes the instances of all tenants that ended longer than keep ago, and returns
// their number. It does nothing if another process has done it within the interval, for instances
// that are kept as long. It pauses between steps, so that others can use the database.
func (s *Instances) PurgeExpired(ctx context.Context, keep, every time.Duration) (purged int, err error) {
	mine, err := s.store.ClaimChore(ctx, "purge-orchestrations "+keep.String(), every*9/10)
	if err != nil || !mine {
		return 0, err
	}
	before := s.store.Now().Add(-keep)
	for last := int64(0); ; {
		begun := time.Now()
		n, reached, err := s.store.PurgeOrchestrations(ctx, before, last)
		purged += n
		if err != nil || reached == last {
			return purged, err
		}
		last = reached
		if err := sleep.For(ctx, 3*time.Since(begun)); err != nil {
			return purged, err
		}
	}
}
