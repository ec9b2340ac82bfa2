package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/history"
	"github.com/forebayhq/forebay/internal/jobs/record"
)

// JobRow is a job with all that is known of it.
type JobRow = record.Job

// JobQuery selects jobs, newest first.
type JobQuery = record.Query

// Job returns the job with that id if it is the tenant's, or forebay.ErrNotFound.
func (s *Store) Job(ctx context.Context, tenant int64, id string) (JobRow, error) {
	return s.reader.Job(ctx, tenant, id)
}

// Jobs returns the page that the query selects.
func (s *Store) Jobs(ctx context.Context, q JobQuery) (page record.Page, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		page, err = record.List(c, q)
		return err
	})
	return page, err
}

// Attempts returns all attempts of a job, oldest first. The last one may be running.
func (s *Store) Attempts(ctx context.Context, seq int64) (attempts []forebay.Attempt, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		attempts, err = history.Attempts(c, seq)
		return err
	})
	return attempts, err
}

// Events returns a job's events numbered above after, oldest first, at most limit.
func (s *Store) Events(ctx context.Context, seq, after int64, limit int) (events []forebay.Event, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		events, err = history.Events(c, seq, after, limit)
		return err
	})
	return events, err
}

// Spent returns what a job's attempts have used so far, as its limits count it.
func (s *Store) Spent(ctx context.Context, seq int64) (spent admission.Amount, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		spent.Tokens, spent.Cost, err = history.Spent(c, seq)
		return err
	})
	return spent, err
}

// Comebacks returns how many calls of a job's generation its deployment denied, and how many
// failed in passing. Refusals for lack of quota are neither.
func (s *Store) Comebacks(ctx context.Context, seq int64, generation int) (denied, failed int, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		denied, failed, err = history.Comebacks(c, seq, generation)
		return err
	})
	return denied, failed, err
}

// BlobsInUse calls used with each key that the key's job refers to. ids maps keys to the ids of
// their jobs.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error { return record.BlobsInUse(c, ids, used) })
}

// BlobRecorded reports whether a job of that id, or its outcome, refers to the blob.
func (s *Store) BlobRecorded(ctx context.Context, id, key string) (recorded bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		recorded, err = record.BlobRecorded(c, id, key)
		return err
	})
	return recorded, err
}
