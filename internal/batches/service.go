package batches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/limits"
)

// Options makes a Service. Zero numbers stand for the defaults.
type Options struct {
	Store  *Store
	Files  *files.Store
	Blobs  *blob.Store
	Jobs   *jobs.Service
	Limits *limits.Meter // nil: none
	Logger *slog.Logger
	Queue  string // of the jobs
	// Endpoints are those that lines may call, such as /v1/chat/completions.
	Endpoints []string
	// Serves reports whether there is a model of that name, and whether a deployment of it takes
	// OpenAI's requests as they are.
	Serves func(model string) (known, forwards bool)
	// Task names the task of lines.
	Task         func(endpoint, model string) string
	MaxLines     int64
	MaxLineBytes int64
	Remember     time.Duration // how long an idempotency key is remembered
	Keep         time.Duration // how long a batch is kept after it ended; 0: for ever
}

// Service answers everything about batches, and runs them. All methods are safe for concurrent
// use. They return *forebay.Error values for a caller's mistakes.
type Service struct {
	Options
	wake chan struct{} // holds a token when a batch may be due
}

// New returns the service.
func New(o Options) *Service {
	o.MaxLines = cmp.Or(o.MaxLines, DefaultMaxLines)
	o.MaxLineBytes = cmp.Or(o.MaxLineBytes, forebay.DefaultMaxInputBytes)
	if o.Keep > 0 {
		o.Keep = max(o.Keep, o.Remember) // else a repeat would make a second batch
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Service{Options: o, wake: make(chan struct{}, 1)}
	o.Store.OnDue(s.lookAgain)
	return s
}

// lookAgain has Run look for batches that are due.
func (s *Service) lookAgain() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Request is what a client says of a new batch.
type Request struct {
	InputFile string            `json:"input_file_id"`
	Endpoint  string            `json:"endpoint"`
	Window    string            `json:"completion_window"`
	Metadata  map[string]string `json:"metadata"`
	Output    *struct {
		Anchor  string `json:"anchor"`
		Seconds int64  `json:"seconds"`
	} `json:"output_expires_after"`
	Key   string `json:"-"` // the idempotency key; "": none
	Again bool   `json:"-"` // the client has sent the request before
}

// Limits of what clients say.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
	maxWindow        = 7 * 24 * time.Hour
)

const idPrefix = "batch_"

// ValidID reports whether id could be a batch's.
func ValidID(id string) bool {
	rest, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(rest) == 26 && forebay.ValidName(rest)
}

// window reads a completion window: a whole number of hours.
func (q *Request) window() (time.Duration, error) {
	hours, err := strconv.Atoi(strings.TrimSuffix(q.Window, "h"))
	window := time.Duration(hours) * time.Hour
	if err != nil || !strings.HasSuffix(q.Window, "h") || hours < 1 || hours > int(maxWindow/time.Hour) {
		return 0, forebay.Invalid("completion_window", `must be "24h", or another whole number of hours up to %dh`, int(maxWindow/time.Hour))
	}
	return window, nil
}

// check checks what can be checked at once.
func (q *Request) check(endpoints []string) error {
	q.Endpoint = Endpoint(q.Endpoint)
	switch {
	case q.InputFile == "":
		return forebay.Invalid("input_file_id", "is required")
	case !files.ValidID(q.InputFile):
		return errNoInput
	case !slices.Contains(endpoints, q.Endpoint):
		return forebay.Invalid("endpoint", "must be one of %s", strings.Join(endpoints, ", "))
	case len(q.Metadata) > maxMetadata:
		return forebay.Invalid("metadata", "has more than %d pairs", maxMetadata)
	case q.Key != "" && !forebay.ValidText(q.Key, forebay.MaxIdempotencyKeyBytes):
		return forebay.Invalid("Idempotency-Key", "must be 1 to %d bytes of text without control characters", forebay.MaxIdempotencyKeyBytes)
	}
	for key, value := range q.Metadata {
		if len([]rune(key)) > maxMetadataKey || len([]rune(value)) > maxMetadataValue {
			return forebay.Invalid("metadata", "has keys of at most %d characters and values of at most %d", maxMetadataKey, maxMetadataValue)
		}
	}
	if q.Output != nil {
		return files.CheckExpiry("output_expires_after", cmp.Or(q.Output.Anchor, "created_at"), q.Output.Seconds)
	}
	return nil
}

// Create makes a batch. Its input is validated later. existing says that an earlier request has
// made it.
func (s *Service) Create(ctx context.Context, tenant string, q Request) (b Batch, existing bool, err error) {
	if err := q.check(s.Endpoints); err != nil {
		return b, false, err
	}
	window, err := q.window()
	if err != nil {
		return b, false, err
	}
	b = Batch{ID: ids.New(idPrefix), Endpoint: q.Endpoint, InputFile: q.InputFile, Window: q.Window, KeyID: forebay.BudgetKeyOf(ctx), Priority: lowest}
	if q.Metadata != nil {
		if b.Metadata, err = json.Marshal(q.Metadata); err != nil {
			return b, false, err
		}
	}
	if q.Output != nil {
		b.OutputTTL = time.Duration(q.Output.Seconds) * time.Second
	}
	if b.Tenant, err = s.Store.EnsureTenant(ctx, tenant); err != nil {
		return b, false, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %s %d", b.InputFile, b.Endpoint, b.Window, b.Metadata, b.OutputTTL)
	o := files.Origin{Key: q.Key, Hash: hex.EncodeToString(h.Sum(nil)), Again: q.Again, Keys: s.Remember}
	done, err := s.Limits.Take(ctx, tenant, forebay.LimitBatches, 1)
	if o.Refusal = err; err != nil && !o.Repeats() {
		return b, false, err
	} else if err == nil {
		defer done()
	}
	return s.Store.Create(ctx, b, window, o)
}

// Batch returns a batch.
func (s *Service) Batch(ctx context.Context, tenant, id string) (Batch, error) {
	if !ValidID(id) {
		return Batch{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return Batch{}, err
	}
	return s.Store.Batch(ctx, no, id)
}

// MaxPage is how many batches a page has at most.
const MaxPage = 100

// Batches returns a tenant's batches after one, newest first, and whether there are more. after
// may be "".
func (s *Service) Batches(ctx context.Context, tenant, after string, limit int) (list []Batch, more bool, err error) {
	switch {
	case limit < 1 || limit > MaxPage:
		return nil, false, forebay.Invalid("limit", "goes from 1 to %d", MaxPage)
	case after != "" && !ValidID(after):
		return nil, false, forebay.Invalid("after", "is no id of a batch")
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	return s.Store.Batches(ctx, no, after, limit)
}

// Cancel begins to cancel a batch. Lines that run may end within a minute; what has ended stays.
// A batch that is being cancelled, or was, is returned as it is.
func (s *Service) Cancel(ctx context.Context, tenant, id string) (Batch, error) {
	if !ValidID(id) {
		return Batch{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return Batch{}, err
	}
	return s.Store.Cancel(ctx, no, id)
}
