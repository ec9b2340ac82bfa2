package documents

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

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
	Before     int64 // the revision that is live until this one is, as RevisionOf saw it; 0: none
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

// What operations count for in a transaction, in rows of jobs (db.Op.Rows). Several rows of one
// table are written by one statement. So a step of a document takes about as long as three jobs.
const (
	revisionRows   = 3    // a step, without chunks and jobs that it stores
	deletionRows   = 8    // a deletion, with the jobs that it cancels
	chunksOfOneRow = 4    // that are short
	bytesOfOneRow  = 2048 // of chunks, whose words are indexed
)

// rowsOf is what it counts for that so many chunks with so many bytes of text are stored.
func rowsOf(chunks, bytes int) int {
	return (chunks+chunksOfOneRow-1)/chunksOfOneRow + bytes/bytesOfOneRow
}

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
			return []driver.Prefetch{driver.NewPrefetch(sqlLatestRevision, documentRow(n.Tenant, n.DocumentID)).Int(n.Tenant).Text(n.DocumentID),
				prefetchDocumentJobs(n.Tenant, n.DocumentID)}
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
				if err := t.readJobs(prefetchDocumentJobs(n.Tenant, n.DocumentID), latest.No); err != nil {
					return a, err
				}
				a.dropped = t.dropRevision(latest.Tenant, latest.No)
			}
			latest.document.latest = newerRevision
			t.Changed(documentWatch(latest.Document))
			err = t.addRevisionTo(latest.Document, n)
		} else {
			err = t.addDocument(n)
		}
		if err != nil {
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

// addDocument stores the document of an upload, which is new, and its revision.
func (t *tx) addDocument(n NewRevision) error {
	if err := t.Prep(sqlInsertDocument).Int(n.Tenant).Text(n.DocumentID).Int(t.Now).Exec(); err != nil {
		return err
	}
	if err := n.bind(t.Prep(sqlInsertRevision)).Int(t.Now).Int(n.Tenant).Text(n.DocumentID).Exec(); err != nil {
		return err
	}
	return t.Prep(sqlSetLatest).Text(n.ID).Int(n.Tenant).Text(n.DocumentID).Exec()
}

// addRevisionTo stores the revision of an upload, whose document has that number.
func (t *tx) addRevisionTo(document int64, n NewRevision) error {
	if err := n.bind(t.Prep(sqlInsertRevisionOf)).Int(t.Now).Int(n.Tenant).Int(document).Exec(); err != nil {
		return err
	}
	return t.Prep(sqlSetLatestOf).Text(n.ID).Int(document).Text(n.DocumentID).Exec()
}

// bind binds what an upload says of its revision.
func (n *NewRevision) bind(st driver.Statement) driver.Statement {
	return st.Text(n.ID).Blob(n.Hash).Text(n.MediaType).Text(n.Charset).Text(n.Name).Int(n.Size).Text(n.Blob).Blob(n.Metadata).TextOrNull(n.KeyID)
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
	if t.grown == nil {
		t.grown = map[int64]bool{}
	}
	t.grown[revision] = true
	return t.Prep(sqlInsertJob).Int(seq).Int(revision).Text(j.Branch).Int(j.First).Int(j.Last).Exec()
}
