package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

const (
	// freeBytes is the size up to which bodies and lines are read without asking for memory.
	freeBytes = 64 << 10
	// memoryWait is how long a larger one waits for its share of memory.
	memoryWait = 10 * time.Second
	// smallBody is the limit of bodies that hold no job input.
	smallBody = 1 << 20

	readTimeout        = 30 * time.Second // how long a body may pause, when it comes no slower than
	readBytesPerSecond = 64 << 10
)

var (
	jsonTypes   = []string{"application/json"}
	ndjsonTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"}
)

// checkContentType reports a body that is not one of the media types, or is compressed. A client
// that does not say is believed to send the right thing.
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

// readBody reads a JSON body of at most limit bytes. A large one takes part of the API's memory,
// which release gives back; until then the body must not be kept. What the client announces earns it
// neither memory nor time: both begin with what has arrived.
func (a *API) readBody(c *call, limit int64) (data []byte, release func(), err error) {
	if err := checkContentType(c.r.Header, jsonTypes); err != nil {
		return nil, nil, err
	}
	return a.readUpload(c, limit)
}

// readUpload is readBody for a body of whatever type.
func (a *API) readUpload(c *call, limit int64) (data []byte, release func(), err error) {
	r := c.r
	if err := checkEncoding(r.Header); err != nil {
		return nil, nil, err
	}
	if r.ContentLength > limit {
		return nil, nil, tooLarge("body", limit)
	}
	body := &pacedReader{r: http.MaxBytesReader(c.w.ResponseWriter, r.Body, limit), control: c.w.control, pace: newPace()}
	// A deadline must not outlive the body: the server goes on reading to notice a client that leaves.
	defer c.w.control.SetReadDeadline(time.Time{})

	size := r.ContentLength // -1: chunked
	if size >= 0 && size <= freeBytes {
		data = make([]byte, size)
		if _, err = io.ReadFull(body, data); err != nil {
			return nil, nil, bodyError(err, limit)
		}
		return data, func() {}, nil
	}
	first, err := io.ReadAll(io.LimitReader(body, freeBytes+1))
	if err != nil {
		return nil, nil, bodyError(err, limit)
	}
	if size < 0 {
		if len(first) <= freeBytes {
			return first, func() {}, nil
		}
		size = limit
	}
	if release, err = a.takeMemory(r.Context(), size); err != nil {
		return nil, nil, err
	}
	body.pace = newPace() // waiting for memory was not the client's doing
	if data, err = readRest(body, first, r.ContentLength); err != nil {
		release()
		return nil, nil, bodyError(err, limit)
	}
	return data, release, nil
}

// readRest reads what comes after first. The size is of both together, -1 when it is not known.
func readRest(body io.Reader, first []byte, size int64) ([]byte, error) {
	if size < 0 {
		buffer := bytes.NewBuffer(first)
		_, err := buffer.ReadFrom(body)
		return buffer.Bytes(), err
	}
	if int64(len(first)) > size {
		return nil, io.ErrUnexpectedEOF // more than announced: cannot happen over HTTP
	}
	data := make([]byte, size)
	_, err := io.ReadFull(body, data[copy(data, first):])
	return data, err
}

// pace is until when the next part of a body must have arrived. Whatever arrives gives time for more,
// but no more than readTimeout.
type pace struct{ until time.Time }

func newPace() pace { return pace{time.Now().Add(readTimeout)} }

func (p *pace) arrived(n int) {
	p.until = p.until.Add(time.Duration(n) * time.Second / readBytesPerSecond)
	if most := time.Now().Add(readTimeout); p.until.After(most) {
		p.until = most
	}
}

// pacedReader reads a body that must keep its pace.
type pacedReader struct {
	r       io.Reader
	control *http.ResponseController
	pace
}

func (p *pacedReader) Read(b []byte) (int, error) {
	p.control.SetReadDeadline(p.until)
	n, err := p.r.Read(b)
	p.arrived(n)
	return n, err
}

// takeMemory waits for a share of the memory for large bodies.
func (a *API) takeMemory(ctx context.Context, size int64) (release func(), err error) {
	size = min(size, a.capacity)
	waiting, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	if err := a.memory.Acquire(waiting, size); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errSaturated
	}
	return func() { a.memory.Release(size) }, nil
}

var errSaturated = forebay.Errorf(forebay.CodeTooManyRequests, "the server is busy with other large requests; try again")

func tooLarge(field string, limit int64) *forebay.Error {
	return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: field, Message: fmt.Sprintf("may have at most %d bytes", limit)}
}

// bodyError says why a body could not be read.
func bodyError(err error, limit int64) *forebay.Error {
	switch {
	case isTooLarge(err):
		return tooLarge("body", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return forebay.Invalid("body", "did not arrive in time")
	default:
		return forebay.Invalid("body", "ended early")
	}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}
