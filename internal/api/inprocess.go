package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
)

// SignedInSurface is a surface that knows some callers by other means than an API key.
type SignedInSurface interface {
	Surface
	// SignedIn returns who makes a request. found is false if the request does not say; then
	// the key decides, or that the server needs none. An error is a *forebay.Error.
	SignedIn(r *http.Request) (caller forebay.Caller, found bool, err error)
}

type actingAsKey struct{}

// actingAs returns the caller of a request that this process makes itself.
func actingAs(ctx context.Context) (forebay.Caller, bool) {
	caller, ok := ctx.Value(actingAsKey{}).(forebay.Caller)
	return caller, ok
}

// As returns a transport for a client whose requests a answers itself, as that caller, without
// a connection. Scopes hold as for any request. Rates of requests do not: they count what came
// in.
func (a *API) As(caller forebay.Caller) http.RoundTripper { return &inProcess{a, caller} }

type inProcess struct {
	api    *API
	caller forebay.Caller
}

// RoundTrip answers a request. The answer's body is written while it is read.
func (t *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), actingAsKey{}, t.caller))
	// What the request of the page has belongs to that one alone.
	ctx = connections.Without(ctx)
	inner := r.Clone(ctx)
	inner.RequestURI, inner.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:0"
	inner.Host = r.URL.Host
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	body, w := io.Pipe()
	answer := &pipeWriter{header: http.Header{}, body: w, begun: make(chan struct{})}
	go func() {
		defer func() {
			var err error
			if v := recover(); v != nil { // an answer that was cut off; any other panic was answered
				err = fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, v)
			}
			answer.WriteHeader(http.StatusOK)
			w.CloseWithError(err)
		}()
		t.api.ServeHTTP(answer, inner)
	}()
	select {
	case <-answer.begun:
	case <-ctx.Done():
		cancel()
		body.CloseWithError(ctx.Err())
		return nil, ctx.Err()
	}
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.sent, Body: &pipeBody{body, cancel}, ContentLength: -1, Request: r,
	}, nil
}

// pipeBody ends the request when its reader has enough.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipeWriter is the writer of an answer that this process reads itself.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begun  chan struct{} // closed once status and sent are known
	status int
	sent   http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush is for event streams; each write is with the reader already.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }
