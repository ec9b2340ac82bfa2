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

	readTimeout        = 30 * time.Second // for a body of no size,
	readBytesPerSecond = 64 << 10         // and one second more for each of these
)

var (
	jsonTypes   = []string{"application/json"}
	ndjsonTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"}
)

// checkContentType reports a body that is not one of the media types, or is compressed. A client
// that does not say is believed to send the right thing.
func checkContentType(h http.Header, types []string) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return forebay.Errorf(forebay.CodeUnsupportedMedia, "the body must not be compressed (Content-Encoding)")
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

// readBody reads a JSON body of at most limit bytes. A large one takes part of the API's memory,
// which release gives back; until then the body must not be kept.
func (a *API) readBody(c *call, limit int64) (data []byte, release func(), err error) {
	r := c.r
	if err := checkContentType(r.Header, jsonTypes); err != nil {
		return nil, nil, err
	}
	if r.ContentLength > limit {
		return nil, nil, tooLarge("body", limit)
	}
	release = func() {}
	c.w.control.SetReadDeadline(time.Now().Add(readTime(freeBytes)))
	// A deadline must not outlive the body: the server goes on reading to notice a client that leaves.
	defer c.w.control.SetReadDeadline(time.Time{})

	size := r.ContentLength
	var body io.Reader = r.Body
	if size < 0 { // chunked: reads a little to learn whether it is small
		body = http.MaxBytesReader(c.w.ResponseWriter, r.Body, limit)
		data, err = io.ReadAll(io.LimitReader(body, freeBytes+1))
		if err != nil {
			return nil, nil, bodyError(err, limit)
		}
		if len(data) <= freeBytes {
			return data, release, nil
		}
		size = limit
	}
	if size > freeBytes {
		if release, err = a.takeMemory(r.Context(), size); err != nil {
			return nil, nil, err
		}
		c.w.control.SetReadDeadline(time.Now().Add(readTime(size)))
	}
	if r.ContentLength >= 0 {
		data = make([]byte, size)
		_, err = io.ReadFull(body, data)
	} else {
		buffer := bytes.NewBuffer(data)
		_, err = buffer.ReadFrom(body)
		data = buffer.Bytes()
	}
	if err != nil {
		release()
		return nil, nil, bodyError(err, limit)
	}
	return data, release, nil
}

// readTime is how long a body of that size may take to arrive.
func readTime(size int64) time.Duration {
	return readTimeout + time.Duration(size/readBytesPerSecond)*time.Second
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
