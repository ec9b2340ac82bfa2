package store

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/forebayhq/forebay"
)

// documentWatch is what a document is watched by: jobs have numbers above 0.
func documentWatch(no int64) int64 { return -no }

// droppedWatch is what the contents that a tenant drops are watched by: no document has such a number.
func droppedWatch(tenant int64) int64 { return math.MinInt64 + tenant }

// DocumentRow is a document, with its latest revision and what failed of that.
type DocumentRow struct {
	No         int64
	ID         string
	CreatedAt  time.Time
	Searchable bool
	Latest     Revision
	Failed     []FailedJob
}

// FailedJob is a job of a revision that has failed.
type FailedJob struct {
	Seq         int64
	ID          string // "": it was purged
	Branch      string
	First, Last int64
	Code        string
	Message     []byte
}

const sqlDocuments = "SELECT " + revisionColumns + `, d.no, d.id, d.created_at,
  CASE WHEN EXISTS (SELECT 1 FROM document_revisions l WHERE l.document = d.no AND l.live IS NOT NULL) THEN 1 ELSE 0 END
FROM documents d JOIN document_revisions r ON r.no = d.latest `

func readDocument(r row) DocumentRow {
	return DocumentRow{Latest: readRevision(r), No: r.int(revisionNumbers), ID: r.text(revisionNumbers + 1), CreatedAt: fromMillis(r.int(revisionNumbers + 2)),
		Searchable: r.int(revisionNumbers+3) != 0}
}

// Document returns a document of the tenant, or forebay.ErrNotFound.
func (s *DocumentStore) Document(ctx context.Context, tenant int64, id string) (d DocumentRow, err error) {
	err = s.read(ctx, func(c conn) error {
		found, err := c.prep(sqlDocuments + "WHERE d.tenant = ? AND d.id = ?").int(tenant).text(id).one(func(r row) { d = readDocument(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err == nil {
			d.Failed, err = failedJobs(c, d.Latest, maxFailed)
		}
		return err
	})
	return d, err
}

// maxFailed is how many failed jobs of a document are read.
const maxFailed = 1000

// DocumentQuery selects documents of a tenant.
type DocumentQuery struct {
	Tenant        int64
	Below         int64 // a number: 0 begins with the newest
	Limit         int
	CreatedAfter  int64 // in milliseconds; 0: since ever
	CreatedBefore int64 // 0: until now
}

// Documents returns documents, newest first, and where the next page starts: the number to go below, 0 when there
// is no more. Of a tenant's history it reads what the times leave.
func (s *DocumentStore) Documents(ctx context.Context, q DocumentQuery) (list []DocumentRow, next int64, err error) {
	const noBound = 1 << 62
	limit := q.Limit
	err = s.read(ctx, func(c conn) error {
		list, next = nil, 0
		from, below, before := int64(0), cmp.Or(q.Below, noBound), cmp.Or(q.CreatedBefore, noBound)
		var err error
		if q.CreatedAfter > 0 {
			if from, err = firstSince(c, documentsInOrder, q.Tenant, q.CreatedAfter-createdSlack); err != nil {
				return err
			}
		}
		if q.CreatedBefore > 0 {
			first, err := firstSince(c, documentsInOrder, q.Tenant, before+createdSlack)
			if err != nil {
				return err
			}
			below = min(below, first)
		}
		err = c.prep(sqlDocuments + "WHERE d.tenant = ? AND d.no >= ? AND d.no < ? AND d.created_at >= ? AND d.created_at < ? ORDER BY d.no DESC LIMIT ? + 0").
			int(q.Tenant).int(from).int(below).int(q.CreatedAfter).int(before).int(int64(limit) + 1).
			each(func(r row) error { list = append(list, readDocument(r)); return nil })
		if err != nil {
			return err
		}
		if len(list) > limit {
			list, next = list[:limit], list[limit-1].No
		}
		for i := range list {
			if list[i].Failed, err = failedJobs(c, list[i].Latest, 10); err != nil {
				return err
			}
		}
		return nil
	})
	return list, next, err
}

func failedJobs(c conn, rev Revision, limit int) (failed []FailedJob, err error) {
	if rev.Live {
		return nil, nil
	}
	err = c.prep(`SELECT d.seq, j.id, d.branch, d.first, d.last, d.error_code, d.error_message FROM document_jobs d LEFT JOIN jobs j ON j.seq = d.seq
		WHERE d.revision = ? AND d.error_code IS NOT NULL AND d.done = 0 ORDER BY d.seq LIMIT ? + 0`).int(rev.No).int(int64(limit)).each(func(r row) error {
		failed = append(failed, FailedJob{Seq: r.int(0), ID: r.text(1), Branch: r.text(2), First: r.int(3), Last: r.int(4), Code: r.text(5), Message: r.blob(6)})
		return nil
	})
	return failed, err
}

// RetryDocument sends failed jobs of a document's revision back, a few in a transaction. One that cannot be, or that is to be
// several now, is replaced by what stands for it in again. It returns how many of them had failed still.
func (s *DocumentStore) RetryDocument(ctx context.Context, tenant int64, revisionID string, failed []FailedJob, again [][]DocumentJob) (retried int, err error) {
	for len(failed) > 0 {
		n, rows := 0, revisionRows
		for ; n < len(failed) && (n == 0 || rows+len(again[n]) <= revisionRows+dropJobs); n++ {
			rows += max(len(again[n]), 1)
		}
		step, jobs := failed[:n], again[:n]
		some, err := transactIn(ctx, documentsKey, s.writer, op{stage: stageSubmit, party: tenant, rows: rows}, func(t *documentsTx) (int, error) { return t.retryDocument(tenant, revisionID, step, jobs) })
		retried += some
		if err != nil {
			return retried, err
		}
		failed, again = failed[n:], again[n:]
	}
	return retried, nil
}

func (t *documentsTx) retryDocument(tenant int64, revisionID string, failed []FailedJob, again [][]DocumentJob) (retried int, err error) {
	rev, err := revisionOf(t.conn, tenant, revisionID)
	if err != nil {
		return 0, err
	}
	for i, f := range failed {
		still := false
		_, err := t.prep("SELECT 1 FROM document_jobs WHERE seq = ? AND revision = ? AND error_code IS NOT NULL AND done = 0").int(f.Seq).int(rev.No).
			one(func(row) { still = true })
		if err != nil {
			return retried, err
		}
		if !still {
			continue
		}
		retried++
		if len(again[i]) == 1 {
			redriven, err := t.jobs.redrive(Redrive{Seq: f.Seq})
			if err != nil {
				return retried, err
			}
			if redriven {
				continue
			}
		}
		if err := t.prep("DELETE FROM document_jobs WHERE seq = ?").int(f.Seq).exec(); err != nil {
			return retried, err
		}
		if _, err := t.jobs.purgeSetAside(f.Seq); err != nil { // a redrive would do once more what the others do
			return retried, err
		}
		for _, j := range again[i] {
			if err := t.submitDocumentJob(rev.No, j); err != nil {
				return retried, err
			}
		}
	}
	t.changed(documentWatch(rev.Document))
	return retried, nil
}

// WatchDocument is Watch for what happens to a document.
func (s *DocumentStore) WatchDocument(no int64) (changes <-chan struct{}, stop func()) {
	return s.Watch(documentWatch(no))
}

// WatchDropped is Watch for contents of a tenant's documents that searches find no more.
func (s *DocumentStore) WatchDropped(tenant int64) (drops <-chan struct{}, stop func()) {
	return s.Watch(droppedWatch(tenant))
}

// BlobsInUse calls used with those of the keys that the revision with the id under which the key stands refers to.
func (s *DocumentStore) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.read(ctx, func(c conn) error {
		for key, id := range ids {
			if _, err := c.prep("SELECT 1 FROM document_revisions WHERE id = ? AND content_blob = ?").text(id).text(key).one(func(row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
