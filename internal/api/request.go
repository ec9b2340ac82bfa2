package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// writeTimeout is how long one write to a client may block; then the client counts as gone.
const writeTimeout = 30 * time.Second

// maxRequestIDBytes bounds an X-Request-Id that is taken over from the client.
const maxRequestIDBytes = 128

// call is what the chain knows about one request.
type call struct {
	id            string
	r             *http.Request
	w             *responseWriter
	route         string // the pattern that matched; "" until one has
	caller        forebay.Caller
	sentKey       bool   // the client sent a key, right or wrong
	correlationID string // of the job concerned, once known
	gone          bool   // the client went away
	waited        bool   // it waited for something: what it was told may be of the time after its key had ended
	release       func() // of memory held until the answer is written; nil: none
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

// acting returns a context that says who acts, and whose budget pays.
func (c *call) acting(ctx context.Context) context.Context {
	ctx = forebay.WithActor(ctx, c.actor())
	if c.caller.Budgeted {
		ctx = forebay.WithBudgetKey(ctx, c.caller.KeyID)
	}
	return ctx
}

// challenge is the WWW-Authenticate header of a 401 (RFC 6750 section 3).
func (c *call) challenge() string {
	if c.sentKey {
		return `Bearer realm="forebay", error="invalid_token"`
	}
	return `Bearer realm="forebay"`
}

// attrs are the log attributes of the request. Paths and queries stay out: they may hold what the
// client would not want in a log.
func (c *call) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", c.r.Method),
		slog.String("route", c.route),
		slog.String("request_id", c.id),
	}
	if c.caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.caller.Tenant))
	}
	if c.correlationID != "" {
		attrs = append(attrs, slog.String("correlation_id", c.correlationID))
	}
	return attrs
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	c := &call{id: r.Header.Get("X-Request-Id")}
	if !forebay.ValidText(c.id, maxRequestIDBytes) {
		c.id = rand.Text()
	}
	c.w = &responseWriter{ResponseWriter: w, control: http.NewResponseController(w), call: c}
	c.r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	// The deadline of an earlier request on the same connection may have passed.
	c.w.extend()

	header := w.Header()
	header.Set("X-Request-Id", c.id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")

	defer func() {
		if c.release != nil {
			c.release()
		}
	}()
	defer a.logAccess(c, start)
	defer a.recover(c)
	if err := checkURL(r); err != nil {
		a.fail(c, err)
		return
	}
	a.mux.ServeHTTP(c.w, c.r)
}

// recover answers a panic like any internal error. Once the answer has begun it can only be cut off.
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
	if c.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
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

// checkURL refuses what no id, name or filter can be, before any route has to think of it.
func checkURL(r *http.Request) error {
	if !cleanText(r.URL.Path) {
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
			if !cleanText(name) || !cleanText(value) {
				return forebay.Invalid("query", "holds invalid UTF-8 or control characters")
			}
		}
	}
	return nil
}

// cleanText reports whether s is UTF-8 without control characters.
func cleanText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// responseWriter notes the status, gives each write its own deadline, and turns the mux's own
// answers (not found, method not allowed, redirects to a cleaned path) into problems.
type responseWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	call    *call
	status  int  // 0 until sent
	mute    bool // the body was replaced
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend gives the next write its time. Writers without deadlines, as in tests, have no clients
// that could be gone.
func (w *responseWriter) extend() { w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (w *responseWriter) WriteHeader(status int) {
	if w.mute || w.status != 0 {
		return
	}
	if w.call.route == "" && w.Header().Get("Content-Type") != problemType {
		w.unrouted(status)
		return
	}
	w.extend()
	w.status = w.call.status(status) // huma sends its own, whatever the problem says
	w.ResponseWriter.WriteHeader(w.status)
}

// unrouted answers a request for which there is no route, and drops what the mux has to say.
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

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.mute {
		return len(b), nil
	}
	w.extend()
	return w.ResponseWriter.Write(b)
}

// flush sends what was written so far.
func (w *responseWriter) flush() error {
	w.extend()
	return w.control.Flush()
}
