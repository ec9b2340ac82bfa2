package documents

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/listing"
)

// documentsInOrder: documents are numbered in the order of their creation.
var documentsInOrder = listing.NewChronology("documents", "no")

// documentWatch is what a document is watched by: jobs have numbers above 0.
func documentWatch(no int64) int64 { return -no }

// droppedWatch is the key by which a tenant's dropped contents are watched. No document has such
// a number.
func droppedWatch(tenant int64) int64 { return math.MinInt64 + tenant }

// DocumentRow is a document with its latest revision and the failed jobs of that.
type DocumentRow struct {
	No         int64
	ID         string
	CreatedAt  time.Time
	Searchable bool
	Latest     Revision
	Failed     []FailedJob
}

// revisionETag is the entity tag of a document: of its latest content, by the id of the revision.
func revisionETag(id string) string { return forebay.ETagOf(id) }

// FailedJob is a job of a revision that has failed.
type FailedJob struct {
	Seq         int64
	ID          string // "": it was purged
	Branch      string
	First, Last int64
	Code        string
	Message     []byte
}

const sqlDocuments = "SELECT " + revisionColumns + `, owned.no, owned.id, owned.created_at,
  coalesce((SELECT 1 FROM document_revisions l WHERE l.document = owned.no AND l.live IS NOT NULL LIMIT 1), 0)
FROM documents owned JOIN document_revisions r ON r.no = owned.latest `

func readDocument(r driver.Row) DocumentRow {
	return DocumentRow{Latest: readRevision(r), No: r.Int(revisionNumbers), ID: r.Text(revisionNumbers + 1), CreatedAt: driver.FromMillis(r.Int(revisionNumbers + 2)),
		Searchable: r.Int(revisionNumbers+3) != 0}
}

// Document returns a document of the tenant, or forebay.ErrNotFound.
func (s *Store) Document(ctx context.Context, tenant int64, id string) (d DocumentRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlDocuments + "WHERE owned.tenant = ? AND owned.id = ?").Int(tenant).Text(id).One(func(r driver.Row) { d = readDocument(r) })
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
	Below         int64 // only lower numbers; 0: begin with the newest
	Limit         int
	CreatedAfter  int64 // in milliseconds; 0: since ever
	CreatedBefore int64 // 0: until now
}

// Documents returns documents, newest first, and the number to go on below; 0: there is no more.
// It reads only the part of the history that the times select.
func (s *Store) Documents(ctx context.Context, q DocumentQuery) (list []DocumentRow, next int64, err error) {
	const noBound = 1 << 62
	limit := q.Limit
	err = s.Read(ctx, func(c driver.Conn) error {
		list, next = nil, 0
		from, below, before := int64(0), cmp.Or(q.Below, noBound), cmp.Or(q.CreatedBefore, noBound)
		var err error
		if q.CreatedAfter > 0 {
			if from, err = documentsInOrder.FirstSince(c, q.Tenant, q.CreatedAfter-listing.CreatedSlack); err != nil {
				return err
			}
		}
		if q.CreatedBefore > 0 {
			first, err := documentsInOrder.FirstSince(c, q.Tenant, before+listing.CreatedSlack)
			if err != nil {
				return err
			}
			below = min(below, first)
		}
		err = c.Prep(sqlDocuments + "WHERE owned.tenant = ? AND owned.no >= ? AND owned.no < ? AND owned.created_at >= ? AND owned.created_at < ? ORDER BY owned.no DESC LIMIT ? + 0").
			Int(q.Tenant).Int(from).Int(below).Int(q.CreatedAfter).Int(before).Int(int64(limit) + 1).
			Each(func(r driver.Row) error { list = append(list, readDocument(r)); return nil })
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

func failedJobs(c driver.Conn, rev Revision, limit int) (failed []FailedJob, err error) {
	if rev.Live {
		return nil, nil
	}
	err = c.Prep(`SELECT d.seq, j.id, d.branch, d.first, d.last, d.error_code, d.error_message FROM document_jobs d LEFT JOIN jobs j ON j.seq = d.seq
		WHERE d.revision = ? AND d.error_code IS NOT NULL AND d.done = 0 ORDER BY d.seq LIMIT ? + 0`).Int(rev.No).Int(int64(limit)).Each(func(r driver.Row) error {
		failed = append(failed, FailedJob{Seq: r.Int(0), ID: r.Text(1), Branch: r.Text(2), First: r.Int(3), Last: r.Int(4), Code: r.Text(5), Message: r.Blob(6)})
		return nil
	})
	return failed, err
}

// WatchDocument is Watch for changes of a document.
func (s *Store) WatchDocument(no int64) (changes <-chan struct{}, stop func()) {
	return s.Watch(documentWatch(no))
}

// WatchDropped is Watch for contents of a tenant's documents that are no longer live.
func (s *Store) WatchDropped(tenant int64) (drops <-chan struct{}, stop func()) {
	return s.Watch(droppedWatch(tenant))
}

// BlobsInUse calls used with those keys that their revision refers to. A key contains the id of
// its revision.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error {
		for key, id := range ids {
			if _, err := c.Prep("SELECT 1 FROM document_revisions WHERE id = ? AND content_blob = ?").Text(id).Text(key).One(func(driver.Row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
