package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"

	"github.com/forebayhq/forebay"
)

const (
	// bulkWindow and bulkWindowBytes bound the requests without an answer. They are kept in memory
	// to be sent again.
	bulkWindow      = 4096
	bulkWindowBytes = 16 << 20
	// maxResultBytes limits one line of the answer: a job with its metadata and an inline result.
	maxResultBytes = 1 << 20
)

const ndjson = "application/x-ndjson"

// SubmitBulk submits any number of jobs over a stream. It yields a result for each job as soon as
// the job is on disk. Line is the number of the request, from 1. Results come in order, except for
// requests that the busy server refused, which are sent again. A request without an idempotency
// key gets a random one. So the client can repeat requests after a broken connection without
// creating jobs twice.
//
// A goroutine reads requests, no faster than the server stores them. If the caller stops early,
// the goroutine reads at most one more request, and SubmitBulk waits for that. So requests should
// end when ctx ends. An error ends the sequence. The requests without a result may or may not have
// been stored.
func (c *jobs) SubmitBulk(ctx context.Context, requests iter.Seq[forebay.SubmitRequest]) iter.Seq2[forebay.SubmitResult, error] {
	return func(yield func(forebay.SubmitResult, error) bool) {
		next, stop := iter.Pull(requests)
		defer stop()
		b := &bulk{server: c.endpoint, next: next, yield: yield}
		b.room = sync.NewCond(&b.mu)
		retry := c.newRetry()
		for {
			before := b.settled
			err := b.round(ctx)
			switch {
			case b.stopped || b.finished():
				return
			case err == nil:
				err = &transportError{err: forebay.Errorf(forebay.CodeUnavailable, "the server ended the bulk submit")}
			}
			if b.settled > before {
				retry = c.newRetry()
			}
			if !retry.wait(ctx, err) {
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				yield(forebay.SubmitResult{}, err)
				return
			}
		}
	}
}

// bulkLine is a request that was sent or will be sent again.
type bulkLine struct {
	number int
	data   []byte
}

// bulk is the state of one SubmitBulk across its connections.
type bulk struct {
	server *endpoint
	next   func() (forebay.SubmitRequest, bool)
	yield  func(forebay.SubmitResult, error) bool

	settled int  // results that were yielded
	stopped bool // the caller has stopped

	// These belong to the sender while a round runs.
	drawn     int
	exhausted bool

	mu     sync.Mutex
	room   *sync.Cond
	sent   []bulkLine // sent in this round and unanswered
	bytes  int        // size of sent
	again  []bulkLine // to be sent in the next round
	closed bool       // the round is over
}

func (b *bulk) finished() bool { return b.exhausted && len(b.again) == 0 }

// round opens one connection, sends the pending requests and then new ones, and yields the
// results. Requests without an answer remain for the next round.
func (b *bulk) round(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	body, pipe := io.Pipe()
	var sender sync.WaitGroup
	b.closed = false
	resend := b.again
	b.again = nil
	sender.Go(func() { pipe.CloseWithError(b.send(pipe, &resend)) })
	defer func() {
		cancel()
		b.mu.Lock()
		b.closed = true
		b.room.Broadcast()
		b.mu.Unlock()
		body.CloseWithError(context.Canceled)
		sender.Wait()
		b.again = slices.Concat(b.again, b.sent, resend)
		slices.SortFunc(b.again, func(x, y bulkLine) int { return x.number - y.number })
		b.sent, b.bytes = nil, 0
	}()

	header := http.Header{"Content-Type": {ndjson}, "Accept": {ndjson}}
	resp, err := b.server.try(ctx, request{method: http.MethodPost, path: path("jobs", "bulk"), header: header}, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxResultBytes)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var result forebay.SubmitResult
		if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
			return errNotForebay.Caused(err)
		}
		if !b.answer(result) {
			return nil
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return forebay.Errorf(forebay.CodePayloadTooLarge, "a line of the server's answer has more than %d bytes", maxResultBytes)
	case err != nil:
		return b.server.unreachable(ctx, err)
	}
	return nil
}

// answer matches a result with the oldest unanswered request. It reports whether to go on reading.
func (b *bulk) answer(result forebay.SubmitResult) bool {
	b.mu.Lock()
	if len(b.sent) == 0 {
		b.mu.Unlock()
		return true // such as a message after the last line
	}
	line := b.sent[0]
	b.sent = b.sent[1:]
	b.bytes -= len(line.data)
	if unread(result.Error) {
		b.again = append(b.again, line)
		b.room.Signal()
		b.mu.Unlock()
		return true
	}
	b.room.Signal()
	b.mu.Unlock()
	result.Line = line.number
	b.settled++
	b.stopped = !b.yield(result, nil)
	return !b.stopped
}

// unread reports an error that is not about the line itself: the server was busy, is stopping or
// stopped reading. Lines of this client are JSON objects, so none is malformed as a whole.
func unread(e *forebay.Error) bool {
	return e != nil && (e.Code == forebay.CodeTooManyRequests || e.Code == forebay.CodeUnavailable ||
		e.Code == forebay.CodeInvalidRequest && e.Field == "body")
}

// send writes lines until there are no more or the server's limit for one request is reached.
func (b *bulk) send(w io.Writer, resend *[]bulkLine) error {
	for range forebay.MaxBulkLines {
		if !b.wait() {
			return nil
		}
		var line bulkLine
		if len(*resend) > 0 {
			line, *resend = (*resend)[0], (*resend)[1:]
		} else {
			var ok bool
			if line, ok = b.draw(); !ok {
				return nil
			}
		}
		b.mu.Lock()
		b.sent = append(b.sent, line)
		b.bytes += len(line.data)
		b.mu.Unlock()
		if _, err := w.Write(line.data); err != nil {
			return err
		}
	}
	return nil
}

// wait blocks until there is room in the window. It returns false if the round must end: it is
// over, or the server refused so much that a new connection is better.
func (b *bulk) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && (len(b.sent) >= bulkWindow || b.bytes >= bulkWindowBytes) {
		b.room.Wait()
	}
	return !b.closed && len(b.again) < bulkWindow
}

// draw takes the next request of the caller.
func (b *bulk) draw() (bulkLine, bool) {
	if b.exhausted {
		return bulkLine{}, false
	}
	req, ok := b.next()
	if !ok {
		b.exhausted = true
		return bulkLine{}, false
	}
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = rand.Text()
	}
	b.drawn++
	data, err := json.Marshal(req)
	if err != nil {
		// Encoding fails only if the input is not JSON. The server's answer to this line says so.
		data = []byte(`{"input":}`)
	}
	return bulkLine{number: b.drawn, data: append(data, '\n')}, true
}
