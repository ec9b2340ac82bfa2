package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
)

const (
	// freeBytes is the size up to which bodies and lines are read without claiming memory.
	freeBytes = 64 << 10
	// smallBody is the limit of bodies without a job's input.
	smallBody = 1 << 20

	// transferTimeout is how long a body or an answer may pause if it is not slower than the rates
	// below.
	transferTimeout     = 30 * time.Second
	readBytesPerSecond  = 64 << 10
	writeBytesPerSecond = 32 << 10
	// drainTimeout is how long a transfer may pause while the server stops.
	drainTimeout = 2 * time.Second
)

var (
	jsonTypes   = []string{"application/json"}
	ndjsonTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"}
)

// checkContentType reports a body that is compressed or is not one of the media types. A body
// without a content type is accepted.
func checkContentType(h http.Header, types []string) error {
	if err := checkEncoding(h); err != nil {
		return err
	}
	sent := h.Get("Content-Type")
	if sent == "" {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(sent)
	charset, hasCharset := params["charset"]
	if err == nil && (!hasCharset || strings.EqualFold(charset, "utf-8")) {
		for _, t := range types {
			if mediaType == t {
				return nil
			}
		}
	}
	return forebay.Errorf(forebay.CodeUnsupportedMedia, "the Content-Type must be %s", types[0])
}

func checkEncoding(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return forebay.Errorf(forebay.CodeUnsupportedMedia, "the body must not be compressed (Content-Encoding)")
	}
	return nil
}

// readBody reads a JSON body of at most limit bytes. A large body claims part of the memory that
// tenants share. release gives it back, and the body must not be kept after that. Memory and time
// are granted as bytes arrive, not by the announced size.
func (a *API) readBody(c *call, limit int64) (data []byte, release func(), err error) {
	if err := checkContentType(c.r.Header, jsonTypes); err != nil {
		return nil, nil, err
	}
	return a.readAll(c, limit)
}

// readAll is readBody for a body of any type.
func (a *API) readAll(c *call, limit int64) (data []byte, release func(), err error) {
	r := c.r
	if r.ContentLength > limit {
		return nil, nil, tooLarge("body", limit)
	}
	body := a.openBody(c, limit)
	defer body.Close()
	if size := r.ContentLength; size >= 0 && size <= freeBytes {
		data = make([]byte, size)
		if _, err = io.ReadFull(body, data); err != nil {
			return nil, nil, body.Problem(err)
		}
		return data, func() {}, nil
	}
	claim := a.memory.Claim(c.home)
	if data, err = readClaimed(r.Context(), body, claim, r.ContentLength); err != nil {
		claim.Release()
		return nil, nil, body.Problem(err)
	}
	return data, claim.Release, nil
}

// readClaimed reads a body to its end and claims memory as it arrives. The size is -1 if unknown.
func readClaimed(ctx context.Context, body *Body, claim *memory.Claim, size int64) ([]byte, error) {
	most := body.limit + 1 // the size at which reading fails
	if size >= 0 {
		most = size
	}
	claim.Expect(most)
	data := make([]byte, 0, min(most, freeBytes+1))
	for int64(len(data)) != size {
		if len(data) == cap(data) {
			bigger := min(most, 2*int64(cap(data)))
			grown := bigger
			if cap(data) > freeBytes+1 {
				grown -= int64(cap(data))
			}
			if err := claim.Grow(ctx, grown); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, bigger), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
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

// pace limits how slow a transfer may be. It holds the time left for the next part. Bytes that
// arrive add time, up to transferTimeout. Time between two parts does not count against the
// client.
type pace struct {
	left           time.Duration
	bytesPerSecond int
}

func newPace(bytesPerSecond int) pace { return pace{transferTimeout, bytesPerSecond} }

func (p *pace) moved(n int, took time.Duration) {
	p.left = min(transferTimeout, p.left-took+time.Duration(n)*time.Second/time.Duration(p.bytesPerSecond))
}

// Body reads a body of at most limit bytes and enforces its pace. When the server stops, the
// body has little time left.
type Body struct {
	r        io.Reader
	control  *http.ResponseController
	limit    int64
	draining context.Context
	pace
	err error // the error that ended it, other than io.EOF

	stop func() bool // stops watching for the server's stop
	mu   sync.Mutex
	over bool // a stop no longer affects it
}

// openBody begins to read a body. The caller must call Close at the end.
func (a *API) openBody(c *call, limit int64) *Body {
	b := &Body{
		r: http.MaxBytesReader(c.w.ResponseWriter, c.r.Body, limit), control: c.w.control, limit: limit, draining: a.draining, pace: newPace(readBytesPerSecond),
	}
	b.stop = context.AfterFunc(a.draining, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.over {
			b.control.SetReadDeadline(time.Now().Add(drainTimeout))
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
	b.control.SetReadDeadline(begun.Add(b.left))
	if b.draining.Err() != nil { // the line above may have overwritten its deadline
		b.left = min(b.left, drainTimeout)
		b.control.SetReadDeadline(begun.Add(b.left))
	}
	n, err := b.r.Read(p)
	b.moved(n, time.Since(begun))
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
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
		return bodyError(b.err, b.limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bodyError(err, b.limit)
	}
	return err
}

var errStopping = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")

func tooLarge(field string, limit int64) *forebay.Error {
	return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: field, Message: fmt.Sprintf("may have at most %d bytes", limit)}
}

// bodyError says why a body could not be read.
func bodyError(err error, limit int64) *forebay.Error {
	switch {
	case isTooLarge(err):
		return tooLarge("body", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &forebay.Error{Code: forebay.CodeRequestTimeout, Field: "body", Message: "did not arrive in time"}
	default:
		return forebay.Invalid("body", "ended early")
	}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}
