package documents

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// RetryDocument sends failed jobs of a document's revision back, a few in a transaction. A job
// that cannot be sent back, or must now be several, is replaced by its jobs in again. It returns
// how many jobs were still failed.
func (s *Store) RetryDocument(ctx context.Context, tenant int64, revisionID string, failed []FailedJob, again [][]DocumentJob) (retried int, err error) {
	for len(failed) > 0 {
		n, rows, numbers := 0, revisionRows, 0
		for ; n < len(failed) && (n == 0 || rows+len(again[n]) <= revisionRows+dropJobs); n++ {
			rows += max(len(again[n]), 1)
			numbers += len(again[n])
		}
		step, jobs := failed[:n], again[:n]
		o := retrying(tenant, revisionID, step)
		o.Rows, o.Numbers = rows, numbers
		some, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (int, error) { return t.retryDocument(tenant, revisionID, step, jobs) })
		retried += some
		if err != nil {
			return retried, err
		}
		failed, again = failed[n:], again[n:]
	}
	return retried, nil
}

// retrying describes a retry to the writer. Of two of one revision the second sees what the first
// has done.
func retrying(tenant int64, revisionID string, failed []FailedJob) db.Op {
	touched := []driver.RowName{{Of: "retries", ID: revisionID}}
	return db.Op{Stage: db.StageSubmit, Party: tenant, Local: true, Interleaves: true, Touches: touched, Asks: func() []driver.Prefetch {
		asks := []driver.Prefetch{prefetchRevisionID(tenant, revisionID)}
		for i := range failed {
			asks = append(asks, driver.NewPrefetch(sqlStillFailed, documentJobRow(failed[i].Seq)).Int(failed[i].Seq).Text(revisionID))
		}
		return asks
	}}
}

const sqlStillFailed = `
SELECT 1 FROM document_jobs j JOIN document_revisions r ON r.no = j.revision WHERE j.seq = ? AND r.id = ? AND j.error_code IS NOT NULL AND j.done = 0`

func (t *tx) retryDocument(tenant int64, revisionID string, failed []FailedJob, again [][]DocumentJob) (retried int, err error) {
	rev, err := t.revisionOf(tenant, revisionID)
	if err != nil {
		return 0, err
	}
	still := make([]bool, len(failed))
	err = t.Interleave(len(failed), func(i int) error {
		return t.retryJob(rev, failed[i], again[i], &still[i])
	})
	if err != nil {
		return 0, err
	}
	for _, failed := range still {
		retried += int(driver.BoolInt(failed))
	}
	t.Changed(documentWatch(rev.Document))
	return retried, nil
}

// retryJob sends a failed job back, or replaces it, and reports whether it was still failed.
func (t *tx) retryJob(rev *revisionState, f FailedJob, again []DocumentJob, still *bool) error {
	_, err := t.Prep(sqlStillFailed).Int(f.Seq).Text(rev.ID).One(func(driver.Row) { *still = true })
	if *still = *still && !t.done[f.ID]; err != nil || !*still {
		return err
	}
	if len(again) == 1 {
		if redriven, err := t.jobs.Redrive(jobs.Redrive{Seq: f.Seq}); err != nil || redriven {
			return err
		}
	}
	if err := t.Prep(sqlForgetJob).Int(f.Seq).Exec(); err != nil {
		return err
	}
	if err := t.jobs.RemoveDeadLetter(f.Seq); err != nil { // a redrive would do once more what the others do
		return err
	}
	for _, j := range again {
		if err := t.submitDocumentJob(rev.No, j); err != nil {
			return err
		}
	}
	return nil
}
