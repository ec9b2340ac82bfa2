package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
)

// Body reads a body of at most limit bytes and enforces its pace. When the server stops, the
// body has little time left.
type Body struct {
	r        io.Reader
	control  *http.ResponseController
	limit    int64
	draining context.Context
	pace     Pace
	err      error // the error that ended it, other than io.EOF

	stop func() bool // stops watching for the server's stop
	mu   sync.Mutex
	over bool // a stop no longer affects it
}

// Open begins to read the body of a request that w answers. The context ends when the server
// stops. The caller must call Close at the end.
func Open(draining context.Context, w http.ResponseWriter, r *http.Request, limit int64) *Body {
	b := &Body{
		r: http.MaxBytesReader(w, r.Body, limit), control: http.NewResponseController(w), limit: limit, draining: draining, pace: NewPace(ReadBytesPerSecond),
	}
	b.stop = context.AfterFunc(draining, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.over {
			b.control.SetReadDeadline(time.Now().Add(DrainTimeout))
		}
	})
	return b
}

// Close removes the deadline. The server goes on reading, to notice a client that disconnects.
func (b *Body) Close() {
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.control.SetReadDeadline(time.Time{})
}

func (b *Body) Read(p []byte) (int, error) {
	begun := time.Now()
	b.control.SetReadDeadline(begun.Add(b.pace.Left()))
	if b.draining.Err() != nil { // the line above may have overwritten its deadline
		b.control.SetReadDeadline(begun.Add(b.pace.Hurry()))
	}
	n, err := b.r.Read(p)
	b.pace.Moved(n, time.Since(begun))
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// All reads a body to its end. The size is the announced one, or -1. A large body claims part of
// the memory that tenants share. release gives it back, and the data must not be kept after that.
func (b *Body) All(ctx context.Context, pool *memory.Pool, tenant string, size int64) (data []byte, release func(), err error) {
	if size > b.limit {
		return nil, nil, TooLarge("body", b.limit)
	}
	if size >= 0 && size <= FreeBytes {
		data = make([]byte, size)
		if _, err = io.ReadFull(b, data); err != nil {
			return nil, nil, b.Problem(err)
		}
		return data, func() {}, nil
	}
	claim := pool.Claim(tenant)
	if data, err = b.claimed(ctx, claim, size); err != nil {
		claim.Release()
		return nil, nil, b.Problem(err)
	}
	return data, claim.Release, nil
}

// claimed reads a body to its end and claims memory as it arrives. The size is -1 if unknown.
func (b *Body) claimed(ctx context.Context, claim *memory.Claim, size int64) ([]byte, error) {
	most := b.limit + 1 // the size at which reading fails
	if size >= 0 {
		most = size
	}
	claim.Expect(most)
	data := make([]byte, 0, min(most, FreeBytes+1))
	for int64(len(data)) != size {
		if len(data) == cap(data) {
			bigger := min(most, 2*int64(cap(data)))
			grown := bigger
			if cap(data) > FreeBytes+1 {
				grown -= int64(cap(data))
			}
			if err := claim.Grow(ctx, grown); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, bigger), data...)
		}
		n, err := b.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF) && size >= 0 && int64(len(data)) < size:
			return nil, io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
	return data, nil
}

// Problem returns the error of a body that could not be handled. The body itself or something else
// is the cause.
func (b *Body) Problem(err error) error {
	switch {
	case err == nil:
		return nil
	case b.err != nil && b.draining.Err() != nil:
		return errStopping
	case b.err != nil:
		return Unread(b.err, b.limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Unread(err, b.limit)
	}
	return err
}

var errStopping = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")

// TooLarge is the error of a field, or the body, that has more bytes than the limit.
func TooLarge(field string, limit int64) *forebay.Error {
	return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: field, Message: fmt.Sprintf("may have at most %d bytes", limit)}
}

// Unread says why a body could not be read.
func Unread(err error, limit int64) *forebay.Error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return TooLarge("body", limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &forebay.Error{Code: forebay.CodeRequestTimeout, Field: "body", Message: "did not arrive in time"}
	}
	return forebay.Invalid("body", "ended early")
}
