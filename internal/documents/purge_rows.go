package documents

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// purgeChunks is how many chunks one transaction removes.
const purgeChunks = 100

// sqlFirstDropped finds the oldest dropped revision. ?1 is 0.
const sqlFirstDropped = `
SELECT r.no, r.tenant, r.content_blob,
  coalesce((SELECT 1 FROM document_jobs d WHERE d.revision = r.no AND (SELECT count(*) FROM messages m WHERE m.seq = d.seq) > 0 LIMIT 1), 0),
  coalesce((SELECT 1 FROM chunks c WHERE c.revision = r.no LIMIT 1), 0)
FROM document_revisions r WHERE r.dropped = 1 AND r.no > ? ORDER BY r.no LIMIT 1`

// sqlForgetIndex forgets the index of a tenant that has no revision left. What is not dropped
// belongs to a document. No index finds the other revisions of a tenant.
const sqlForgetIndex = `
DELETE FROM document_indexes WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM documents WHERE tenant = ?1)
  AND NOT EXISTS (SELECT 1 FROM document_revisions WHERE dropped = 1 AND tenant = ?1)`

// PurgeDocuments removes some of the rows of dropped revisions, oldest first, and returns whether
// there may be more. It also returns the content of a revision that is gone now, for the caller
// to delete.
func (s *Store) PurgeDocuments(ctx context.Context) (blob string, more bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		more, err = c.Prep("SELECT 1 FROM document_revisions WHERE dropped = 1 LIMIT 1").One(func(driver.Row) {})
		return err
	})
	if err != nil || !more {
		return "", false, err
	}
	type purged struct {
		blob string
		more bool
	}
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Asks: func() []driver.Prefetch {
		return []driver.Prefetch{driver.NewPrefetch(sqlFirstDropped, driver.RowName{Of: "dropped revisions"}).Int(0)}
	}}
	p, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (p purged, err error) {
		var no, tenant int64
		var someJobs, someChunks bool
		p.more, err = t.Prep(sqlFirstDropped).Int(0).One(func(r driver.Row) {
			no, tenant, p.blob, someJobs, someChunks = r.Int(0), r.Int(1), r.Text(2), r.Int(3) != 0, r.Int(4) != 0
		})
		switch {
		case err != nil || !p.more:
			return purged{}, err
		case someJobs:
			t.cancelLater(no)
			return purged{more: true}, nil
		case someChunks:
			return purged{more: true}, t.removeChunks(no, purgeChunks)
		}
		for _, sql := range []string{sqlForgetJobsOf, "DELETE FROM document_revisions WHERE no = ?"} {
			if err := t.Prep(sql).Int(no).Exec(); err != nil {
				return p, err
			}
		}
		return p, t.Prep(sqlForgetIndex).Int(tenant).Exec()
	})
	return p.blob, p.more, err
}

// The first chunks of a revision, and of each of many revisions, at most so many.
const (
	firstChunks     = "(SELECT no FROM chunks WHERE revision = ?1 ORDER BY number LIMIT ?2 + 0)"
	eachFirstChunks = " USING %s, LATERAL (SELECT f.no FROM chunks f WHERE f.revision = p1 ORDER BY f.number LIMIT p2 + 0) f WHERE "
)

var ofChunks = driver.Rows{Table: "chunks", Of: "revision", By: 1}

// sqlRemoveChunks remove the first chunks of a revision, those that refer to them before them.
var sqlRemoveChunks = []string{
	driver.Only(driver.BatchForm("DELETE FROM chunk_vectors WHERE chunk IN "+firstChunks,
		"DELETE FROM chunk_vectors v"+eachFirstChunks+"v.chunk = ANY (ARRAY[f.no])"), driver.Rows{Table: "chunk_vectors"}, ofChunks),
	driver.Only(driver.BatchForm("DELETE FROM chunk_codes WHERE revision = ?1 AND chunk IN "+firstChunks,
		"DELETE FROM chunk_codes v"+eachFirstChunks+"v.revision = ANY (ARRAY[p1]) AND v.chunk = ANY (ARRAY[f.no])"),
		driver.Rows{Table: "chunk_codes", Of: "revision", By: 1}, ofChunks),
	driver.Only(driver.BatchForm("DELETE FROM chunks WHERE no IN "+firstChunks,
		"DELETE FROM chunks c"+eachFirstChunks+"c.no = ANY (ARRAY[f.no])"), ofChunks),
}

// removeChunks removes the first chunks of a revision, at most so many.
func (t *tx) removeChunks(revision, most int64) error {
	for _, sql := range sqlRemoveChunks {
		if err := t.Prep(sql).Int(revision).Int(most).Exec(); err != nil {
			return err
		}
	}
	return nil
}
