package documents

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
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
			asks = append(asks, prefetchFailed(revisionID, failed[i].Seq))
		}
		return asks
	}}
}

// Where a job's row or its message is gone, what is read of them is NULL.
const sqlStillFailed = "SELECT " + record.MessageColumns + ` FROM document_jobs d JOIN document_revisions r ON r.no = d.revision
  LEFT JOIN messages m ON m.seq = d.seq LEFT JOIN jobs j ON j.seq = d.seq WHERE d.seq = ? AND r.id = ? AND d.error_code IS NOT NULL AND d.done = 0`

// prefetchFailed is what a retry asks about a job. Whatever is done to the job names its message.
func prefetchFailed(revisionID string, seq int64) driver.Prefetch {
	return driver.NewPrefetch(sqlStillFailed, queue.MessageRow(seq)).Int(seq).Text(revisionID)
}

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
	var m record.Message
	_, err := t.Ask(prefetchFailed(rev.ID, f.Seq)).One(func(r driver.Row) { m, *still = record.ReadMessage(r, 0), true })
	if *still = *still && !t.done[f.ID] && !t.forgotten[f.Seq]; err != nil || !*still {
		return err
	}
	if len(again) == 1 && m.IsSetAside() {
		return t.jobs.SendBack(m)
	}
	if t.forgotten == nil {
		t.forgotten = map[int64]bool{}
	}
	t.forgotten[f.Seq] = true // a redrive would do once more what the others do
	t.Changed(f.Seq)
	for _, j := range again {
		if err := t.submitDocumentJob(rev.No, j); err != nil {
			return err
		}
	}
	return nil
}
