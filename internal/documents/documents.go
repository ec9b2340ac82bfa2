// Package documents makes documents searchable: an upload becomes text, chunks, vectors and words, and
// searches find the chunks by meaning, by words or by both.
//
// The pipeline is made of jobs. The first splits the content into chunks, in so many transactions, and
// submits the others with the last one: some that embed a batch of chunks each, one that describes the
// document. What a job has made is on disk before it succeeds, so that one that is delivered again, because
// its process died, finds that and makes only what is missing. The transaction that records the last thing
// missing takes the document's former content out of searches, puts this one in and tells it. The store has
// these transitions; this package decides what they hold.
package documents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/extract"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/store"
)

// Options makes a Service. Zero numbers are the defaults.
type Options struct {
	Store   *store.Store
	Blobs   *blob.Store
	Embed   *forebay.Task // turns texts into vectors, as the built-in embed does; nil: documents cannot be added
	Extract *forebay.Task // fills a schema from a text, as the built-in extract does; nil: nothing is found out by a model
	Queue   string        // of the pipeline's jobs; "": the default

	MaxBytes      int64 // of one document
	ChunkTokens   int
	OverlapTokens int // that a chunk has in common with the one before, at most
	BatchInputs   int // chunks that one call embeds, at most
	BatchTokens   int
	IndexBytes    int64 // memory for the indexes of tenants, all together
	Sources       []Source
	Logger        *slog.Logger
	Limits        *limits.Meter // judges what is added; nil: nothing does
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

// Service answers everything about documents. All methods are safe for concurrent use, return
// *forebay.Error values for what a caller did wrong, and see only the given tenant's documents.
type Service struct {
	Options
	jobs       *jobs.Service
	indexes    indexes
	extracting *semaphore.Weighted // texts that are taken apart at once
	changed    chan struct{}       // holds a token when there may be something for Run to do
}

// New returns the service. It can be used once it knows the jobs, which its own tasks are among.
func New(o Options) *Service {
	o.MaxBytes = cmp.Or(o.MaxBytes, forebay.DefaultMaxDocumentBytes)
	o.ChunkTokens = cmp.Or(o.ChunkTokens, DefaultChunkTokens)
	o.OverlapTokens = cmp.Or(o.OverlapTokens, min(DefaultOverlapTokens, o.ChunkTokens/4))
	o.BatchInputs = cmp.Or(o.BatchInputs, DefaultBatchInputs)
	o.BatchTokens = cmp.Or(o.BatchTokens, DefaultBatchTokens)
	o.IndexBytes = cmp.Or(o.IndexBytes, DefaultIndexBytes)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Service{Options: o, indexes: indexes{limit: o.IndexBytes, dropEvery: dropEvery, watch: o.Store.WatchDropped, byTenant: map[int64]*tenantIndex{}},
		extracting: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), changed: make(chan struct{}, 1)}
}

// Use tells the service of the jobs.
func (s *Service) Use(j *jobs.Service) { s.jobs = j }

// documentID is the id of a document that is known by its content alone.
func documentID(hash []byte) string { return "doc_" + jobs.IDEncoding.EncodeToString(hash)[:26] }

// Add stores a document; its pipeline goes on by itself. existing says that the document had this very
// content already; its name and its metadata are the upload's then, if that has any.
func (s *Service) Add(ctx context.Context, tenant string, n forebay.NewDocument, content []byte) (d forebay.Document, existing bool, err error) {
	if s.Embed == nil {
		return d, false, forebay.Errorf(forebay.CodeNotSupported, "documents need a task that embeds texts, and no model is configured for one")
	}
	upload, err := s.upload(n, content)
	if err != nil {
		return d, false, err
	}
	if upload.Tenant, err = s.Store.EnsureTenant(ctx, tenant); err != nil {
		return d, false, err
	}
	upload.KeyID = forebay.BudgetKeyOf(ctx)
	split, err := s.newJobs(ctx, tenant, []taskInput{{Revision: upload.ID}}, taskSplit)
	if err != nil {
		return d, false, err
	}
	upload.Split = split[0]
	fresh := int64(1)
	if before, err := s.Store.Document(ctx, upload.Tenant, upload.DocumentID); err == nil {
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
	upload.Blob = blob.Key(upload.Tenant, upload.ID, "content")
	if err := s.Blobs.Put(ctx, upload.Blob, strings.NewReader(string(content)), upload.Size); err != nil {
		return d, false, err
	}
	added, err := s.Store.AddRevision(ctx, upload)
	if err != nil {
		return d, false, err // what was stored of it the sweep finds
	}
	if added.Existing {
		_ = s.Blobs.Delete(context.WithoutCancel(ctx), upload.Blob) // the sweep would find it too
	}
	s.dropped(added.Voided)
	row, err := s.Store.Document(ctx, upload.Tenant, upload.DocumentID)
	if err != nil {
		return d, false, err
	}
	return view(row), added.Existing, nil
}

// upload checks an upload and fills in what it leaves out.
func (s *Service) upload(n forebay.NewDocument, content []byte) (upload store.NewRevision, err error) {
	switch {
	case int64(len(content)) > s.MaxBytes:
		return upload, forebay.Errorf(forebay.CodePayloadTooLarge, "a document may have at most %d bytes", s.MaxBytes)
	case len(content) == 0:
		return upload, forebay.Errorf(forebay.CodeDocumentEmpty, "the document is empty")
	case n.ID != "" && !forebay.ValidDocumentID(n.ID):
		return upload, forebay.Invalid("id", "must be 1 to %d letters, digits, dots, underscores, colons and hyphens, beginning with a letter or digit", forebay.MaxDocumentIDBytes)
	case n.Name != "" && !forebay.ValidText(n.Name, forebay.MaxDocumentNameBytes):
		return upload, forebay.Invalid("name", "must be 1 to %d bytes of text without control characters", forebay.MaxDocumentNameBytes)
	}
	kind, charset, guessed, err := extract.KindOf(n.ContentType, n.Name, content)
	if err != nil {
		return upload, err
	}
	if len(charset) > forebay.MaxNameBytes {
		return upload, forebay.Invalid("content_type", "has no charset that is known")
	}
	metadata, err := jobs.EncodeMetadata(n.Metadata)
	if err != nil {
		return upload, err
	}
	hash := sha256.Sum256(content)
	if n.ID == "" {
		n.ID = documentID(hash[:])
	}
	rev := store.Revision{ID: jobs.NewID("rev_"), Hash: hash[:], MediaType: string(kind), Charset: charset, Name: n.Name, Size: int64(len(content)), Metadata: metadata}
	return store.NewRevision{Revision: rev, DocumentID: n.ID, Guessed: guessed}, nil
}

// AddURL is Add for a document that stands in a blob storage.
func (s *Service) AddURL(ctx context.Context, tenant string, n forebay.DocumentByURL) (d forebay.Document, existing bool, err error) {
	content, contentType, name, err := s.fetch(ctx, tenant, n.URL)
	if err != nil {
		return d, false, err
	}
	n.Name = cmp.Or(n.Name, name)
	n.ContentType = cmp.Or(n.ContentType, contentType)
	return s.Add(ctx, tenant, n.NewDocument, content)
}

// dropped aborts the calls whose locks a transition has voided, and has what it dropped removed.
func (s *Service) dropped(voided []int64) {
	s.jobs.Abort(voided)
	s.poke()
}

// poke has Run look at once.
func (s *Service) poke() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Document returns a document as it stands.
func (s *Service) Document(ctx context.Context, tenant, id string) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	return view(row), nil
}

func (s *Service) row(ctx context.Context, tenant, id string) (store.DocumentRow, error) {
	if !forebay.ValidDocumentID(id) {
		return store.DocumentRow{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return store.DocumentRow{}, err
	}
	return s.Store.Document(ctx, no, id)
}

// lookAgain is how often a wait looks: not everything that a document shows is told.
const lookAgain = time.Second

// Wait returns a document once it is no longer being processed, or as it stands when ctx or the timeout ends
// first.
func (s *Service) Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	changes, stop := s.Store.WatchDocument(row.No)
	defer stop()
	over := time.NewTimer(timeout)
	defer over.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
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
		case <-look.C:
		case <-over.C:
			return d, nil
		case <-ctx.Done():
			return d, nil
		}
	}
}

// Documents returns a page of a tenant's documents, newest first.
func (s *Service) Documents(ctx context.Context, tenant string, limit int, cursor string) (page forebay.Page[forebay.Document], err error) {
	if limit, err = jobs.PageSize(limit); err != nil {
		return page, err
	}
	below, err := jobs.DecodeCursor(cursor)
	if err != nil {
		return page, err
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return page, err
	}
	rows, next, err := s.Store.Documents(ctx, no, below, limit)
	page.Items = make([]forebay.Document, len(rows))
	for i, row := range rows {
		page.Items[i] = view(row)
	}
	page.NextCursor = jobs.EncodeCursor(next)
	return page, err
}

// Delete removes a document with all that was made of it. Searches find it no more when it returns.
func (s *Service) Delete(ctx context.Context, tenant, id string) error {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return err
	}
	voided, err := s.Store.DeleteDocument(ctx, row.Latest.Tenant, id)
	if err == nil {
		s.dropped(voided)
	}
	return err
}

// Retry has what failed of a document's pipeline done again. It is CodeConflict if nothing has failed.
func (s *Service) Retry(ctx context.Context, tenant, id string) (forebay.Document, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Document{}, err
	}
	ctx = forebay.WithBudgetKey(ctx, row.Latest.KeyID) // whoever asks, the key that uploaded it pays, if it has a budget
	again := make([][]store.DocumentJob, len(row.Failed))
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
