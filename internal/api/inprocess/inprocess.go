// Package inprocess answers HTTP requests by a handler of the same process, without a connection.
package inprocess

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Transport is an [http.RoundTripper] whose requests the handler answers. The body of an answer is
// written while it is read.
type Transport struct{ Handler http.Handler }

// RoundTrip returns as soon as the answer begins. Closing its body ends the request.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
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
		t.Handler.ServeHTTP(answer, inner)
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
