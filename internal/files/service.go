package files

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Purposes of files that mean something here.
const (
	PurposeBatch  = "batch"        // the lines of a batch
	PurposeOutput = "batch_output" // what a batch has written
)

// uploadPurposes are those that an upload may have.
var uploadPurposes = []string{"assistants", PurposeBatch, "evals", "fine-tune", "user_data", "vision"}

// Limits and defaults. Those of sizes are OpenAI's.
const (
	DefaultMaxBytes      = 512 << 20
	DefaultMaxBatchBytes = 200 << 20
	DefaultBatchLifetime = 30 * 24 * time.Hour // of a file for a batch
	MinLifetime          = time.Hour
	MaxLifetime          = 30 * 24 * time.Hour
	MaxPage              = 10_000
	maxNameBytes         = 512
)

// Options makes a Service. Zero numbers stand for the defaults.
type Options struct {
	Store         *Store
	Blobs         *blob.Store
	Limits        *limits.Meter // nil: none
	Logger        *slog.Logger
	MaxBytes      int64         // of one file
	MaxBatchBytes int64         // of one with the purpose batch
	Remember      time.Duration // how long an idempotency key is remembered
}

// Service answers everything about files. All methods are safe for concurrent use and see only
// the given tenant's files. They return *forebay.Error values for a caller's mistakes.
type Service struct{ Options }

// New returns the service.
func New(o Options) *Service {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxBatchBytes = min(cmp.Or(o.MaxBatchBytes, DefaultMaxBatchBytes), o.MaxBytes)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Service{o}
}

// Upload is what a client says of a file. Some of it may come after the content.
type Upload struct {
	Name    string
	Purpose string
	// Anchor and Seconds are of expires_after, as the client wrote them; "": not given.
	Anchor, Seconds string
	Key             string // the idempotency key; "": none
	Again           bool   // the client has sent the request before
}

const idPrefix = "file-"

// ValidID reports whether id could be a file's.
func ValidID(id string) bool {
	rest, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(rest) == 26 && forebay.ValidName(rest)
}

// NewID returns the id of a new file.
func NewID() string { return ids.New(idPrefix) }

// Create stores a file. Its content goes to blob storage as it arrives. After that, rest is
// called, which reads what the client says after the content. existing says that an earlier
// request has made the file.
func (s *Service) Create(ctx context.Context, tenant string, u *Upload, content io.Reader, rest func() error) (f File, existing bool, err error) {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return f, false, err
	}
	if u.Purpose != "" { // that may come later
		if err := u.check(); err != nil {
			return f, false, err
		}
	}
	if err := memory.Grow(ctx, s.Blobs.StreamBuffer()); err != nil {
		return f, false, err
	}
	one, full := s.Limits.Take(ctx, tenant, forebay.LimitFiles, 1)
	if full == nil {
		defer one()
	} else if u.Key == "" && !u.Again { // it cannot be a repeat
		return f, false, full
	}
	f = File{ID: NewID(), Tenant: no}
	f.Blob = blob.Key(no, f.ID, "content")
	hash := sha256.New()
	stored := &metered{ctx: ctx, r: bufio.NewReaderSize(content, readBytes), limits: s.Limits, tenant: tenant}
	defer stored.done()
	most := s.MaxBytes
	if u.Purpose == PurposeBatch {
		most = s.MaxBatchBytes
	}
	f.Size, err = s.Blobs.PutStream(ctx, f.Blob, io.TeeReader(stored, hash), most)
	if forebay.CodeOf(err) == forebay.CodePayloadTooLarge {
		err = tooLarge(most)
	}
	if err != nil {
		return f, false, err
	}
	kept, key := false, f.Blob
	defer func() {
		if !kept {
			_ = s.Blobs.Delete(context.WithoutCancel(ctx), key) // the sweep would find it too
		}
	}()
	if err := rest(); err != nil {
		return f, false, err
	}
	if err := u.check(); err != nil {
		return f, false, err
	}
	if u.Purpose == PurposeBatch && f.Size > s.MaxBatchBytes {
		return f, false, tooLarge(s.MaxBatchBytes)
	}
	f.Name, f.Purpose = clean(u.Name), u.Purpose
	origin := u.origin(hash.Sum(nil), s.Remember)
	origin.Refusal = full
	made, existing, err := s.Store.Add(ctx, f, u.lifetime(), origin)
	// A failed transaction may be committed all the same; if not, the sweep finds the blob.
	kept = !existing && full == nil && !errors.Is(err, ErrOtherRequest)
	return made, existing, err
}

func tooLarge(most int64) error {
	return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "file", Message: fmt.Sprintf("may have at most %d bytes", most)}
}

// check checks what the client says of a file, but for its name.
func (u *Upload) check() error {
	switch {
	case u.Purpose == "":
		return forebay.Invalid("purpose", "is required")
	case !slices.Contains(uploadPurposes, u.Purpose):
		return forebay.Invalid("purpose", "must be one of %s", strings.Join(uploadPurposes, ", "))
	case u.Key != "" && !forebay.ValidText(u.Key, forebay.MaxIdempotencyKeyBytes):
		return forebay.Invalid("Idempotency-Key", "must be 1 to %d bytes of text without control characters", forebay.MaxIdempotencyKeyBytes)
	case u.Anchor == "" && u.Seconds == "":
		return nil
	}
	seconds, err := strconv.ParseInt(u.Seconds, 10, 64)
	if err != nil {
		return forebay.Invalid("expires_after[seconds]", "must be a whole number")
	}
	return CheckExpiry("expires_after", u.Anchor, seconds)
}

// CheckExpiry checks when a file is to expire.
func CheckExpiry(field, anchor string, seconds int64) error {
	if anchor != "created_at" {
		return forebay.Invalid(field+"[anchor]", `must be "created_at"`)
	}
	if least, most := int64(MinLifetime/time.Second), int64(MaxLifetime/time.Second); seconds < least || seconds > most {
		return forebay.Invalid(field+"[seconds]", "goes from %d to %d", least, most)
	}
	return nil
}

// lifetime is how long the file is kept; 0: for ever.
func (u *Upload) lifetime() time.Duration {
	seconds, _ := strconv.ParseInt(u.Seconds, 10, 64) // checked
	switch {
	case seconds > 0:
		return time.Duration(seconds) * time.Second
	case u.Purpose == PurposeBatch:
		return DefaultBatchLifetime
	}
	return 0
}

// origin tells this request from others. The boundary of a form differs in each repeat, so it is
// not part of that.
func (u *Upload) origin(content []byte, remember time.Duration) Origin {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %x", u.Name, u.Purpose, u.Anchor, u.Seconds, content)
	return Origin{Key: u.Key, Hash: hex.EncodeToString(h.Sum(nil)), Again: u.Again, Keys: remember}
}

// clean makes a file's name fit for a database and for logs of clients.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	return cmp.Or(strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], ""), "file")
}

// File returns a file.
func (s *Service) File(ctx context.Context, tenant, id string) (File, error) {
	if !ValidID(id) {
		return File{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return File{}, err
	}
	return s.Store.File(ctx, no, id)
}

// Content opens the content of a file. The caller closes it.
func (s *Service) Content(ctx context.Context, tenant, id string) (io.ReadCloser, File, error) {
	f, err := s.File(ctx, tenant, id)
	if err != nil {
		return nil, f, err
	}
	if err := memory.Grow(ctx, s.Blobs.StreamBuffer()); err != nil {
		return nil, f, err
	}
	content, _, err := s.Blobs.Get(ctx, f.Blob)
	return content, f, err
}

// rowMemory is about what a file takes in an answer.
const rowMemory = 600

// Files returns a page of a tenant's files, and whether there are more.
func (s *Service) Files(ctx context.Context, tenant string, q Query) (list []File, more bool, err error) {
	switch {
	case q.Limit < 1 || q.Limit > MaxPage:
		return nil, false, forebay.Invalid("limit", "goes from 1 to %d", MaxPage)
	case q.After != "" && !ValidID(q.After):
		return nil, false, forebay.Invalid("after", "is no id of a file")
	case len(q.Purpose) > forebay.MaxNameBytes || !forebay.ValidText(cmp.Or(q.Purpose, "any"), forebay.MaxNameBytes):
		return nil, false, forebay.Invalid("purpose", "is no purpose of files")
	}
	if q.Tenant, err = s.Store.EnsureTenant(ctx, tenant); err != nil {
		return nil, false, err
	}
	if list, more, err = s.Store.Files(ctx, q); err != nil {
		return nil, false, err
	}
	return list, more, memory.Grow(ctx, int64(len(list))*rowMemory)
}

// Delete removes a file. A batch that reads it goes on.
func (s *Service) Delete(ctx context.Context, tenant, id string) error {
	if !ValidID(id) {
		return forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.Store.Delete(ctx, no, id)
}

// purgeEvery is how often expired and deleted files are removed.
const purgeEvery = 30 * time.Second

// Run removes expired and deleted files until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for sleep.For(ctx, purgeEvery) == nil {
		if err := panics.Run(s.Logger, "removing files", func() error { return s.Purge(ctx) }); err != nil && ctx.Err() == nil {
			s.Logger.Warn("cannot remove files that have expired", slog.Any("error", err))
		}
	}
}

// Purge removes all files that have expired or were deleted, in small transactions.
func (s *Service) Purge(ctx context.Context) error {
	for {
		blobs, more, err := s.Store.Purge(ctx)
		if err != nil {
			return err
		}
		for _, key := range blobs {
			_ = s.Blobs.Delete(ctx, key) // the sweep would find it too
		}
		if !more {
			return nil
		}
	}
}

// readBytes is the buffer of an upload, and meterBytes how much may arrive before the tenant's
// limit is asked.
const (
	readBytes  = 64 << 10
	meterBytes = 1 << 20
)

// metered reads a content and asks the tenant's limit of stored bytes as it arrives. So uploads
// that come together do not fill a disk that none of them may fill.
type metered struct {
	ctx     context.Context
	r       io.Reader
	limits  *limits.Meter
	tenant  string
	arrived int64 // and not asked for yet
	taken   []func()
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if m.arrived += int64(n); m.arrived < meterBytes && err == nil {
		return n, nil
	}
	done, full := m.limits.Take(m.ctx, m.tenant, forebay.LimitStoredBytes, m.arrived)
	if full != nil {
		return 0, full
	}
	m.taken, m.arrived = append(m.taken, done), 0
	return n, err
}

func (m *metered) done() {
	for _, done := range m.taken {
		done()
	}
}
