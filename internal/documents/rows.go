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

// AddRevision stores an upload and its first job. The document's former content stays live until
// this one is ready. Content that was still being processed is dropped. If only the name or the
// metadata are new, only these are stored: chunks and vectors do not depend on them.
func (s *Store) AddRevision(ctx context.Context, n NewRevision) (AddedRevision, error) {
	var left int64 // the former revision, which has jobs left
	added, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageSubmit, Party: n.Tenant, Rows: revisionRows, Size: len(n.Metadata)}, func(t *tx) (a AddedRevision, err error) {
		left = 0 // it may be the second attempt
		var document int64
		var latest Revision
		found, err := t.Prep("SELECT " + revisionColumns + ", d.no FROM documents d JOIN document_revisions r ON r.no = d.latest WHERE d.tenant = ? AND d.id = ?").
			Int(n.Tenant).Text(n.DocumentID).One(func(r driver.Row) { latest, document = readRevision(r), r.Int(revisionNumbers) })
		if err != nil {
			return a, err
		}
		n := n.Over(latest)
		if found && n.SameText(latest) {
			return AddedRevision{Existing: true}, t.relabel(latest, n.Revision)
		}
		if found && !latest.Live {
			d, err := t.dropRevision(latest.No)
			if err != nil {
				return a, err
			}
			if a.Voided = d.voided; d.more {
				left = latest.No
			}
		}
		if !found {
			if _, err := t.Prep("INSERT INTO documents (tenant, id, latest, created_at) VALUES (?, ?, 0, ?) RETURNING no").
				Int(n.Tenant).Text(n.DocumentID).Int(t.Now).One(func(r driver.Row) { document = r.Int(0) }); err != nil {
				return a, err
			}
		}
		var no int64
		_, err = t.Prep(`INSERT INTO document_revisions (id, tenant, document, hash, media_type, charset, name, size, content_blob, metadata, key_id, uploaded_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no`).Text(n.ID).Int(n.Tenant).Int(document).Blob(n.Hash).Text(n.MediaType).Text(n.Charset).
			Text(n.Name).Int(n.Size).Text(n.Blob).Blob(n.Metadata).TextOrNull(n.KeyID).Int(t.Now).One(func(r driver.Row) { no = r.Int(0) })
		if err != nil {
			return a, err
		}
		if err := t.Prep("UPDATE documents SET latest = ? WHERE no = ?").Int(no).Int(document).Exec(); err != nil {
			return a, err
		}
		t.Changed(documentWatch(document))
		return a, t.submitDocumentJob(no, DocumentJob{Branch: BranchSplit, Job: n.Split})
	})
	if left != 0 && err == nil {
		added.Voided = s.cancelDropped(ctx, n.Tenant, left, added.Voided)
	}
	return added, err
}

// relabel gives a revision the name and the metadata of an upload.
func (t *tx) relabel(rev, upload Revision) error {
	if upload.SameLabels(rev) {
		return nil
	}
	t.Changed(documentWatch(rev.Document))
	return t.Prep("UPDATE document_revisions SET name = ?, metadata = ? WHERE no = ?").Text(upload.Name).Blob(upload.Metadata).Int(rev.No).Exec()
}

// DocumentJob is a job of a revision's pipeline.
type DocumentJob struct {
	Branch      string
	First, Last int64 // chunks
	Job         jobs.NewJob
}

func (t *tx) submitDocumentJob(revision int64, j DocumentJob) error {
	submitted, err := t.jobs.Submit(&j.Job)
	if err == nil {
		err = submitted.Err
	}
	if err != nil {
		return err
	}
	return t.Prep("INSERT INTO document_jobs (seq, revision, branch, first, last) VALUES (?, ?, ?, ?, ?)").
		Int(submitted.Seq).Int(revision).Text(j.Branch).Int(j.First).Int(j.Last).Exec()
}

// dropJobs is how many jobs of a dropped revision are cancelled in one transaction.
const dropJobs = 16

// dropRevision takes a revision out of searches and out of its pipeline. It cancels the first of
// its jobs. cancelDropped cancels the others, and PurgeDocuments removes the rest. It returns the
// tokens of locks that it voided, and whether there are more jobs.
func (t *tx) dropRevision(no int64) (d dropped, err error) {
	_, err = t.Prep("UPDATE document_revisions SET dropped = 1, live = NULL WHERE no = ? RETURNING tenant").Int(no).
		One(func(r driver.Row) { t.Changed(droppedWatch(r.Int(0))) })
	if err != nil {
		return d, err
	}
	return t.cancelDropped(no)
}

// dropped is the result of cancelling some of a revision's jobs.
type dropped struct {
	voided []int64 // tokens of locks
	more   bool    // others are left
}

// cancelDropped cancels some of the jobs of a dropped revision.
func (t *tx) cancelDropped(no int64) (d dropped, err error) {
	var seqs []int64
	err = t.Prep("SELECT d.seq FROM document_jobs d JOIN messages m ON m.seq = d.seq WHERE d.revision = ? ORDER BY m.lock_token IS NULL, d.seq LIMIT ? + 0").
		Int(no).Int(dropJobs).Each(func(r driver.Row) error { seqs = append(seqs, r.Int(0)); return nil })
	if err != nil {
		return d, err
	}
	for _, seq := range seqs {
		if err := t.Prep("DELETE FROM document_jobs WHERE seq = ?").Int(seq).Exec(); err != nil {
			return d, err
		}
		if err := t.Prep("DELETE FROM messages WHERE seq = ? AND subqueue % 4 >= 2").Int(seq).Exec(); err != nil {
			return d, err
		}
		c, err := t.jobs.Cancel(seq)
		if err != nil {
			return d, err
		}
		if c.Token != 0 {
			d.voided = append(d.voided, c.Token)
		}
	}
	if d.more = len(seqs) == dropJobs; d.more {
		return d, nil
	}
	return d, t.Prep("DELETE FROM document_jobs WHERE revision = ?").Int(no).Exec()
}

// cancelDropped cancels the remaining jobs of a revision, step by step, and adds the tokens of
// voided locks. If it fails, PurgeDocuments handles the others.
func (s *Store) cancelDropped(ctx context.Context, tenant, no int64, voided []int64) []int64 {
	for {
		d, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + dropJobs}, func(t *tx) (dropped, error) { return t.cancelDropped(no) })
		if err != nil {
			return voided
		}
		if voided = append(voided, d.voided...); !d.more {
			return voided
		}
	}
}

// DeleteDocument takes a document out of searches at once. PurgeDocuments removes its rows and
// contents. It returns the tokens of locks that it voided, or forebay.ErrNotFound. The audit row
// is written with it.
func (s *Store) DeleteDocument(ctx context.Context, tenant int64, id string, entry audit.Act) (voided []int64, err error) {
	type deleted struct {
		voided []int64
		left   []int64 // revisions with jobs
	}
	d, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + dropJobs}, func(t *tx) (d deleted, err error) {
		var document int64
		found, err := t.Prep("DELETE FROM documents WHERE tenant = ? AND id = ? RETURNING no").Int(tenant).Text(id).One(func(r driver.Row) { document = r.Int(0) })
		if err != nil {
			return d, err
		}
		if !found {
			return d, forebay.ErrNotFound
		}
		if err := audit.Append(t.Tx, entry); err != nil {
			return d, err
		}
		t.Changed(documentWatch(document))
		var revisions []int64
		err = t.Prep("SELECT no FROM document_revisions WHERE document = ? AND dropped = 0").Int(document).
			Each(func(r driver.Row) error { revisions = append(revisions, r.Int(0)); return nil })
		for _, no := range revisions {
			if err != nil {
				break
			}
			var some dropped
			some, err = t.dropRevision(no)
			if d.voided = append(d.voided, some.voided...); some.more {
				d.left = append(d.left, no)
			}
		}
		return d, err
	})
	for _, no := range d.left {
		d.voided = s.cancelDropped(ctx, tenant, no, d.voided)
	}
	return d.voided, err
}

// purgeChunks is how many chunks one transaction removes.
const purgeChunks = 100

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
	p, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (p purged, err error) {
		var no, tenant int64
		p.more, err = t.Prep("SELECT no, tenant, content_blob FROM document_revisions WHERE dropped = 1 ORDER BY no LIMIT 1").
			One(func(r driver.Row) { no, tenant, p.blob = r.Int(0), r.Int(1), r.Text(2) })
		if err != nil || !p.more {
			return purged{}, err
		}
		if d, err := t.cancelDropped(no); err != nil || d.more {
			return purged{more: true}, err
		}
		if removed, err := t.removeChunks(no, purgeChunks); err != nil || removed > 0 {
			return purged{more: true}, err
		}
		if err := t.Prep("DELETE FROM document_revisions WHERE no = ?").Int(no).Exec(); err != nil {
			return p, err
		}
		return p, t.Prep("DELETE FROM document_indexes WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1)").Int(tenant).Exec()
	})
	return p.blob, p.more, err
}

// removeChunks removes the first chunks of a revision, at most so many, and returns how many
// there were.
func (t *tx) removeChunks(revision, most int64) (removed int, err error) {
	const first = "(SELECT no FROM chunks WHERE revision = ?1 ORDER BY number LIMIT ?2 + 0)"
	for _, of := range []string{"chunk_vectors WHERE ", "chunk_codes WHERE revision = ?1 AND "} {
		if err := t.Prep("DELETE FROM " + of + "chunk IN " + first).Int(revision).Int(most).Exec(); err != nil {
			return 0, err
		}
	}
	return t.Prep("DELETE FROM chunks WHERE no IN " + first).Int(revision).Int(most).Count()
}
