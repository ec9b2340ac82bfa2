package documents

import (
	"cmp"
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// errRevisionGone says that the revision was replaced or deleted meanwhile.
var errRevisionGone = forebay.Errorf(forebay.CodeGone, "this content of the document was replaced or deleted")

// errTakenOver says that another job stores the chunks now: the latest one to begin goes on.
var errTakenOver = forebay.Errorf(forebay.CodeConflict, "another process has begun to split this document")

const sqlRevision = "SELECT " + revisionColumns + ", " + liveRevision + " FROM document_revisions r WHERE r.id = ? AND r.tenant = ?"

// RevisionOf returns the revision with that id if it is the tenant's, or errRevisionGone.
func (s *Store) RevisionOf(ctx context.Context, tenant int64, id string) (rev Revision, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlRevision).Text(id).Int(tenant).One(func(r driver.Row) {
			if rev = readRevision(r); !rev.Live {
				rev.Before = r.Int(revisionNumbers)
			}
		})
		if err == nil && (!found || rev.Dropped) {
			err = errRevisionGone
		}
		return err
	})
	return rev, err
}

// step is an operation of a tenant's pipeline.
func step(tenant int64, rows, size int, asks func() []driver.Prefetch) db.Op {
	return db.Op{Stage: db.StageChange, Party: tenant, Rows: rows, Size: size, Local: true, Interleaves: true, Asks: asks}
}

const sqlCountChunks = "SELECT count(*) FROM (SELECT no FROM chunks WHERE revision = ? LIMIT ? + 0) AS bounded"

// prefetchChunks counts the chunks of a revision, at most one more than a transaction removes.
func prefetchChunks(revision int64) driver.Prefetch {
	return driver.NewPrefetch(sqlCountChunks, chunksRow(revision)).Int(revision).Int(purgeChunks + 1)
}

// BeginSplit lets the caller store a revision's chunks, under a number that nobody else has. It
// removes chunks that another job may have left, in several transactions if they are many. The
// number of a revision that was removed may be another's by now.
func (s *Store) BeginSplit(ctx context.Context, of Revision, splitter int64) error {
	tenant, revision := of.Tenant, of.No
	asks := func() []driver.Prefetch {
		return []driver.Prefetch{prefetchRevisionNo(revision), prefetchChunks(revision)}
	}
	rows, most := revisionRows, int64(chunksOfOneRow) // usually there are none
	for {
		left, err := db.TransactIn(ctx, key, s.Writer, step(tenant, rows, 0, asks), func(t *tx) (left int64, err error) {
			rev, err := t.revisionNo(revision)
			if err != nil {
				return 0, err
			}
			if rev == nil || rev.ID != of.ID || rev.Dropped || rev.Split {
				return 0, errRevisionGone
			}
			rev.splitter = splitter
			if err := t.Prep(sqlBeginSplit).Int(splitter).Int(revision).Exec(); err != nil {
				return 0, err
			}
			if _, err := t.Ask(prefetchChunks(revision)).One(func(r driver.Row) { left = r.Int(0) }); err != nil || left == 0 {
				return 0, err
			}
			if left > purgeChunks { // there are at least so many
				left = purgeChunks + most
			}
			return max(left-most, 0), t.removeChunks(revision, most)
		})
		if err != nil || left == 0 {
			return err
		}
		most = min(left, purgeChunks)
		rows = revisionRows + rowsOf(int(most), 0)
	}
}

// chunksRow names the chunks of a revision.
func chunksRow(revision int64) driver.RowName { return driver.RowName{Of: "chunks", No: revision} }

// NewChunk is a chunk to store.
type NewChunk struct {
	Number             int
	StartByte, EndByte int
	StartChar, EndChar int
	Page, Tokens       int
	Headings           []byte // JSON
	Text               string
}

// splitBy returns the revision if the job is the one that stores its chunks.
func (t *tx) splitBy(revision, splitter int64) (*revisionState, error) {
	rev, err := t.revisionNo(revision)
	if err == nil && (rev == nil || rev.Dropped || rev.Split || rev.splitter != splitter) {
		err = errTakenOver
	}
	return rev, err
}

// splitting is an operation that stores chunks of a revision.
func splitting(tenant, revision int64, rows, size int) db.Op {
	o := step(tenant, rows, size, func() []driver.Prefetch { return []driver.Prefetch{prefetchRevisionNo(revision)} })
	o.Touches = []driver.RowName{chunksRow(revision)}
	return o
}

// AddChunks stores some of a revision's chunks.
func (s *Store) AddChunks(ctx context.Context, tenant, revision, splitter int64, chunks []NewChunk) error {
	size := 0
	for i := range chunks {
		size += len(chunks[i].Text) + len(chunks[i].Headings)
	}
	_, err := db.TransactIn(ctx, key, s.Writer, splitting(tenant, revision, revisionRows+rowsOf(len(chunks), size), size), func(t *tx) (struct{}, error) {
		if _, err := t.splitBy(revision, splitter); err != nil {
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
	o := splitting(tenant, revision, revisionRows+rowsOf(len(r.Rest), size)+len(r.Jobs), size)
	o.Stage, o.Numbers = db.StageSubmit, len(r.Jobs)
	_, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (struct{}, error) {
		rev, err := t.splitBy(revision, splitter)
		if err != nil {
			return struct{}{}, err
		}
		if err := t.addChunks(tenant, revision, r.Rest); err != nil {
			return struct{}{}, err
		}
		rev.Title, rev.Language, rev.Chunks, rev.Split = r.Title, r.Language, int64(r.Chunks), true
		err = t.Prep(sqlEndSplit).Text(r.Title).Text(r.Language).Int(int64(r.TextBytes)).Int(int64(r.Pages)).Int(int64(r.Tokens)).Int(int64(r.Chunks)).Int(t.Now).Int(revision).Exec()
		if err != nil {
			return struct{}{}, err
		}
		for i := range r.Jobs {
			if err := t.submitDocumentJob(revision, r.Jobs[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, t.documentJobDone(rev, jobID)
	})
	return err
}

// documentJobDone records that a job has stored its output. The revision goes live if that was
// the last one missing.
func (t *tx) documentJobDone(rev *revisionState, jobID string) error {
	if t.done == nil {
		t.done = map[string]bool{}
	}
	t.done[jobID] = true
	err := t.Prep(sqlJobDone).Text(jobID).Int(rev.No).Exec()
	if err != nil {
		return err
	}
	return t.advance(rev)
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

// The limit is never reached. It has PostgreSQL ask by the index for each revision.
const sqlEmbeddedChunks = "SELECT chunk FROM chunk_codes WHERE revision = ? AND chunk >= ? AND chunk <= ? LIMIT 1000000"

// prefetchLast is what a step asks that may be the last one before the revision goes live.
func prefetchLast(rev Revision) []driver.Prefetch {
	asks := []driver.Prefetch{prefetchRevisionID(rev.Tenant, rev.ID)}
	if rev.Before != 0 {
		asks = append(asks, prefetchRevisionJobs(rev.Before))
	}
	return asks
}

// recordingVectors describes RecordVectors to the writer. first and last are of the chunks.
func recordingVectors(rev Revision, vectors []ChunkVector, first, last int64) db.Op {
	size := 0
	for i := range vectors {
		size += len(vectors[i].Vector) + len(vectors[i].Code)
	}
	return step(rev.Tenant, revisionRows+len(vectors), size, func() []driver.Prefetch {
		asks := prefetchLast(rev)
		if len(vectors) > 0 {
			chunks := driver.NewPrefetch(sqlEmbeddedChunks, revisionRow(rev.ID)).Int(rev.No).Int(first).Int(last)
			chunks.Shared = true // what the transaction adds, it remembers
			asks = append(asks, chunks, prefetchDimensions(rev.Tenant))
		}
		return asks
	})
}

// RecordVectors stores the vectors of a revision's chunks, each once, for the job with that id.
// That job then has none left to make. It returns CodeDimensionsChanged if the tenant has vectors
// of another dimension.
func (s *Store) RecordVectors(ctx context.Context, of Revision, jobID string, dimensions int, vectors []ChunkVector) error {
	first, last := int64(db.Never), int64(0)
	for _, v := range vectors {
		first, last = min(first, v.Chunk), max(last, v.Chunk)
	}
	_, err := db.TransactIn(ctx, key, s.Writer, recordingVectors(of, vectors, first, last), func(t *tx) (struct{}, error) {
		rev, err := t.revisionOf(of.Tenant, of.ID)
		if err != nil {
			return struct{}{}, err
		}
		recorded := map[int64]bool{}
		if len(vectors) > 0 {
			err := t.Prep(sqlEmbeddedChunks).Int(rev.No).Int(first).Int(last).Each(func(r driver.Row) error { recorded[r.Int(0)] = true; return nil })
			if err == nil {
				err = t.checkDimensions(of.Tenant, int64(dimensions))
			}
			if err == nil && rev.Dropped { // by another operation, meanwhile
				err = errRevisionGone
			}
			if err == nil {
				err = t.setDimensions(of.Tenant, int64(dimensions))
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		if err := t.addVectors(rev, recorded, vectors); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.documentJobDone(rev, jobID)
	})
	return err
}

// addVectors stores those of the vectors that are not recorded yet.
func (t *tx) addVectors(rev *revisionState, recorded map[int64]bool, vectors []ChunkVector) error {
	if t.embedded == nil {
		t.embedded = map[int64]bool{}
	}
	added := int64(0)
	for _, v := range vectors {
		if recorded[v.Chunk] || t.embedded[v.Chunk] {
			continue
		}
		t.embedded[v.Chunk] = true
		added++
		if err := t.Prep("INSERT INTO chunk_vectors (chunk, vector) VALUES (?, ?)").Int(v.Chunk).Blob(v.Vector).Exec(); err != nil {
			return err
		}
		if err := t.Prep("INSERT INTO chunk_codes (revision, chunk, code) VALUES (?, ?, ?)").Int(rev.No).Int(v.Chunk).Blob(v.Code).Exec(); err != nil {
			return err
		}
	}
	rev.Embedded += added
	return t.Prep(sqlAddEmbedded).Int(added).Int(rev.No).Exec()
}

// Described is the output of the metadata branch. Empty values change nothing.
type Described struct {
	Title, Language string
	Entities        []byte // JSON
}

// RecordMetadata stores the description for the job with that id.
func (s *Store) RecordMetadata(ctx context.Context, of Revision, jobID string, d Described) error {
	o := step(of.Tenant, revisionRows, len(d.Entities), func() []driver.Prefetch { return prefetchLast(of) })
	_, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (struct{}, error) {
		rev, err := t.revisionOf(of.Tenant, of.ID)
		if err != nil {
			return struct{}{}, err
		}
		describes := !rev.Described
		if describes {
			rev.Described, rev.Title = true, cmp.Or(d.Title, rev.Title)
		}
		if err := t.documentJobDone(rev, jobID); err != nil || !describes {
			return struct{}{}, err
		}
		if rev.Live { // which is written with it
			rev.description = &d
			return struct{}{}, nil
		}
		return struct{}{}, t.Prep(sqlDescribe).Int(t.Now).Blob(d.Entities).Text(d.Title).Text(d.Language).Int(rev.No).Exec()
	})
	return err
}

// liveCounter counts the revisions that went live.
const liveCounter = "live"

// advance makes a revision live if nothing of it is missing. In the same transaction the former
// one stops being live.
func (t *tx) advance(rev *revisionState) error {
	t.Changed(documentWatch(rev.Document))
	of := rev.document
	if rev.Live || rev.Dropped || of.latest != rev.No || !rev.Split || !rev.Described || rev.Embedded < rev.Chunks {
		return nil
	}
	if of.live != 0 {
		if err := t.readJobs(prefetchRevisionJobs(of.live), of.live); err != nil {
			return err
		}
		t.dropRevision(rev.Tenant, of.live)
	}
	rev.Live, of.live = true, rev.No
	t.live = append(t.live, rev)
	return t.publishDocument(rev.Revision, rev.ID+"-ready", forebay.DocumentEvent{Type: forebay.EventDocumentReady, DocumentID: of.id})
}

// setLive writes that revisions go live, each under a number of its own. It comes before what is
// written of those that are dropped since.
func (t *tx) setLive() error {
	live := t.live
	if t.live = nil; len(live) == 0 {
		return nil
	}
	if err := t.Prep(sqlCountLive).Text(liveCounter).Int(int64(len(live))).Exec(); err != nil {
		return err
	}
	for _, described := range []bool{false, true} { // each kind becomes one statement
		for i, rev := range live {
			if (rev.description != nil) != described {
				continue
			}
			if err := t.goLive(rev, int64(len(live)-1-i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// goLive writes that a revision goes live before so many others, and its description if it has got
// that in the transaction.
func (t *tx) goLive(rev *revisionState, before int64) error {
	d := rev.description
	if d == nil {
		return t.Prep(sqlGoLive).Int(t.Now).Text(liveCounter).Int(before).Int(rev.No).Exec()
	}
	rev.description = nil
	return t.Prep(sqlGoLiveDescribed).Int(t.Now).Text(liveCounter).Int(before).Int(rev.No).Blob(d.Entities).Text(d.Title).Text(d.Language).Exec()
}
