// Package documents makes documents searchable. An upload becomes text, chunks, vectors and
// words, and searches find the chunks by meaning, by words or by both.
//
// The pipeline consists of jobs. The first job splits the content into chunks, in several
// transactions. The last of these submits the other jobs. Some embed a batch of chunks each, and
// one describes the document. The output of a job is on disk before the job succeeds. So a job
// that is delivered again finds it and makes only what is missing.
//
// The transaction that records the last missing output makes the content live. It takes the
// document's former content out of searches and publishes an event. The store has these
// transitions; this package decides what they hold.
//
// # Revisions and searches
//
// Each content of a document is a revision. Its pipeline works on the latest, and searches find
// the live one. The pipeline is jobs, and needs nothing that drives it. The job that splits a
// content stores the chunks. In its last transaction it submits the jobs that embed and describe
// them. Each of those records once what it has made, in a transaction that also checks whether
// that was the last thing missing. If so, it takes the former revision out, puts this one in and
// publishes document.ready. All of this comes before the job itself is settled. So a job that is
// delivered again finds what was recorded and makes what is missing. Settling knows nothing of
// documents. Only a job that ends badly looks whether it belongs to one. (An orchestration could
// submit the same jobs in the same order; the transitions stay the same.)
//
// Splitting takes several transactions, so that it holds nobody up. Whoever begins takes the
// revision over with a number of its own and removes what another may have left. It writes only
// as long as the number is there.
//
// What is live is a number that counts up. A process that searches has codes of a tenant's
// vectors in memory, up to such a number. Each search reads first what went live since. A
// transaction that drops a content says so as one that changes a job does, to other processes
// too. The next search then reads what is live and takes out the rest, but only every five
// seconds. In between a search looks for all its candidates in the store, and takes the contents
// out of which one is gone. If too many are gone it reads what is live after all. So memory is a
// hint, on any number of processes.
//
// A row in pgvector's HNSW index costs milliseconds. So one process copies vectors there after
// they are live, outside of the transactions that exclude each other. The number up to which it
// has come says which codes need not be looked at. The index of words stands on triggers (SQLite)
// or is a generated column (PostgreSQL). It is asked together with what is live.
//
// An upload goes to blob storage as it comes, and so does a document that is fetched from a
// source. Neither is held in memory. Texts are taken apart in a few places, half as many for one
// tenant as there are processors, and one more. So another tenant's document finds a place at
// once. Few documents of a tenant wait for one; the others go back to the queue for a while.
//
// A PDF is parsed by a process of its own, this program again. It has 2 GiB of memory. It has two
// seconds of processor time, one more for each 64 KiB, and 60 at most. Circles in the tree of
// pages and in the tables are found at once.
package documents

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/extract"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/memory"
)

// Options are the settings of a Service. Zero numbers stand for defaults.
type Options struct {
	Store *Store
	Blobs *blob.Store
	Queue string // of the pipeline's jobs; "": the default
	Calls

	MaxBytes      int64 // of one document
	ChunkTokens   int
	OverlapTokens int   // tokens that a chunk repeats from the one before, at most
	IndexBytes    int64 // memory for the indexes of tenants, all together
	Sources       []Source
	Logger        *slog.Logger
	Limits        *limits.Meter // limits on what tenants add; nil: none
}

// Calls are the tasks that the pipeline calls. They can be changed while the service is in use.
type Calls struct {
	Embed   *forebay.Task // turns texts into vectors, like the built-in embed; nil: documents cannot be added
	Extract *forebay.Task // fills a schema from a text, like the built-in extract; nil: no model describes documents

	BatchInputs int // chunks that one call embeds, at most
	BatchTokens int
}

// The defaults and the limits of the options.
const (
	DefaultChunkTokens   = 400
	DefaultOverlapTokens = 60
	DefaultBatchInputs   = 128
	DefaultBatchTokens   = 60_000
	DefaultIndexBytes    = 512 << 20
	MinChunkTokens       = 16
	MaxChunkTokens       = 8000
	MaxBatchInputs       = 2048
	MaxChunks            = 15_000 // of one document
)

// Service answers everything about documents. All methods are safe for concurrent use and see
// only the given tenant's documents. They return *forebay.Error values for a caller's mistakes.
type Service struct {
	Options    // but for its Calls: those are in calls
	calls      atomic.Pointer[Calls]
	jobs       *jobs.Service
	indexes    indexes
	extracting *concurrencyLimit // bounds parsing, which takes memory and processors
	fetching   *concurrencyLimit // bounds fetching from sources, which takes the disk
	changed    chan struct{}     // holds a token when there may be something for Run to do
}

// New returns the service. It can be used after [Service.Use].
func New(o Options) *Service {
	o.MaxBytes = cmp.Or(o.MaxBytes, forebay.DefaultMaxDocumentBytes)
	o.ChunkTokens = cmp.Or(o.ChunkTokens, DefaultChunkTokens)
	o.OverlapTokens = cmp.Or(o.OverlapTokens, min(DefaultOverlapTokens, o.ChunkTokens/4))
	o.IndexBytes = cmp.Or(o.IndexBytes, DefaultIndexBytes)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	readers := max(1, runtime.GOMAXPROCS(0)/2) // of a tenant: requests need processors too
	s := &Service{Options: o, indexes: indexes{limit: o.IndexBytes, dropEvery: dropEvery, watch: o.Store.WatchDropped, byTenant: map[int64]*tenantIndex{}},
		extracting: newConcurrencyLimit(readers+1, readers, maxWaitingToRead),
		fetching:   newConcurrencyLimit(fetchingAll, fetchingEach, maxWaitingToFetch), changed: make(chan struct{}, 1)}
	s.SetCalls(o.Calls)
	return s
}

// SetCalls changes the tasks that the pipeline calls. Jobs under way keep the former ones.
func (s *Service) SetCalls(c Calls) {
	c.BatchInputs = cmp.Or(c.BatchInputs, DefaultBatchInputs)
	c.BatchTokens = cmp.Or(c.BatchTokens, DefaultBatchTokens)
	s.calls.Store(&c)
}

// Use sets the service of the jobs. Its own tasks are among theirs.
func (s *Service) Use(j *jobs.Service) { s.jobs = j }

// documentID is the id of a document that is known by its content alone.
func documentID(hash []byte) string { return "doc_" + ids.Encoding.EncodeToString(hash)[:26] }

// Add stores a document; its jobs do the rest. existing says that the document has this very
// content already. The document then gets the upload's name and metadata, if that has any.
//
// The content goes to blob storage as it arrives. After that, the function then is called with
// what is known of the document so far, and may change it. It may be nil.
func (s *Service) Add(ctx context.Context, tenant string, n forebay.NewDocument, content io.Reader, then func(*forebay.NewDocument) error) (d forebay.Document, existing bool, err error) {
	if s.calls.Load().Embed == nil {
		return d, false, forebay.Errorf(forebay.CodeNotSupported, "documents need a task that embeds texts, and no model is configured for one")
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return d, false, err
	}
	if err := memory.Grow(ctx, s.Blobs.StreamBuffer()); err != nil {
		return d, false, err
	}
	head := bufio.NewReaderSize(content, sniffed)
	begins, err := head.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return d, false, err
	}
	upload := NewRevision{Revision: Revision{ID: ids.New("rev_"), Tenant: no, KeyID: forebay.BudgetKeyOf(ctx)}}
	if then == nil {
		if err := describe(&upload, n, begins); err != nil {
			return d, false, err
		}
	}
	begins = bytes.Clone(begins)
	upload.Blob = blob.Key(no, upload.ID, "content")
	hash := sha256.New()
	upload.Size, err = s.Blobs.PutStream(ctx, upload.Blob, io.TeeReader(head, hash), s.MaxBytes)
	if forebay.CodeOf(err) == forebay.CodePayloadTooLarge {
		err = forebay.Errorf(forebay.CodePayloadTooLarge, "a document may have at most %d bytes", s.MaxBytes)
	}
	if err != nil {
		return d, false, err
	}
	kept := false
	defer func() {
		if !kept {
			_ = s.Blobs.Delete(context.WithoutCancel(ctx), upload.Blob) // the sweep would find it too
		}
	}()
	if then != nil {
		if err := then(&n); err != nil {
			return d, false, err
		}
		if err := describe(&upload, n, begins); err != nil {
			return d, false, err
		}
	}
	upload.Hash = hash.Sum(nil)
	upload.DocumentID = cmp.Or(n.ID, documentID(upload.Hash))
	split, err := s.newJobs(ctx, tenant, []taskInput{{Revision: upload.ID}}, taskSplit)
	if err != nil {
		return d, false, err
	}
	upload.Split = split[0]
	fresh := int64(1)
	if before, err := s.Store.Document(ctx, no, upload.DocumentID); err == nil {
		fresh = 0
		if again := upload.Over(before.Latest); again.SameText(before.Latest) && again.SameLabels(before.Latest) {
			return view(before), true, nil
		}
	}
	done, err := s.Limits.Take(ctx, tenant, forebay.LimitDocuments, fresh)
	if err != nil {
		return d, false, err
	}
	defer done()
	stored, err := s.Limits.Take(ctx, tenant, forebay.LimitStoredBytes, upload.Size)
	if err != nil {
		return d, false, err
	}
	defer stored()
	added, err := s.Store.AddRevision(ctx, upload)
	if err != nil {
		kept = true // it may be committed; if not, the sweep finds the blob
		return d, false, err
	}
	kept = !added.Existing
	s.dropped(added.Voided)
	row, err := s.Store.Document(ctx, no, upload.DocumentID)
	if err != nil {
		return d, false, err
	}
	return view(row), added.Existing, nil
}

// sniffed is how many bytes of a document are read to guess its media type.
const sniffed = 512

// describe checks the description of an upload that begins with those bytes, and fills in what is
// left out.
func describe(upload *NewRevision, n forebay.NewDocument, begins []byte) error {
	switch {
	case len(begins) == 0:
		return forebay.Errorf(forebay.CodeDocumentEmpty, "the document is empty")
	case n.ID != "" && !forebay.ValidDocumentID(n.ID):
		return forebay.Invalid("id", "must be 1 to %d letters, digits, dots, underscores, colons and hyphens, beginning with a letter or digit", forebay.MaxDocumentIDBytes)
	case n.Name != "" && !forebay.ValidText(n.Name, forebay.MaxDocumentNameBytes):
		return forebay.Invalid("name", "must be 1 to %d bytes of text without control characters", forebay.MaxDocumentNameBytes)
	}
	kind, charset, guessed, err := extract.KindOf(n.ContentType, n.Name, begins)
	if err != nil {
		return err
	}
	if len(charset) > forebay.MaxNameBytes {
		return forebay.Invalid("content_type", "has no charset that is known")
	}
	upload.Metadata, err = request.EncodeMetadata(n.Metadata)
	upload.MediaType, upload.Charset, upload.Name, upload.Guessed = string(kind), charset, n.Name, guessed
	return err
}

// AddURL is Add for a document in a blob storage.
func (s *Service) AddURL(ctx context.Context, tenant string, n forebay.DocumentByURL) (d forebay.Document, existing bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, fetchingWait)
	defer cancel()
	leave, err := s.fetching.take(waiting, tenant)
	switch {
	case ctx.Err() != nil:
		return d, false, ctx.Err()
	case err != nil:
		return d, false, forebay.Errorf(forebay.CodeTooManyRequests, "the tenant's other documents are fetched first; try again")
	}
	defer leave()
	content, contentType, name, err := s.open(ctx, tenant, n.URL)
	if err != nil {
		return d, false, err
	}
	defer content.Close()
	n.Name = cmp.Or(n.Name, name)
	n.ContentType = cmp.Or(n.ContentType, contentType)
	return s.Add(ctx, tenant, n.NewDocument, content, nil)
}

// dropped aborts the calls whose locks a transition has voided, and wakes Run to remove the
// dropped content.
func (s *Service) dropped(voided []int64) {
	s.jobs.Abort(voided)
	s.wake()
}

// wake makes Run check for work at once.
func (s *Service) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Document returns a document.
func (s *Service) Document(ctx context.Context, tenant, id string) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	return view(row), nil
}

func (s *Service) row(ctx context.Context, tenant, id string) (DocumentRow, error) {
	if !forebay.ValidDocumentID(id) {
		return DocumentRow{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return DocumentRow{}, err
	}
	return s.Store.Document(ctx, no, id)
}

// pollEvery is how often Wait reads the document: not all changes are notified.
const pollEvery = time.Second

// Wait returns a document once it is no longer being processed, or when ctx or the timeout ends.
func (s *Service) Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	changes, stop := s.Store.WatchDocument(row.No)
	defer stop()
	over := time.NewTimer(timeout)
	defer over.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		row, err := s.row(context.WithoutCancel(ctx), tenant, id)
		if err != nil {
			return forebay.Document{}, err
		}
		d := view(row)
		if d.Status != forebay.DocumentProcessing {
			return d, nil
		}
		select {
		case <-changes:
		case <-poll.C:
		case <-over.C:
			return d, nil
		case <-ctx.Done():
			return d, nil
		}
	}
}

// Documents returns a page of a tenant's documents, newest first.
func (s *Service) Documents(ctx context.Context, tenant string, f forebay.DocumentFilter) (page forebay.Page[forebay.Document], err error) {
	var q DocumentQuery
	if q.Limit, err = listing.PageSize(f.Limit); err != nil {
		return page, err
	}
	if q.Below, err = listing.DecodeCursor(f.Cursor); err != nil {
		return page, err
	}
	if q.CreatedAfter, q.CreatedBefore, err = listing.Created(f.CreatedAfter, f.CreatedBefore); err != nil {
		return page, err
	}
	if q.Tenant, err = s.Store.EnsureTenant(ctx, tenant); err != nil {
		return page, err
	}
	rows, next, err := s.Store.Documents(ctx, q)
	page.Items = make([]forebay.Document, len(rows))
	for i, row := range rows {
		page.Items[i] = view(row)
	}
	page.NextCursor = listing.EncodeCursor(next)
	return page, err
}

// Delete removes a document and everything made from it. Searches no longer find it when Delete
// returns.
func (s *Service) Delete(ctx context.Context, tenant, id string) error {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return err
	}
	audit := audit.Act{Tenant: tenant, Actor: forebay.ActorOf(ctx), Action: "delete-document", Target: id}
	voided, err := s.Store.DeleteDocument(ctx, row.Latest.Tenant, id, audit)
	if err == nil {
		s.dropped(voided)
	}
	return err
}

// Retry repeats the failed jobs of a document's pipeline. It returns CodeConflict if none has
// failed.
func (s *Service) Retry(ctx context.Context, tenant, id string) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	ctx = forebay.WithBudgetKey(ctx, row.Latest.KeyID) // the key that uploaded the document pays, if it has a budget
	again := make([][]DocumentJob, len(row.Failed))
	for i, f := range row.Failed {
		if again[i], err = s.again(ctx, tenant, row.Latest, f); err != nil {
			return forebay.Document{}, err
		}
	}
	retried := 0
	if len(again) > 0 {
		retried, err = s.Store.RetryDocument(ctx, row.Latest.Tenant, row.Latest.ID, row.Failed, again)
	}
	switch {
	case err != nil:
		return forebay.Document{}, err
	case retried == 0:
		return forebay.Document{}, forebay.Errorf(forebay.CodeConflict, "nothing of the document has failed")
	}
	return s.Document(ctx, tenant, id)
}
