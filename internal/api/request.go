package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
)

// maxRequestIDBytes bounds an X-Request-Id of a client that the server adopts.
const maxRequestIDBytes = 128

// call is the state of one request.
type call struct {
	id            string
	api           *API
	r             *http.Request
	w             *responseWriter
	route         string         // the pattern that matched; "" until one has
	surface       Surface        // whose address it has; nil: Forebay's own
	caller        forebay.Caller // in the tenant that the request is about
	home          string         // the tenant of the key, which pays for the request
	sentKey       bool           // the client sent a key, right or wrong
	codes         []string       // keys in the query of a request below durablePath
	correlationID string         // of the job concerned, once known
	gone          bool           // the client has disconnected
	body          *transfer.Incoming
	claim         *memory.Claim // for the answer and what is read for it; nil: none yet
	waited        bool          // it has waited, so its key may have ended before the answer
}

type callKey struct{}

func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// actor names the caller in audit rows.
func (c *call) actor() string {
	if c.caller.KeyID == "" {
		return forebay.LocalActor
	}
	return c.caller.KeyID
}

// acting returns a context that carries the actor, the budget that pays and the memory claim for
// payloads.
func (c *call) acting(ctx context.Context) context.Context {
	ctx = forebay.WithActor(ctx, c.actor())
	ctx = memory.With(ctx, c.memory())
	if c.caller.Budgeted {
		ctx = forebay.WithBudgetKey(ctx, c.caller.KeyID)
	}
	return ctx
}

// memory returns the memory claim of this request.
func (c *call) memory() *memory.Claim {
	if c.claim == nil {
		c.claim = c.api.memory.Claim(c.home)
	}
	return c.claim
}

// challenge is the WWW-Authenticate header of a 401 (RFC 6750 section 3).
func (c *call) challenge() string {
	if c.sentKey {
		return `Bearer realm="forebay", error="invalid_token"`
	}
	return `Bearer realm="forebay"`
}

// attrs are the log attributes of the request. Paths and queries may hold private data, so they
// are left out.
func (c *call) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", c.r.Method),
		slog.String("route", c.route),
		slog.String("request_id", c.id),
	}
	if c.caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.caller.Tenant))
	}
	if c.away() {
		attrs = append(attrs, slog.String("key_tenant", c.home))
	}
	if c.correlationID != "" {
		attrs = append(attrs, slog.String("correlation_id", c.correlationID))
	}
	return attrs
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	c := &call{id: r.Header.Get("X-Request-Id"), api: a, surface: surfaceOf(a.surfaces, r.URL.Path)}
	if !forebay.ValidText(c.id, maxRequestIDBytes) {
		c.id = rand.Text()
	}
	c.w = &responseWriter{ResponseWriter: w, control: http.NewResponseController(w), call: c, pace: transfer.NewPace(transfer.WriteBytesPerSecond)}
	c.r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if r.Body != nil && r.ContentLength != 0 {
		c.body = transfer.NewIncoming(r)
		c.r.Body = c.body
	}
	// The deadline of an earlier request on the same connection may have passed.
	c.w.extend()

	header := w.Header()
	header.Set("X-Request-Id", c.id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")

	defer func() {
		c.w.end()
		c.claim.Release()
		c.body.ReadRest(a.draining, c.w.control)
	}()
	defer a.logAccess(c, start)
	defer a.recover(c)
	if err := checkURL(r); err != nil {
		a.fail(c, err)
		return
	}
	a.readDurable(c)
	a.mux.ServeHTTP(c.w, c.r)
}

// recover answers a panic like any internal error. If the answer has begun, recover can only cut
// it off.
func (a *API) recover(c *call) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.log.LogAttrs(c.r.Context(), slog.LevelError, "request panicked",
		append(c.attrs(), slog.String("panic", panics.Describe(v)), slog.String("stack", string(debug.Stack())))...)
	if c.w.sent {
		panic(http.ErrAbortHandler)
	}
	c.w.status = 0
	c.w.Header().Del("Content-Length")
	newProblem(c, forebay.CodeInternal, errInternal(c).Message).write(c.w)
}

func (a *API) logAccess(c *call, start time.Time) {
	level := slog.LevelDebug
	status := c.w.status
	if c.gone {
		status = statusCancelled
	}
	if status >= http.StatusBadRequest {
		level = slog.LevelInfo
	}
	ctx := c.r.Context()
	if !a.log.Enabled(ctx, level) {
		return
	}
	a.log.LogAttrs(ctx, level, "request", append(c.attrs(),
		slog.Int("status", status),
		slog.Float64("duration_ms", float64(time.Since(start).Microseconds())/1000))...)
}

// checkURL refuses what no id, name or filter can be, before the routing.
func checkURL(r *http.Request) error {
	if !decode.CleanText(r.URL.Path) {
		return forebay.ErrNotFound
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return forebay.Invalid("query", "is not properly encoded")
	}
	for name, values := range query {
		for _, value := range values {
			if !decode.CleanText(name) || !decode.CleanText(value) {
				return forebay.Invalid("query", "holds invalid UTF-8 or control characters")
			}
		}
	}
	return nil
}

// endBody makes the connection close if part of the body is unread.
func (c *call) endBody() {
	if !c.body.Over() && c.r.ProtoMajor == 1 { // HTTP/2 resets the stream
		connections.Of(c.r.Context()).CloseWhenIdle()
	}
}

// responseWriter records the status and sends it with the first part of the body. It sets
// deadlines by the client's pace. It turns the mux's own answers (not found, method not allowed,
// redirects to a cleaned path) into problems.
type responseWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	call    *call
	status  int   // 0 until known
	sent    bool  // the status is
	mute    bool  // the body was replaced
	refused bool  // the answer is a problem
	duplex  bool  // the body is read while the answer is written
	claimed int64 // memory for the answer is claimed
	written int64
	stop    func() bool // stops watching for the server's stop; may be nil
	pace    transfer.Pace

	mu   sync.Mutex
	over bool // the request is over
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend sets the deadline of the next write. Writers without deadlines occur only in tests.
func (w *responseWriter) extend() {
	now := time.Now()
	w.control.SetWriteDeadline(now.Add(w.pace.Left()))
	// The line above may have overwritten the deadline of the drain.
	if w.stop != nil && w.call.api.draining.Err() != nil {
		w.control.SetWriteDeadline(now.Add(w.pace.Hurry()))
	}
}

// untilDrain shortens the deadline of the answer when the server stops.
func (w *responseWriter) untilDrain() {
	if w.stop == nil {
		w.stop = context.AfterFunc(w.call.api.draining, w.unlessOver(func() { w.control.SetWriteDeadline(time.Now().Add(transfer.DrainTimeout)) }))
	}
}

// unlessOver makes f do nothing after the request. The connection may then serve another one.
func (w *responseWriter) unlessOver(f func()) func() {
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.over {
			f()
		}
	}
}

// end sends the status of an answer without a body. It also stops watching for the server's stop.
func (w *responseWriter) end() {
	w.send()
	if w.stop != nil {
		w.stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

func (w *responseWriter) WriteHeader(status int) {
	if w.mute || w.status != 0 {
		return
	}
	if w.call.route == "" && !w.refused {
		w.unrouted(status)
		return
	}
	w.status = w.call.status(status) // huma sends its own, whatever the problem says
}

// send sends the status, if it is known. An answer before the end of the body closes the
// connection. Otherwise the server would read the rest of the body before it answers.
func (w *responseWriter) send() {
	if w.sent || w.status == 0 {
		return
	}
	w.sent = true
	if !w.duplex && !w.call.body.Over() && w.call.r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		w.control.EnableFullDuplex()
		w.call.endBody()
	}
	w.extend()
	w.ResponseWriter.WriteHeader(w.status)
}

// unrouted answers a request without a route and drops the mux's own answer.
func (w *responseWriter) unrouted(status int) {
	code, detail := forebay.CodeNotFound, "there is nothing at this address"
	if status == http.StatusMethodNotAllowed {
		code = forebay.CodeMethodNotAllowed
		detail = fmt.Sprintf("this address does not know %.16s; it allows %s", w.call.r.Method, w.Header().Get("Allow"))
	}
	w.Header().Del("Location")
	newProblem(w.call, code, detail).write(w)
	w.mute = true
}

const (
	// writePart is how many bytes are written under one deadline.
	writePart = 64 << 10
	// yieldBytes is how many bytes are written before other goroutines run. The kernel buffers
	// several megabytes for a client that reads nothing. The runtime would preempt the writer only
	// after 10 ms.
	yieldBytes = 16 << 10
)

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.mute {
		return len(b), nil
	}
	if len(b) > transfer.FreeBytes && int64(len(b)) > w.claimed {
		held := w.call.memory().Held()
		if err := w.claim(int64(len(b)) - w.claimed); err != nil {
			return 0, err
		}
		defer w.call.memory().Shrink(held)
		if w.mute {
			return len(b), nil
		}
	}
	w.send()
	total := 0
	for {
		part := b[:min(len(b), writePart)]
		begun := time.Now()
		w.extend()
		n, err := w.ResponseWriter.Write(part)
		w.pace.Moved(n, time.Since(begun))
		total += n
		if n >= yieldBytes {
			runtime.Gosched()
		}
		if b = b[n:]; err != nil || len(b) == 0 {
			if w.written += int64(total); w.written > transfer.FreeBytes {
				w.untilDrain()
			}
			return total, err
		}
		w.untilDrain()
	}
}

// claim claims memory for a large answer. Without memory, a read is refused. A request that has
// changed something is answered all the same.
func (w *responseWriter) claim(size int64) error {
	c := w.call
	err := c.memory().Grow(c.r.Context(), size)
	switch {
	case err == nil:
		return nil
	case c.r.Context().Err() != nil:
		return err
	case c.r.Method != http.MethodGet:
		return nil
	case w.sent:
		return err
	}
	for name := range w.Header() {
		switch name {
		case "X-Request-Id", "X-Content-Type-Options", "Cache-Control":
		default:
			w.Header().Del(name)
		}
	}
	p := c.api.problem(c.r.Context(), c, err)
	w.status = 0
	p.write(w)
	w.mute = true
	return nil
}

// flush sends the bytes written so far.
func (w *responseWriter) flush() error {
	w.send()
	begun := time.Now()
	w.extend()
	err := w.control.Flush()
	w.pace.Moved(0, time.Since(begun)) // the bytes have been counted already
	return err
}
