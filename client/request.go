package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	firstDelay      = 100 * time.Millisecond
	maxDelay        = 5 * time.Second
	maxProblemBytes = 64 << 10
)

// endpoint sends requests to one server. All parts of a Client share one.
type endpoint struct {
	base      *url.URL
	key       forebay.Secret
	http      *http.Client
	retryTime time.Duration
	maxBytes  int64
	tenant    string // to act in; "": that of the key
}

// request is one operation.
type request struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   any    // marshalled as JSON unless nil
	raw    []byte // sent as it is, instead of body
	// once is for requests that must not be repeated when their answer is lost. They are repeated
	// while nothing was done.
	once bool
}

// call sends the request and decodes its answer into out, which may be nil.
func (e *endpoint) call(ctx context.Context, r request, out any) error {
	resp, err := e.send(ctx, r)
	if err != nil {
		return err
	}
	return e.decode(ctx, resp, out)
}

func (e *endpoint) decode(ctx context.Context, resp *http.Response, out any) error {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, e.maxBytes+1))
	switch {
	case err != nil:
		return e.unreachable(ctx, err)
	case int64(len(data)) > e.maxBytes:
		return forebay.Errorf(forebay.CodePayloadTooLarge, "the server's answer has more than %d bytes", e.maxBytes)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return errNotForebay.Caused(err)
	}
	return nil
}

var errNotForebay = forebay.Errorf(forebay.CodeUnavailable, "the answer is not a Forebay server's; check the address")

// send sends the request and repeats it where that is safe. The caller must close the body of the
// answer.
func (e *endpoint) send(ctx context.Context, r request) (*http.Response, error) {
	body := r.raw
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, forebay.Invalid("body", "cannot be written as JSON").Caused(err)
		}
	}
	// A repetition could meet the change that the lost answer was about, and be refused.
	once := r.once || r.method != http.MethodGet && !forebay.ConditionOf(ctx).Empty()
	retry := e.newRetry()
	for {
		resp, err := e.try(ctx, r, bodyReader(body))
		if err == nil {
			return resp, nil
		}
		if once && !nothingDone(err) || !retry.wait(ctx, err) {
			return nil, err
		}
	}
}

func bodyReader(body []byte) io.Reader {
	if body == nil {
		return nil
	}
	return bytes.NewReader(body)
}

// try sends the request once. An answer without success is an error.
func (e *endpoint) try(ctx context.Context, r request, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, e.url(r.path, r.query), body)
	if err != nil {
		return nil, forebay.Invalid("request", "has an address that cannot be used").Caused(err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key.Reveal())
	}
	if condition := forebay.ConditionOf(ctx); r.method != http.MethodGet {
		if len(condition.Match) > 0 {
			req.Header.Set("If-Match", strings.Join(condition.Match, ", "))
		}
		if condition.New {
			req.Header.Set("If-None-Match", forebay.AnyETag)
		}
	}
	if e.tenant != "" {
		req.Header.Set(forebay.TenantHeader, e.tenant)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, e.unreachable(ctx, err)
	}
	if resp.Request != nil && resp.Request.Method != r.method {
		return nil, errors.Join(resp.Body.Close(), movedError(resp.Request.URL))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problem(resp)
}

// movedError is for a redirection, such as to https, that turned the request into a GET. Its
// answer says nothing about what was asked for.
func movedError(to *url.URL) error {
	return forebay.Errorf(forebay.CodeUnavailable, "nothing was done: the address leads to %s; use that address", to.Scheme+"://"+to.Host)
}

// unreachable returns the error of a connection that could not be made or broke.
func (e *endpoint) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	unavailable := forebay.Errorf(forebay.CodeUnavailable, "cannot reach the server at %s: %s", e.base.Redacted(), oneLine(err.Error()))
	return &transportError{err: unavailable.Caused(err)}
}

// transportError marks an error after which the request may be repeated: the connection failed, or
// the server asked for it.
type transportError struct {
	err *forebay.Error
}

// nothingDone reports whether the server certainly did nothing: no connection was made, or it had
// no room for the request.
func nothingDone(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || forebay.CodeOf(err) == forebay.CodeTooManyRequests
}

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// plainToTLS begins the answer of net/http's servers to a request without TLS where it is spoken.
const plainToTLS = "Client sent an HTTP request to an HTTPS server"

// problem reads the answer of an error (RFC 9457).
func problem(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p struct {
		Code   forebay.Code `json:"code"`
		Detail string       `json:"detail"`
		Field  string       `json:"field"`
		JobID  string       `json:"job_id"`
	}
	e := &forebay.Error{Code: codeOfStatus(resp.StatusCode), Message: fmt.Sprintf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))}
	if err == nil && mediaType == "application/problem+json" && json.Unmarshal(data, &p) == nil && p.Code != "" {
		e = &forebay.Error{Code: p.Code, Message: p.Detail, Field: p.Field, JobID: p.JobID}
		// The detail begins with the field, and Error() adds the field again.
		if p.Field != "" {
			e.Message = strings.TrimPrefix(p.Detail, p.Field+": ")
		}
	}
	switch {
	case err != nil:
	case mediaType == "application/json":
		openAIProblem(data, e)
	case strings.HasPrefix(string(data), plainToTLS):
		e.Message += ": it speaks TLS, so its address begins with https"
	case mediaType != "application/problem+json" && resp.StatusCode < 500:
		e.Message += ", not as a Forebay server does; check the address"
	}
	e.RetryAfter = retryAfter(resp.Header, time.Now())
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if e.Code != forebay.CodeDatabaseUnusable && e.Code != forebay.CodeTenantLimit {
			return &transportError{err: e}
		}
	}
	return e
}

// codeOfStatus returns the code of an answer that did not come from Forebay but from a proxy or
// the like.
func codeOfStatus(status int) forebay.Code {
	switch status {
	case http.StatusUnauthorized:
		return forebay.CodeUnauthorized
	case http.StatusForbidden:
		return forebay.CodeForbidden
	case http.StatusNotFound:
		return forebay.CodeNotFound
	case http.StatusMethodNotAllowed:
		return forebay.CodeMethodNotAllowed
	case http.StatusConflict:
		return forebay.CodeConflict
	case http.StatusPreconditionFailed:
		return forebay.CodePreconditionFailed
	case http.StatusRequestEntityTooLarge:
		return forebay.CodePayloadTooLarge
	case http.StatusTooManyRequests:
		return forebay.CodeTooManyRequests
	}
	if status >= 500 || status < 400 {
		return forebay.CodeUnavailable
	}
	return forebay.CodeInvalidRequest
}

// retryAfter reads Retry-After, seconds or a date (RFC 9110 section 10.2.3).
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// retry counts the delays of one call.
type retry struct {
	until time.Time
	delay time.Duration
}

func (e *endpoint) newRetry() *retry {
	return &retry{until: time.Now().Add(e.retryTime), delay: firstDelay}
}

// wait sleeps before the next try. It returns false if there must be none: the error is final, the
// time is up or ctx ended. The delay is the one that the server asked for, or else doubles, with
// jitter.
func (r *retry) wait(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*transportError](err)
	if !ok || ctx.Err() != nil {
		return false
	}
	delay := r.delay/2 + rand.N(r.delay/2+1)
	r.delay = min(2*r.delay, maxDelay)
	delay = max(delay, e.err.RetryAfter)
	if time.Now().Add(delay).After(r.until) {
		return false
	}
	return sleep.For(ctx, delay) == nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// path joins escaped segments below /v1.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

func (e *endpoint) url(path string, query url.Values) string {
	s := strings.TrimRight(e.base.String(), "/") + path
	if len(query) > 0 {
		s += "?" + query.Encode()
	}
	return s
}

// checkID refuses an id that would address anything but one thing below its parent.
func checkID(field, id string) error {
	if id == "" || id == "." || id == ".." {
		return forebay.Invalid(field, "must not be %s", quoteOrEmpty(id))
	}
	return nil
}

func quoteOrEmpty(s string) string {
	if s == "" {
		return "empty"
	}
	return fmt.Sprintf("%q", s)
}
