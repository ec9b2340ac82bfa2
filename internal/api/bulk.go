package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/turns"
)

func (a jobRoutes) routeBulk() {
	op := huma.Operation{
		OperationID: "submit-jobs", Method: http.MethodPost, Path: "/v1/jobs/bulk", Tags: []string{"jobs"},
		Summary: "Submit many jobs",
		Description: "NDJSON: one submit request a line; idempotency_key and traceparent are fields here. Each line " +
			"is answered by a line, in order, as soon as it is on disk; a wrong line fails alone. Blank lines are " +
			"skipped, but count. At most 100,000 lines.",
		Responses: streamed("200", "One result a line", transfer.NDJSON[0], a.schema(reflect.TypeFor[forebay.SubmitResult]())),
	}
	route(a.API, forebay.ScopeSubmit, op, func(_ context.Context, c *call, _ *none) (*stream, error) {
		if err := transfer.CheckContentType(c.r.Header, transfer.NDJSON); err != nil {
			return nil, err
		}
		return &stream{func(huma.Context) { a.bulk(c) }}, nil
	})
	a.documentBody(op, transfer.NDJSON[0], a.schema(reflect.TypeFor[forebay.SubmitRequest]()))
}

// bulk answers lines while the client still sends. One goroutine reads ahead while this one
// stores. The slower the disk, the more lines go into one transaction.
func (a jobRoutes) bulk(c *call) {
	c.w.Header().Set("Content-Type", transfer.NDJSON[0])
	c.w.Header().Set("X-Accel-Buffering", "no")
	// Without this, an HTTP/1 server reads the rest of the body before the first answer. Other
	// versions are always duplex.
	c.w.control.EnableFullDuplex()
	c.w.duplex = true
	c.w.untilDrain()

	ctx, cancel := a.untilDrain(c.r.Context())
	lines := transfer.ReadLines(ctx, transfer.LinesOptions{
		Body: c.r.Body, SetReadDeadline: c.w.control.SetReadDeadline, Memory: a.memory, Tenant: c.home,
		MaxBytes: a.maxBody, MaxLines: forebay.MaxBulkLines,
		Refusal: func(err error) *forebay.Error { return a.unread(ctx, c, err) }, Log: a.log,
	})
	// The end of the context also ends a read that waits for the client.
	stop := context.AfterFunc(ctx, c.w.unlessOver(func() { c.w.control.SetReadDeadline(time.Unix(1, 0)) }))
	defer func() {
		cancel()
		lines.Close()
		c.endBody() // part of the body may be unread
	}()
	for chunk := lines.Next(a.jobs.AtOnce()); chunk != nil; chunk = lines.Next(a.jobs.AtOnce()) {
		if !a.bulkChunk(c, chunk) {
			return
		}
	}
	if stop() {
		c.w.control.SetReadDeadline(time.Time{}) // as in Body.Close
	}
	if c.w.status == 0 {
		c.w.WriteHeader(http.StatusOK) // there were only blank lines
	}
}

// bulkChunk stores some lines and writes their results. It reports whether the client still
// listens.
func (a jobRoutes) bulkChunk(c *call, chunk []transfer.Line) bool {
	defer func() {
		for _, line := range chunk {
			line.Release()
		}
	}()
	ctx := c.acting(c.r.Context())
	results := make([]forebay.SubmitResult, len(chunk))
	var reqs []forebay.SubmitRequest
	var lines []int // indexes of their lines in chunk
	for i, line := range chunk {
		results[i].Line = line.Number
		if line.Err != nil {
			results[i].Error = line.Err
			continue
		}
		var req forebay.SubmitRequest
		var err error
		stopped := turns.Parse(ctx, len(line.Data), func() { req, err = decode.Submit(line.Data, true) })
		if err = cmp.Or(stopped, err); err != nil {
			results[i].Error = a.lineError(c, err)
			continue
		}
		reqs, lines = append(reqs, req), append(lines, i)
	}
	if len(reqs) > 0 {
		for i, result := range a.jobs.SubmitMany(ctx, c.caller.Tenant, reqs) {
			result.Line = chunk[lines[i]].Number
			if result.Error != nil {
				result.Error = a.lineError(c, result.Error)
			}
			results[lines[i]] = result
		}
	}
	var answer bytes.Buffer
	encoder := json.NewEncoder(&answer)
	encoder.SetEscapeHTML(false)
	for _, result := range results {
		if err := encoder.Encode(result); err != nil {
			a.logFailure(c.r.Context(), c, err, nil)
			panic(http.ErrAbortHandler)
		}
	}
	if _, err := c.w.Write(answer.Bytes()); err != nil {
		c.gone = true
		return false
	}
	return c.w.flush() == nil
}

// lineError is what the caller may see of an error.
func (a jobRoutes) lineError(c *call, err error) *forebay.Error {
	if ended := keyEnded(c.r.Context()); ended != nil {
		err = ended
	}
	e, ok := errors.AsType[*forebay.Error](err)
	if ok && e.Code != forebay.CodeInternal {
		return e
	}
	var cause error
	if ok {
		cause = e.Unwrap()
	}
	a.logFailure(c.r.Context(), c, err, cause)
	return errInternal(c)
}

// unread is what the client is told where reading lines has stopped.
func (a jobRoutes) unread(ctx context.Context, c *call, err error) *forebay.Error {
	if a.draining.Err() != nil {
		return forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; this line and what follows was not submitted")
	}
	if ended, ok := errors.AsType[*forebay.Error](keyEnded(ctx)); ok {
		return ended
	}
	if errors.Is(err, panics.ErrPanicked) {
		return errInternal(c)
	}
	return transfer.Unread(err, a.maxBody)
}
