package documents

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// errRevisionGone says that the revision was replaced or deleted meanwhile.
var errRevisionGone = forebay.Errorf(forebay.CodeGone, "this content of the document was replaced or deleted")

// errTakenOver says that another job stores the chunks now: the latest one to begin goes on.
var errTakenOver = forebay.Errorf(forebay.CodeConflict, "another process has begun to split this document")

// RevisionOf returns the revision with that id if it is the tenant's, or errRevisionGone.
func (s *Store) RevisionOf(ctx context.Context, tenant int64, id string) (rev Revision, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		rev, err = revisionOf(c, tenant, id)
		return err
	})
	return rev, err
}

func revisionOf(c driver.Conn, tenant int64, id string) (rev Revision, err error) {
	found, err := c.Prep("SELECT " + revisionColumns + " FROM document_revisions r WHERE r.id = ? AND r.tenant = ?").Text(id).Int(tenant).
		One(func(r driver.Row) { rev = readRevision(r) })
	if err == nil && (!found || rev.Dropped) {
		err = errRevisionGone
	}
	return rev, err
}

// BeginSplit lets the caller store a revision's chunks, under a number that nobody else has. It
// removes chunks that another job may have left, in several transactions.
func (s *Store) BeginSplit(ctx context.Context, tenant, revision, splitter int64) error {
	for step := int64(0); ; step = purgeChunks { // usually there are none
		more, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + int(step)}, func(t *tx) (bool, error) {
			n, err := t.Prep("UPDATE document_revisions SET splitter = ? WHERE no = ? AND dropped = 0 AND split_at IS NULL").Int(splitter).Int(revision).Count()
			if err != nil {
				return false, err
			}
			if n == 0 {
				return false, errRevisionGone
			}
			removed, err := t.removeChunks(revision, max(step, 1))
			return removed > 0, err
		})
		if err != nil || !more {
			return err
		}
	}
}

// NewChunk is a chunk to store.
type NewChunk struct {
	Number             int
	StartByte, EndByte int
	StartChar, EndChar int
	Page, Tokens       int
	Headings           []byte // JSON
	Text               string
}

// splitBy refuses a job that does not, or no longer, store the revision's chunks.
func (t *tx) splitBy(revision, splitter int64) error {
	mine := false
	_, err := t.Prep("SELECT splitter FROM document_revisions WHERE no = ? AND dropped = 0 AND split_at IS NULL").Int(revision).
		One(func(r driver.Row) { mine = r.Int(0) == splitter })
	if err == nil && !mine {
		err = errTakenOver
	}
	return err
}

// AddChunks stores some of a revision's chunks.
func (s *Store) AddChunks(ctx context.Context, tenant, revision, splitter int64, chunks []NewChunk) error {
	size := 0
	for i := range chunks {
		size += len(chunks[i].Text) + len(chunks[i].Headings)
	}
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: len(chunks), Size: size}, func(t *tx) (struct{}, error) {
		if err := t.splitBy(revision, splitter); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.addChunks(tenant, revision, chunks)
	})
	return err
}

func (t *tx) addChunks(tenant, revision int64, chunks []NewChunk) error {
	for _, c := range chunks {
		err := t.Prep(`INSERT INTO chunks (tenant, revision, number, start_byte, end_byte, start_char, end_char, page, tokens, headings, text)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`).Int(tenant).Int(revision).Int(int64(c.Number)).Int(int64(c.StartByte)).Int(int64(c.EndByte)).
			Int(int64(c.StartChar)).Int(int64(c.EndChar)).Int(int64(c.Page)).Int(int64(c.Tokens)).Blob(c.Headings).Text(c.Text).Exec()
		if err != nil {
			return err
		}
	}
	return nil
}

// SplitResult is the result of splitting a document.
type SplitResult struct {
	Title, Language string
	TextBytes       int
	Pages           int
	Tokens          int
	Chunks          int
	Rest            []NewChunk    // chunks that are not stored yet
	Jobs            []DocumentJob // the jobs that follow
}

// EndSplit stores the rest of the chunks and submits the jobs that follow.
func (s *Store) EndSplit(ctx context.Context, tenant, revision, splitter int64, jobID string, r SplitResult) error {
	size := 0
	for i := range r.Rest {
		size += len(r.Rest[i].Text)
	}
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageSubmit, Party: tenant, Rows: revisionRows + len(r.Rest) + len(r.Jobs), Size: size}, func(t *tx) (struct{}, error) {
		if err := t.splitBy(revision, splitter); err != nil {
			return struct{}{}, err
		}
		if err := t.addChunks(tenant, revision, r.Rest); err != nil {
			return struct{}{}, err
		}
		err := t.Prep(`UPDATE document_revisions SET title = ?, language = ?, text_bytes = ?, pages = ?, tokens = ?, chunks = ?, split_at = ? WHERE no = ?`).
			Text(r.Title).Text(r.Language).Int(int64(r.TextBytes)).Int(int64(r.Pages)).Int(int64(r.Tokens)).Int(int64(r.Chunks)).Int(t.Now).Int(revision).Exec()
		if err != nil {
			return struct{}{}, err
		}
		if err := t.jobs.Queue.ReserveSeqs(len(r.Jobs)); err != nil {
			return struct{}{}, err
		}
		for i := range r.Jobs {
			if err := t.submitDocumentJob(revision, r.Jobs[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, t.documentJobDone(revision, jobID)
	})
	return err
}

// documentJobDone records that a job has stored its output. The revision goes live if that was
// the last one missing.
func (t *tx) documentJobDone(revision int64, jobID string) error {
	err := t.Prep("UPDATE document_jobs SET done = 1, error_code = NULL, error_message = NULL WHERE seq = (SELECT seq FROM jobs WHERE id = ?) AND revision = ?").
		Text(jobID).Int(revision).Exec()
	if err != nil {
		return err
	}
	return t.advance(revision)
}

// ChunkText is a chunk that has no vector yet.
type ChunkText struct {
	No   int64
	Text string
}

// Unembedded returns those chunks of a range that have no vector yet.
func (s *Store) Unembedded(ctx context.Context, revision, first, last int64) (chunks []ChunkText, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		chunks = nil
		return c.Prep(`SELECT c.no, c.text FROM chunks c LEFT JOIN chunk_codes v ON v.revision = c.revision AND v.chunk = c.no
			WHERE c.revision = ? AND c.number >= ? AND c.number <= ? AND v.chunk IS NULL ORDER BY c.number`).Int(revision).Int(first).Int(last).
			Each(func(r driver.Row) error { chunks = append(chunks, ChunkText{r.Int(0), r.Text(1)}); return nil })
	})
	return chunks, err
}

// ChunkTokens returns how many tokens the chunks of a range have each.
func (s *Store) ChunkTokens(ctx context.Context, revision, first, last int64) (tokens []int, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		tokens = nil
		return c.Prep("SELECT tokens FROM chunks WHERE revision = ? AND number >= ? AND number <= ? ORDER BY number").Int(revision).Int(first).Int(last).
			Each(func(r driver.Row) error { tokens = append(tokens, int(r.Int(0))); return nil })
	})
	return tokens, err
}

// Texts returns the texts of the first chunks of a revision.
func (s *Store) Texts(ctx context.Context, revision int64, limit int) (texts []string, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		texts = nil
		return c.Prep("SELECT text FROM chunks WHERE revision = ? ORDER BY number LIMIT ? + 0").Int(revision).Int(int64(limit)).
			Each(func(r driver.Row) error { texts = append(texts, r.Text(0)); return nil })
	})
	return texts, err
}

// ChunkVector is a chunk's vector and its code.
type ChunkVector struct {
	Chunk        int64
	Vector, Code []byte
}

// RecordVectors stores the vectors of chunks, each once, for the job with that id, which then has
// none left to make. It returns CodeDimensionsChanged if the tenant has vectors of another
// dimension.
func (s *Store) RecordVectors(ctx context.Context, tenant int64, revisionID, jobID string, dimensions int, vectors []ChunkVector) error {
	size := 0
	for i := range vectors {
		size += len(vectors[i].Vector) + len(vectors[i].Code)
	}
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows + len(vectors), Size: size}, func(t *tx) (struct{}, error) {
		rev, err := revisionOf(t.Conn, tenant, revisionID)
		if err != nil {
			return struct{}{}, err
		}
		if len(vectors) > 0 {
			if err := t.checkDimensions(tenant, dimensions); err != nil {
				return struct{}{}, err
			}
		}
		recorded, first, last := map[int64]bool{}, int64(db.Never), int64(0)
		for _, v := range vectors {
			first, last = min(first, v.Chunk), max(last, v.Chunk)
		}
		err = t.Prep("SELECT chunk FROM chunk_codes WHERE revision = ? AND chunk >= ? AND chunk <= ?").Int(rev.No).Int(first).Int(last).
			Each(func(r driver.Row) error { recorded[r.Int(0)] = true; return nil })
		if err != nil {
			return struct{}{}, err
		}
		added := int64(0)
		for _, v := range vectors {
			if recorded[v.Chunk] {
				continue
			}
			added++
			if err := t.Prep("INSERT INTO chunk_vectors (chunk, vector) VALUES (?, ?)").Int(v.Chunk).Blob(v.Vector).Exec(); err != nil {
				return struct{}{}, err
			}
			if err := t.Prep("INSERT INTO chunk_codes (revision, chunk, code) VALUES (?, ?, ?)").Int(rev.No).Int(v.Chunk).Blob(v.Code).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		err = t.Prep("UPDATE document_revisions SET embedded = embedded + ? WHERE no = ?").Int(added).Int(rev.No).Exec()
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.documentJobDone(rev.No, jobID)
	})
	return err
}

// sqlEmbedded finds a vector of a tenant's documents. Deleted documents do not count: removing
// them takes a while, and the model may have changed meanwhile.
const sqlEmbedded = `
SELECT 1 WHERE EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1 AND live IS NOT NULL AND embedded > 0)
  OR EXISTS (SELECT 1 FROM documents d JOIN document_revisions r ON r.no = d.latest WHERE d.tenant = ?1 AND r.embedded > 0)`

// checkDimensions refuses vectors of another dimension than those of the tenant's documents. The
// first vectors decide.
func (t *tx) checkDimensions(tenant int64, dimensions int) error {
	known := int64(0)
	if _, err := t.Prep("SELECT dimensions FROM document_indexes WHERE tenant = ?").Int(tenant).One(func(r driver.Row) { known = r.Int(0) }); err != nil || known == int64(dimensions) {
		return err
	}
	if known != 0 {
		if embedded, err := t.Prep(sqlEmbedded).Int(tenant).One(func(driver.Row) {}); err != nil {
			return err
		} else if embedded {
			return errDimensions(known, int64(dimensions))
		}
	}
	return t.Prep("INSERT INTO document_indexes (tenant, dimensions) VALUES (?1, ?2) ON CONFLICT (tenant) DO UPDATE SET dimensions = ?2").
		Int(tenant).Int(int64(dimensions)).Exec()
}

func errDimensions(index, given int64) error {
	return forebay.Errorf(forebay.CodeDimensionsChanged,
		"the model makes vectors of %d dimensions, and the index has %d: use the model that made it, or delete all documents and add them again", given, index)
}

// Described is the output of the metadata branch. Empty values change nothing.
type Described struct {
	Title, Language string
	Entities        []byte // JSON
}

// RecordMetadata stores the description for the job with that id.
func (s *Store) RecordMetadata(ctx context.Context, tenant int64, revisionID, jobID string, d Described) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Party: tenant, Rows: revisionRows, Size: len(d.Entities)}, func(t *tx) (struct{}, error) {
		rev, err := revisionOf(t.Conn, tenant, revisionID)
		if err != nil {
			return struct{}{}, err
		}
		if !rev.Described {
			err := t.Prep(`UPDATE document_revisions SET described_at = ?, entities = ?, title = CASE WHEN ?3 = '' THEN title ELSE ?3 END,
				language = CASE WHEN ?4 = '' THEN language ELSE ?4 END WHERE no = ?5`).Int(t.Now).Blob(d.Entities).Text(d.Title).Text(d.Language).Int(rev.No).Exec()
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, t.documentJobDone(rev.No, jobID)
	})
	return err
}

// liveCounter counts the revisions that went live.
const liveCounter = "live"

// advance makes a revision live if nothing of it is missing. In the same transaction the former
// one stops being live.
func (t *tx) advance(no int64) error {
	var rev Revision
	var id string
	var latest int64
	_, err := t.Prep("SELECT " + revisionColumns + ", d.id, d.latest FROM document_revisions r JOIN documents d ON d.no = r.document WHERE r.no = ?").Int(no).
		One(func(r driver.Row) {
			rev, id, latest = readRevision(r), r.Text(revisionNumbers), r.Int(revisionNumbers+1)
		})
	if err != nil {
		return err
	}
	t.Changed(documentWatch(rev.Document))
	if rev.Live || rev.Dropped || latest != no || !rev.Split || !rev.Described || rev.Embedded < rev.Chunks {
		return nil
	}
	var before []int64
	err = t.Prep("SELECT no FROM document_revisions WHERE document = ? AND live IS NOT NULL").Int(rev.Document).
		Each(func(r driver.Row) error { before = append(before, r.Int(0)); return nil })
	if err != nil {
		return err
	}
	for _, old := range before {
		if _, err := t.dropRevision(old); err != nil {
			return err
		}
	}
	if err := t.Prep("INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counters.value + 1").Text(liveCounter).Exec(); err != nil {
		return err
	}
	err = t.Prep("UPDATE document_revisions SET ready_at = ?, live = (SELECT value FROM counters WHERE name = ?) WHERE no = ?").
		Int(t.Now).Text(liveCounter).Int(no).Exec()
	if err != nil {
		return err
	}
	return t.publishDocument(rev, rev.ID+"-ready", forebay.DocumentEvent{Type: forebay.EventDocumentReady, DocumentID: id})
}

// publishDocument publishes an event of a document. The message id is unique to the event.
func (t *tx) publishDocument(rev Revision, messageID string, e forebay.DocumentEvent) error {
	f, err := bus.Key.Of(t.Tx).Topics.Followed()
	if err != nil || f.Topics[rev.Tenant] == "" {
		return err
	}
	e.Revision, e.ContentHash, e.Title, e.Chunks, e.Timestamp = rev.ID, "sha256:"+hex.EncodeToString(rev.Hash), rev.Title, rev.Chunks, driver.FromMillis(t.Now)
	return bus.Key.Of(t.Tx).Topics.Publish(f.Topics[rev.Tenant], func() (m bus.MessageContent, err error) {
		m = bus.MessageContent{MessageID: messageID, CorrelationID: rev.ID, Subject: string(e.Type), ContentType: "application/json", Text: true}
		if m.Body, err = json.Marshal(e); err != nil {
			return m, err
		}
		m.Properties, err = json.Marshal(forebay.Properties{"document_id": e.DocumentID, "revision": rev.ID})
		return m, err
	})
}

// sqlDocumentJobAgain is for a job that is sent back.
const sqlDocumentJobAgain = "UPDATE document_jobs SET error_code = NULL, error_message = NULL WHERE seq = ?"

// documentJobFailed records on its document that a job has ended without success. It does nothing
// for other jobs.
func (t *tx) documentJobFailed(e jobs.Ended) error {
	code, message := e.Failure.Code, e.Failure.Message
	if code == "" {
		code, message = string(e.Status), []byte("the job was "+string(e.Status))
	}
	err := t.Prep("UPDATE document_jobs SET error_code = ?, error_message = ? WHERE seq = ? AND done = 0").Text(jobs.Bounded(code)).Blob(message).Int(e.Seq).Exec()
	if err != nil {
		return err
	}
	f, err := bus.Key.Of(t.Tx).Topics.Followed()
	if err != nil || len(f.Topics) == 0 {
		return err
	}
	var rev Revision
	var id string
	first := false
	found, err := t.Prep("SELECT " + revisionColumns + `, d.id, (SELECT count(*) FROM document_jobs o WHERE o.revision = r.no AND o.error_code IS NOT NULL)
		FROM document_jobs j JOIN document_revisions r ON r.no = j.revision JOIN documents d ON d.no = r.document WHERE j.seq = ? AND j.done = 0`).Int(e.Seq).
		One(func(r driver.Row) {
			rev, id, first = readRevision(r), r.Text(revisionNumbers), r.Int(revisionNumbers+1) == 1
		})
	if err != nil || !found || !first {
		return err
	}
	return t.publishDocument(rev, fmt.Sprintf("%s-failed-%d-%d", rev.ID, e.Seq, e.Generation),
		forebay.DocumentEvent{Type: forebay.EventDocumentFailed, DocumentID: id, ErrorCode: jobs.Bounded(code)})
}
