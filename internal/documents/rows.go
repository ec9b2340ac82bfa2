package documents

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// Jobs drive a document's pipeline. One splits the content into chunks, others embed these, and
// one describes the document. Each job's output is recorded in one transaction before the job
// succeeds. If nothing else is missing, that transaction makes the revision live. A job that is
// delivered again finds its output and does not repeat the work.

// Revision is one content of a document.
type Revision struct {
	No         int64
	ID         string
	Tenant     int64
	Document   int64
	Hash       []byte
	MediaType  string
	Charset    string
	Name       string
	Size       int64
	Blob       string
	Metadata   []byte
	KeyID      string
	UploadedAt time.Time
	Title      string
	Language   string
	Entities   []byte
	TextBytes  int64
	Pages      int64
	Tokens     int64
	Chunks     int64
	Embedded   int64
	Split      bool
	Described  bool
	ReadyAt    *time.Time
	Live       bool
	Dropped    bool
}

const revisionColumns = `r.no, r.id, r.tenant, r.document, r.hash, r.media_type, r.charset, r.name, r.size, r.content_blob, r.metadata,
  r.key_id, r.uploaded_at, r.title, r.language, r.entities, r.text_bytes, r.pages, r.tokens, r.chunks, r.embedded, r.split_at, r.described_at,
  r.ready_at, r.live, r.dropped`

func readRevision(r driver.Row) Revision {
	return Revision{
		No: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Document: r.Int(3), Hash: r.Blob(4), MediaType: r.Text(5), Charset: r.Text(6), Name: r.Text(7),
		Size: r.Int(8), Blob: r.Text(9), Metadata: r.Blob(10), KeyID: r.Text(11), UploadedAt: driver.FromMillis(r.Int(12)),
		Title: r.Text(13), Language: r.Text(14), Entities: r.Blob(15), TextBytes: r.Int(16), Pages: r.Int(17), Tokens: r.Int(18), Chunks: r.Int(19),
		Embedded: r.Int(20), Split: !r.IsNull(21), Described: !r.IsNull(22), ReadyAt: driver.FromMillisOrNil(r, 23), Live: !r.IsNull(24), Dropped: r.Int(25) != 0,
	}
}

const revisionNumbers = 26 // of columns

// The branches of a pipeline.
const (
	BranchSplit     = "split"
	BranchEmbedding = "embedding"
	BranchMetadata  = "metadata"
)

// NewRevision is an upload. Its content is in blob storage already.
type NewRevision struct {
	Revision
	DocumentID string
	Guessed    bool        // the media type is a guess
	Split      jobs.NewJob // the first job of its pipeline
}

// AddedRevision is the result of an upload.
type AddedRevision struct {
	Existing bool    // the document has this content already; only name and metadata may be new
	Voided   []int64 // lock tokens of calls for content that was replaced before it was ready
}

// Over returns an upload completed with what the revision has, if the bytes are the same. Values
// of the revision also replace guesses.
func (n NewRevision) Over(r Revision) NewRevision {
	if !bytes.Equal(n.Hash, r.Hash) {
		return n
	}
	if n.Guessed {
		n.MediaType, n.Charset = r.MediaType, r.Charset
	}
	if n.Metadata == nil {
		n.Metadata = r.Metadata
	}
	n.Name, n.Charset = cmp.Or(n.Name, r.Name), cmp.Or(n.Charset, r.Charset)
	return n
}

// SameText reports whether two revisions have the same text: the same bytes in the same charset.
// Text without a known charset is read as UTF-8.
func (r Revision) SameText(o Revision) bool {
	return bytes.Equal(r.Hash, o.Hash) && r.MediaType == o.MediaType && strings.EqualFold(cmp.Or(r.Charset, "utf-8"), cmp.Or(o.Charset, "utf-8"))
}

// SameLabels reports whether two revisions have the same name and metadata.
func (r Revision) SameLabels(o Revision) bool {
	return r.Name == o.Name && bytes.Equal(r.Metadata, o.Metadata)
}

// revisionRows is about how many rows a step of a document reads and writes, with its job and
// without its chunks.
const revisionRows = 8

// documentRow names a document by its id.
func documentRow(tenant int64, id string) driver.RowName {
	return driver.RowName{Of: "documents", No: tenant, ID: id}
}

// AddRevision stores an upload and its first job. The document's former content stays live until
// this one is ready. Content that was still being processed is dropped. If only the name or the
// metadata are new, only these are stored: chunks and vectors do not depend on them.
func (s *Store) AddRevision(ctx context.Context, n NewRevision) (AddedRevision, error) {
	type stored struct {
		existing bool
		dropped  *dropped // the former revision; nil: none
	}
	o := db.Op{Stage: db.StageSubmit, Party: n.Tenant, Rows: revisionRows, Numbers: 1, Size: len(n.Metadata), Local: true, Interleaves: true,
		Asks: func() []driver.Prefetch {
			return []driver.Prefetch{driver.NewPrefetch(sqlLatestRevision, documentRow(n.Tenant, n.DocumentID)).Int(n.Tenant).Text(n.DocumentID)}
		}}
	a, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (a stored, err error) {
		latest, err := t.read(t.Prep(sqlLatestRevision).Int(n.Tenant).Text(n.DocumentID))
		if err != nil {
			return a, err
		}
		n, found := n, latest != nil
		if found {
			if n = n.Over(latest.Revision); n.SameText(latest.Revision) {
				return stored{existing: true}, t.relabel(latest, n.Revision)
			}
			if !latest.Live {
				if a.dropped, err = t.dropRevision(latest.Tenant, latest.No); err != nil {
					return a, err
				}
			}
			latest.document.latest = newerRevision
			t.Changed(documentWatch(latest.Document))
		} else if err := t.Prep(sqlInsertDocument).Int(n.Tenant).Text(n.DocumentID).Int(t.Now).Exec(); err != nil {
			return a, err
		}
		err = t.Prep(sqlInsertRevision).Text(n.ID).Blob(n.Hash).Text(n.MediaType).Text(n.Charset).Text(n.Name).Int(n.Size).Text(n.Blob).Blob(n.Metadata).
			TextOrNull(n.KeyID).Int(t.Now).Int(n.Tenant).Text(n.DocumentID).Exec()
		if err != nil {
			return a, err
		}
		if err := t.Prep(sqlSetLatest).Text(n.ID).Int(n.Tenant).Text(n.DocumentID).Exec(); err != nil {
			return a, err
		}
		seq, err := t.submitJob(&n.Split)
		if err != nil {
			return a, err
		}
		return a, t.Prep(sqlInsertFirstJob).Int(seq).Text(BranchSplit).Text(n.ID).Exec()
	})
	added := AddedRevision{Existing: a.existing}
	if d := a.dropped; d != nil {
		if added.Voided = d.voided; d.more {
			added.Voided = s.cancelDropped(ctx, n.Tenant, d.revision, d.voided)
		}
	}
	return added, err
}

// relabel gives a revision the name and the metadata of an upload.
func (t *tx) relabel(rev *revisionState, upload Revision) error {
	if upload.SameLabels(rev.Revision) {
		return nil
	}
	t.Changed(documentWatch(rev.Document))
	rev.Name, rev.Metadata = upload.Name, upload.Metadata
	return t.Prep(sqlRelabel).Text(upload.Name).Blob(upload.Metadata).Int(rev.No).Exec()
}

// DocumentJob is a job of a revision's pipeline.
type DocumentJob struct {
	Branch      string
	First, Last int64 // chunks
	Job         jobs.NewJob
}

// submitJob submits a job and returns its number.
func (t *tx) submitJob(j *jobs.NewJob) (seq int64, err error) {
	submitted, err := t.jobs.Submit(j)
	if err == nil {
		err = submitted.Err
	}
	return submitted.Seq, err
}

func (t *tx) submitDocumentJob(revision int64, j DocumentJob) error {
	seq, err := t.submitJob(&j.Job)
	if err != nil {
		return err
	}
	return t.Prep(sqlInsertJob).Int(seq).Int(revision).Text(j.Branch).Int(j.First).Int(j.Last).Exec()
}

// dropJobs is how many jobs of a dropped revision are cancelled in one transaction.
const dropJobs = 16

// dropped is a dropped revision. The transaction cancels some of its jobs.
type dropped struct {
	revision int64
	voided   []int64 // tokens of their locks
	more     bool    // others are left
}

// dropRevision takes a revision out of searches and out of its pipeline. The first of its jobs are
// cancelled as the transaction ends. cancelDropped cancels the others, and PurgeDocuments removes
// the rest.
func (t *tx) dropRevision(tenant, no int64) (*dropped, error) {
	if t.dropped == nil {
		t.dropped = map[int64]bool{}
	}
	t.dropped[no] = true
	if known := t.revisions[no]; known != nil {
		known.Dropped, known.Live = true, false
	}
	t.Changed(droppedWatch(tenant))
	return t.cancelLater(no), t.Prep(sqlDropRevision).Int(no).Exec()
}

const sqlJobsToCancel = `
SELECT d.seq FROM document_jobs d JOIN messages m ON m.seq = d.seq WHERE d.revision = ? ORDER BY m.lock_token IS NULL, d.seq LIMIT ? + 0`

// cancelJobs cancels some of the jobs of each of the dropped revisions.
func (t *tx) cancelJobs(list []*dropped) error {
	var seqs []int64
	var of []*dropped // whose job each is
	found := map[*dropped]int{}
	asks := make([]driver.Prefetch, len(list))
	for i, d := range list {
		asks[i] = driver.NewPrefetch(sqlJobsToCancel, driver.RowName{Of: "document_jobs", No: d.revision}).Int(d.revision).Int(dropJobs)
	}
	if err := t.Prefetch(asks); err != nil {
		return err
	}
	for _, d := range list {
		err := t.Prep(sqlJobsToCancel).Int(d.revision).Int(dropJobs).Each(func(r driver.Row) error {
			seqs, of, found[d] = append(seqs, r.Int(0)), append(of, d), found[d]+1
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, seq := range seqs {
		if t.cancelling == nil {
			t.cancelling = map[int64]bool{}
		}
		t.cancelling[seq] = true
		if err := t.Prep(sqlForgetJob).Int(seq).Exec(); err != nil {
			return err
		}
		if err := t.Prep(sqlForgetDeadLetter).Int(seq).Exec(); err != nil {
			return err
		}
	}
	cancelled, err := t.jobs.CancelAll(seqs)
	if err != nil {
		return err
	}
	for i, c := range cancelled {
		if c.Token != 0 {
			of[i].voided = append(of[i].voided, c.Token)
		}
	}
	for _, d := range list {
		if d.more = found[d] == dropJobs; d.more {
			continue
		}
		if err := t.Prep(sqlForgetJobsOf).Int(d.revision).Exec(); err != nil {
			return err
		}
	}
	return nil
}

// cancelDropped cancels the remaining jobs of a revision, step by step, and adds the tokens of
// voided locks. If it fails, PurgeDocuments handles the others.
func (s *Store) cancelDropped(ctx context.Context, tenant, no int64, voided []int64) []int64 {
	o := db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + dropJobs, Local: true, Interleaves: true}
	for {
		d, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (*dropped, error) { return t.cancelLater(no), nil })
		if err != nil {
			return voided
		}
		if voided = append(voided, d.voided...); !d.more {
			return voided
		}
	}
}

const sqlRevisionsOf = `
SELECT d.no, coalesce(r.no, 0), CASE WHEN r.no = d.latest THEN r.id END FROM documents d LEFT JOIN document_revisions r ON r.document = d.no AND r.dropped = 0 WHERE d.tenant = ? AND d.id = ?`

// DeleteDocument takes a document out of searches at once. PurgeDocuments removes its rows and
// contents. It returns the tokens of locks that it voided, or forebay.ErrNotFound. The audit row
// is written with it.
func (s *Store) DeleteDocument(ctx context.Context, tenant int64, id string, entry audit.Act) (voided []int64, err error) {
	o := db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + dropJobs, Local: true, Interleaves: true, Hints: audit.Appends{},
		Asks: func() []driver.Prefetch {
			return []driver.Prefetch{driver.NewPrefetch(sqlRevisionsOf, documentRow(tenant, id)).Int(tenant).Text(id)}
		}}
	revisions, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (list []*dropped, err error) {
		var document int64
		var latest string
		var revisions []int64
		err = t.Prep(sqlRevisionsOf).Int(tenant).Text(id).Each(func(r driver.Row) error {
			if document = r.Int(0); r.Int(1) != 0 {
				revisions = append(revisions, r.Int(1))
			}
			if revision := r.Text(2); revision != "" {
				latest = revision
			}
			return nil
		})
		if err == nil && document == 0 {
			err = forebay.ErrNotFound
		}
		if err == nil {
			err = forebay.ConditionOf(ctx).Check(revisionETag(latest))
		}
		if err != nil {
			return nil, err
		}
		if err := t.Prep(sqlDeleteDocument).Int(document).Exec(); err != nil {
			return nil, err
		}
		if err := audit.Append(t.Tx, entry); err != nil {
			return nil, err
		}
		t.Changed(documentWatch(document))
		for _, no := range revisions {
			d, err := t.dropRevision(tenant, no)
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
		return list, nil
	})
	for _, d := range revisions {
		if voided = append(voided, d.voided...); d.more {
			voided = s.cancelDropped(ctx, tenant, d.revision, voided)
		}
	}
	return voided, err
}

// purgeChunks is how many chunks one transaction removes.
const purgeChunks = 100

// sqlFirstDropped finds the oldest dropped revision. ?1 is 0.
const sqlFirstDropped = `
SELECT r.no, r.tenant, r.content_blob,
  CASE WHEN EXISTS (SELECT 1 FROM document_jobs d WHERE d.revision = r.no AND (SELECT count(*) FROM messages m WHERE m.seq = d.seq) > 0) THEN 1 ELSE 0 END,
  CASE WHEN EXISTS (SELECT 1 FROM chunks c WHERE c.revision = r.no) THEN 1 ELSE 0 END
FROM document_revisions r WHERE r.dropped = 1 AND r.no > ? ORDER BY r.no LIMIT 1`

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
		return p, t.Prep("DELETE FROM document_indexes WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1)").Int(tenant).Exec()
	})
	return p.blob, p.more, err
}

// removeChunks removes the first chunks of a revision, at most so many.
func (t *tx) removeChunks(revision, most int64) error {
	const first = "(SELECT no FROM chunks WHERE revision = ?1 ORDER BY number LIMIT ?2 + 0)"
	for _, of := range []string{"chunk_vectors WHERE chunk", "chunk_codes WHERE revision = ?1 AND chunk", "chunks WHERE no"} {
		if err := t.Prep("DELETE FROM " + of + " IN " + first).Int(revision).Int(most).Exec(); err != nil {
			return err
		}
	}
	return nil
}
