package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/turns"
)

const (
	bulkAhead = 128     // lines read ahead of the store
	bulkBytes = 1 << 20 // of small lines read ahead of the store
	// bulkIdle is how long the client of a bulk submit may send nothing.
	bulkIdle = 2 * time.Minute
)

func (a jobRoutes) routeBulk() {
	op := huma.Operation{
		OperationID: "submit-jobs", Method: http.MethodPost, Path: "/v1/jobs/bulk", Tags: []string{"jobs"},
		Summary: "Submit many jobs",
		Description: "NDJSON: one submit request a line; idempotency_key and traceparent are fields here. Each line " +
			"is answered by a line, in order, as soon as it is on disk; a wrong line fails alone. Blank lines are " +
			"skipped, but count. At most 100,000 lines.",
		Responses: streamed("200", "One result a line", ndjsonTypes[0], a.schema(reflect.TypeFor[forebay.SubmitResult]())),
	}
	route(a.API, forebay.ScopeSubmit, op, func(_ context.Context, c *call, _ *none) (*stream, error) {
		if err := checkContentType(c.r.Header, ndjsonTypes); err != nil {
			return nil, err
		}
		return &stream{func(huma.Context) { a.bulk(c) }}, nil
	})
	a.documentBody(op, ndjsonTypes[0], a.schema(reflect.TypeFor[forebay.SubmitRequest]()))
}

// bulkLine is a line that is not blank, or the reason why it could not be read.
type bulkLine struct {
	number  int
	data    []byte
	err     *forebay.Error
	release func() // of the memory the data takes
}

// bulk answers lines while the client still sends. One goroutine reads ahead while this one
// stores. The slower the disk, the more lines go into one transaction.
func (a jobRoutes) bulk(c *call) {
	c.w.Header().Set("Content-Type", ndjsonTypes[0])
	c.w.Header().Set("X-Accel-Buffering", "no")
	// Without this, an HTTP/1 server reads the rest of the body before the first answer. Other
	// versions are always duplex.
	c.w.control.EnableFullDuplex()
	c.w.duplex = true
	c.w.untilDrain()

	ctx, cancel := a.untilDrain(c.r.Context())
	lines := make(chan bulkLine, bulkAhead)
	reader := &lineReader{api: a.API, call: c, ctx: ctx, out: lines, ahead: semaphore.NewWeighted(bulkBytes), claim: a.memory.Claim(c.home)}
	reader.readAhead()
	// The end of the context also ends a read that waits for the client.
	stop := context.AfterFunc(ctx, c.w.unlessOver(func() { c.w.control.SetReadDeadline(time.Unix(1, 0)) }))
	go reader.run()
	defer func() {
		cancel()
		for line := range lines {
			line.release()
		}
		reader.claim.Release()
		c.endBody() // part of the body may be unread
	}()

	for first := range lines {
		if !a.bulkChunk(c, collect(first, lines, a.jobs.AtOnce())) {
			return
		}
	}
	if stop() {
		c.w.control.SetReadDeadline(time.Time{}) // as in Body.done
	}
	if c.w.status == 0 {
		c.w.WriteHeader(http.StatusOK) // there were only blank lines
	}
}

// collect returns the line and those that are ready behind it, at most that many.
func collect(first bulkLine, lines <-chan bulkLine, most int) []bulkLine {
	chunk := []bulkLine{first}
	for len(chunk) < most {
		select {
		case line, ok := <-lines:
			if !ok {
				return chunk
			}
			chunk = append(chunk, line)
		default:
			return chunk
		}
	}
	return chunk
}

// bulkChunk stores some lines and writes their results. It reports whether the client still
// listens.
func (a jobRoutes) bulkChunk(c *call, chunk []bulkLine) bool {
	defer func() {
		for _, line := range chunk {
			line.release()
		}
	}()
	ctx := c.acting(c.r.Context())
	results := make([]forebay.SubmitResult, len(chunk))
	var reqs []forebay.SubmitRequest
	var lines []int // indexes of their lines in chunk
	for i, line := range chunk {
		results[i].Line = line.number
		if line.err != nil {
			results[i].Error = line.err
			continue
		}
		var req forebay.SubmitRequest
		var err error
		stopped := turns.Parse(ctx, len(line.data), func() { req, err = decode.Submit(line.data, true) })
		if err = cmp.Or(stopped, err); err != nil {
			results[i].Error = a.lineError(c, err)
			continue
		}
		reqs, lines = append(reqs, req), append(lines, i)
	}
	if len(reqs) > 0 {
		for i, result := range a.jobs.SubmitMany(ctx, c.caller.Tenant, reqs) {
			result.Line = chunk[lines[i]].number
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

// lineReader splits a body into lines. Small lines wait in a bounded buffer. A large line claims
// memory like any large body.
type lineReader struct {
	api    *API
	call   *call
	ctx    context.Context
	out    chan<- bulkLine
	ahead  *semaphore.Weighted
	number int
	large  *pace         // pace of the large line being read
	claim  *memory.Claim // the memory for reading ahead
}

// readAhead reads ahead as far as memory allows.
func (l *lineReader) readAhead() {
	if !l.claim.TryGrow(bulkBytes) {
		l.ahead = semaphore.NewWeighted(freeBytes)
	}
}

// run reads until the body ends, and closes the channel.
func (l *lineReader) run() {
	defer close(l.out)
	if panics.Run(l.api.log, "reading a bulk submit", func() error { l.read(); return nil }) != nil {
		l.refuse(errInternal(l.call))
	}
}

func (l *lineReader) read() {
	body := bufio.NewReaderSize(l, freeBytes)
	for {
		l.number++
		line, err := l.next(body)
		if err == nil || errors.Is(err, io.EOF) {
			if line.err == nil && len(bytes.TrimSpace(line.data)) == 0 {
				line.release()
			} else if !l.send(line) {
				return
			}
			if err != nil {
				return
			}
			if l.number < forebay.MaxBulkLines {
				continue
			}
			if _, err = body.Peek(1); err != nil {
				return
			}
			l.number++
			l.refuse(forebay.Invalid("body", "may have at most %d lines; this and what follows was not read", forebay.MaxBulkLines))
			return
		}
		line.release()
		l.refuse(l.readError(err))
		return
	}
}

// next reads one line. The error is io.EOF with the last line, which may be empty. A line with its
// own error was skipped.
func (l *lineReader) next(body *bufio.Reader) (line bulkLine, err error) {
	line = bulkLine{number: l.number, release: func() {}}
	part, err := body.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		line.data = bytes.Clone(part)
		if size := int64(len(part)); size > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if taken := l.ahead.Acquire(l.ctx, size); taken != nil {
				return line, taken
			}
			line.release = func() { l.ahead.Release(size) }
		}
		return line, err
	}

	return l.nextLarge(body, part)
}

// nextLarge reads the rest of a line that begins with part, and claims memory as it arrives.
func (l *lineReader) nextLarge(body *bufio.Reader, part []byte) (line bulkLine, err error) {
	claim := l.api.memory.Claim(l.call.home)
	claim.Expect(l.api.maxBody)
	paced := newPace(readBytesPerSecond)
	l.large = &paced
	defer func() { l.large = nil }()
	line = bulkLine{number: l.number, release: claim.Release}
	for err = bufio.ErrBufferFull; ; {
		var refused *forebay.Error
		if size := len(line.data) + len(part); int64(size) > l.api.maxBody {
			refused = tooLarge("body", l.api.maxBody)
		} else if more := min(l.api.maxBody, 2*int64(size)); size > cap(line.data) {
			if claim.Grow(l.ctx, more-int64(cap(line.data))) != nil {
				refused = memory.ErrFull
			} else {
				line.data = append(make([]byte, 0, more), line.data...)
			}
		}
		if refused != nil {
			line.release() // skipping the line may take long
			line = bulkLine{number: l.number, err: refused, release: func() {}}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = skipLine(body)
			}
			return line, err
		}
		line.data = append(line.data, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		part, err = body.ReadSlice('\n')
	}
}

// skipLine reads to the end of the line.
func skipLine(body *bufio.Reader) error {
	for {
		if _, err := body.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// Read reads from the body with a deadline.
func (l *lineReader) Read(p []byte) (int, error) {
	begun, patience := time.Now(), bulkIdle
	if l.large != nil {
		patience = l.large.left
	}
	l.call.w.control.SetReadDeadline(begun.Add(patience))
	if err := l.ctx.Err(); err != nil {
		return 0, err // its deadline may just have been overwritten
	}
	n, err := l.call.r.Body.Read(p)
	if l.large != nil {
		l.large.moved(n, time.Since(begun))
	}
	return n, err
}

func (l *lineReader) send(line bulkLine) bool {
	select {
	case l.out <- line:
		return true
	case <-l.ctx.Done():
		line.release()
		return false
	}
}

// refuse answers the line at which reading stops. The answer must arrive even if the context has
// ended. The receiver reads until the channel closes.
func (l *lineReader) refuse(err *forebay.Error) {
	l.out <- bulkLine{number: l.number, err: err, release: func() {}}
}

func (l *lineReader) readError(err error) *forebay.Error {
	if l.api.draining.Err() != nil {
		return forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; this line and what follows was not submitted")
	}
	if ended, ok := errors.AsType[*forebay.Error](keyEnded(l.ctx)); ok {
		return ended
	}
	return bodyError(err, l.api.maxBody)
}
