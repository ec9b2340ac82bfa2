package responses

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Options makes a Service.
type Options struct {
	Store    *Store
	Payloads *payload.Store
	Limits   *limits.Meter
	Files    *files.Service
	Queue    string        // of the jobs of background responses
	Keep     time.Duration // how long responses live; 0: for ever
	Remember time.Duration // how long the idempotency key of a deleted response is remembered
	MaxBody  int64         // bytes of a request with the context that goes before it
	Logger   *slog.Logger
}

// Service does what clients ask for. Its methods are safe for concurrent use. They see only the
// given tenant's responses; others are forebay.ErrNotFound. Errors are *forebay.Error or
// *bridge.Error where the caller did something wrong.
type Service struct {
	Options
	jobs    *jobs.Service
	changed chan struct{} // there may be something to remove
	seal    atomic.Pointer[cipher.AEAD]
}

// New returns a Service. Use must be called before it is used.
func New(o Options) *Service { return &Service{Options: o, changed: make(chan struct{}, 1)} }

// Use sets the service that its jobs go to.
func (s *Service) Use(j *jobs.Service) { s.jobs = j }

// Submission is a request for a background response.
type Submission struct {
	Request  *bridge.Request
	Body     []byte // of the request
	Need     forebay.CallEstimate
	Priority int
	// IdempotencyKey is the client's; "": none.
	IdempotencyKey string
	// Again says that the client has sent the request before and got no answer.
	Again       bool
	Traceparent string
}

// repeatWindow is for how long a client's SDK may repeat a request of which it got no answer.
const repeatWindow = 10 * time.Minute

// backgroundDeadline is how long a background response may take, with all that it waits for.
const backgroundDeadline = 24 * time.Hour

// Create stores a background response and the job that makes it.
func (s *Service) Create(ctx context.Context, tenant string, sub Submission) (Row, error) {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return Row{}, err
	}
	n := NewRow{ID: ids.New(bridge.IDPrefix), Tenant: no, Status: bridge.StatusQueued, Model: sub.Request.Model, Previous: sub.Request.Previous, Keep: s.Keep, Hash: digest(string(sub.Body))}
	switch {
	case sub.IdempotencyKey != "":
		n.Repeat, n.Repeated = digest("key", sub.IdempotencyKey), db.Never
	default:
		n.Repeat = digest("body", string(sub.Body))
		if sub.Again {
			n.Repeated = repeatWindow.Milliseconds()
		}
	}
	for _, take := range []struct {
		name forebay.LimitName
		n    int64
	}{{forebay.LimitWaitingJobs, 1}, {forebay.LimitStoredBytes, int64(len(sub.Body))}} {
		done, full := s.Limits.Take(ctx, tenant, take.name, take.n)
		if full == nil {
			defer done()
		} else if n.Repeated == 0 { // it cannot be a repeat
			return Row{}, full
		} else if n.Refusal == nil {
			n.Refusal = full
		}
	}
	input, err := json.Marshal(jobInput{Response: n.ID, PromptTokens: sub.Need.PromptTokens, MaxOutputTokens: sub.Need.MaxOutputTokens, AsResponses: sub.Need.AsResponses})
	if err != nil {
		return Row{}, err
	}
	deadline := s.Store.Now().Add(backgroundDeadline)
	created, err := s.jobs.NewJobs(ctx, tenant, []forebay.SubmitRequest{{Task: TaskName(sub.Request.Model), Input: input, Queue: s.Queue,
		Priority: &sub.Priority, Deadline: &deadline, CorrelationID: &n.ID, Traceparent: sub.Traceparent}})
	if err != nil {
		return Row{}, err
	}
	n.Job = &created[0]
	n.Events, n.State = firstEvents, bridge.State{Sequence: 2}
	base := encode(sub.Request.Base(n.ID, s.Store.Now(), n.Status))
	if err := s.put(ctx, &n, sub.Body, base); err != nil {
		return Row{}, err
	}
	existing, err := s.Store.Add(ctx, n)
	if existing != "" || refused(err) { // else the blobs may be recorded, or the sweep finds them
		for _, key := range []string{n.Request.Blob, n.Object.Blob} {
			if key != "" {
				s.Payloads.Remove(ctx, key)
			}
		}
	}
	if err != nil {
		return Row{}, err
	}
	if existing != "" {
		return s.Store.Response(ctx, no, existing)
	}
	row, err := s.Store.Response(ctx, no, n.ID)
	return asCreated(row, n, base), err
}

// asCreated returns a new response as it was stored. Its job may have ended it since, and clients
// expect one that is queued.
func asCreated(row Row, n NewRow, base json.RawMessage) Row {
	row.Status, row.State, row.EndedAt, row.Failure = n.Status, n.State, nil, nil
	row.Object = Payload{Inline: base, Size: int64(len(base))} // the blob is removed at the end
	return row
}

// put stores what is large of a response outside the database.
func (s *Service) put(ctx context.Context, n *NewRow, request, object []byte) (err error) {
	n.Request.Size, n.Object.Size = int64(len(request)), int64(len(object))
	if n.Request.Inline, n.Request.Blob, err = s.Payloads.Put(ctx, n.Tenant, n.ID, "request", request); err == nil {
		n.Object.Inline, n.Object.Blob, err = s.Payloads.Put(ctx, n.Tenant, n.ID, "object", object)
	}
	return err
}

// refused reports whether an error says that a transaction has changed nothing.
func refused(err error) bool {
	switch forebay.CodeOf(err) {
	case "", forebay.CodeUnavailable, forebay.CodeInternal:
		return false
	}
	return true
}

// digest identifies what is the same in two requests.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Finished is a response whose client has waited for it.
type Finished struct {
	ID      string
	Request *bridge.Request
	Created time.Time
	Body    []byte // of the request
	End     bridge.End
}

// Room asks whether the tenant may store so many bytes more. The caller calls done once they are
// stored or have failed.
func (s *Service) Room(ctx context.Context, tenant string, bytes int64) (done func(), err error) {
	return s.Limits.Take(ctx, tenant, forebay.LimitStoredBytes, bytes)
}

// Record stores a response that has ended.
func (s *Service) Record(ctx context.Context, tenant string, f Finished) error {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	n := NewRow{ID: f.ID, Tenant: no, Status: f.End.Status, Model: f.Request.Model, Previous: f.Request.Previous, Created: f.Created, Keep: s.Keep}
	if err := s.put(ctx, &n, f.Body, f.End.Object); err != nil {
		return err
	}
	_, err = s.Store.Add(ctx, n)
	return err
}

// Response returns a response as it stands.
func (s *Service) Response(ctx context.Context, tenant, id string) (Row, error) {
	if !knownID(id) {
		return Row{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return Row{}, err
	}
	return s.Store.Response(ctx, no, id)
}

// request reads the request that a response was made for.
func (s *Service) request(ctx context.Context, row Row) (*bridge.Request, error) {
	body, err := s.Payloads.Get(ctx, row.Request.Inline, row.Request.Blob, row.Request.Size)
	if err != nil {
		return nil, err
	}
	return bridge.Parse(body, row.Model)
}

// Object returns a response as clients see it.
func (s *Service) Object(ctx context.Context, row Row) (json.RawMessage, error) {
	object, err := s.Payloads.Get(ctx, row.Object.Inline, row.Object.Blob, row.Object.Size)
	if err != nil || row.Answered() {
		return object, err
	}
	return bridge.Now(object, row.CreatedAt, row.Status, row.Failure)
}

// InputItems returns the items of a response's own input, oldest first.
func (s *Service) InputItems(ctx context.Context, tenant, id string) ([]json.RawMessage, error) {
	row, err := s.Response(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, row)
	if err != nil {
		return nil, err
	}
	return req.InputItems(id), nil
}

// ErrSynchronous refuses to cancel a response whose client waits for it.
var ErrSynchronous = &bridge.Error{Message: "Cannot cancel a synchronous response."}

// Cancel ends a background response unless it has ended, and returns it as it is then.
func (s *Service) Cancel(ctx context.Context, tenant, id string) (Row, error) {
	row, err := s.Response(ctx, tenant, id)
	if err != nil {
		return row, err
	}
	if row.Seq == 0 {
		return row, ErrSynchronous
	}
	if row.Over() {
		return row, nil
	}
	if err := s.cancel(ctx, tenant, row); err != nil {
		return row, err
	}
	return s.Response(ctx, tenant, id)
}

// cancel ends the job of a response. That ends the response.
func (s *Service) cancel(ctx context.Context, tenant string, row Row) error {
	_, err := s.jobs.Cancel(ctx, tenant, row.Job)
	if code := forebay.CodeOf(err); code == forebay.CodeConflict || code == forebay.CodeNotFound { // it has ended
		return nil
	}
	return err
}

// Delete removes a response. One that is being made is cancelled.
func (s *Service) Delete(ctx context.Context, tenant, id string) error {
	row, err := s.Response(ctx, tenant, id)
	if err != nil {
		return err
	}
	if row.Seq != 0 && !row.Over() {
		if err := s.cancel(ctx, tenant, row); err != nil {
			return err
		}
	}
	deleted, err := s.Store.Delete(ctx, row)
	if err == nil && !deleted {
		err = forebay.ErrNotFound
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return err
}

// Run removes what is left of responses that are gone, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	const every = time.Minute // others expire, and other processes delete some
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := panics.Run(s.Logger, "removing responses", func() error { return s.Purge(ctx) }); err != nil && ctx.Err() == nil {
			s.Logger.Warn("cannot remove what is left of responses", slog.Any("error", err))
		}
		select {
		case <-s.changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Purge removes all responses that are gone, in small transactions.
func (s *Service) Purge(ctx context.Context) error {
	for more := true; more && ctx.Err() == nil; {
		var blobs []string
		var err error
		if blobs, more, err = s.Store.Purge(ctx, s.Remember); err != nil {
			return err
		}
		for _, key := range blobs {
			s.Payloads.Remove(ctx, key)
		}
	}
	return ctx.Err()
}
