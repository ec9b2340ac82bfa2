package model

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

const (
	defaultIdleTimeout    = 30 * time.Second
	defaultMaxOutputBytes = 10 << 20
	// maxErrorBytes is how much of an error response is read. The rest is dropped.
	maxErrorBytes = 64 << 10
	// wireFactor limits the bytes of a stream in relation to the text it may hold. An event of one
	// token has some 250 bytes around it. A stream of events without text must end too.
	wireFactor = 256
	// drainTimeout is how long to wait for the end of a finished stream, so that its connection
	// can be reused.
	drainTimeout = 50 * time.Millisecond
)

// sharedTransport serves all providers. Its one pool keeps connections open for many calls at
// once.
var sharedTransport = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	ForceAttemptHTTP2:     true,
	MaxIdleConns:          1024,
	MaxIdleConnsPerHost:   256,
	IdleConnTimeout:       90 * time.Second,
	TLSHandshakeTimeout:   10 * time.Second,
	ExpectContinueTimeout: time.Second,
	DisableCompression:    true, // compressors delay streamed events
	// One connection of HTTP/2 serves all calls to a provider. If it has gone dead without a word,
	// every call would fail until the kernel gives it up, in some fifteen minutes.
	HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second},
}

// HTTPConfig is common to all providers over HTTP. The zero value is useful.
type HTTPConfig struct {
	// IdleTimeout is the longest silence of the endpoint, before its answer and within it. The
	// default is 30 s. There is no total timeout, because long answers are normal and ctx ends
	// them.
	IdleTimeout time.Duration
	// MaxOutputBytes bounds the text of a streamed answer and the body of any other. The default
	// is 10 MiB.
	MaxOutputBytes int64
	// Transport replaces the shared connection pool.
	Transport http.RoundTripper
}

// endpoint is an HTTP API with JSON: one request, one answer, no retries and no redirects. A
// redirect would give the key to another host.
type endpoint struct {
	transport http.RoundTripper
	idle      time.Duration
	maxOutput int64
	header    http.Header
	key       forebay.Secret
	// authorize, if set, adds a credential that changes over time.
	authorize func(context.Context, http.Header) error
	// answered are the addresses that have answered calls. Providers do not serve all paths.
	answered *sync.Map
}

func newEndpoint(c HTTPConfig, key forebay.Secret, header map[string]string) endpoint {
	e := endpoint{transport: c.Transport, idle: c.IdleTimeout, maxOutput: c.MaxOutputBytes, key: key, answered: &sync.Map{}}
	if e.transport == nil {
		e.transport = sharedTransport
	}
	if e.idle <= 0 {
		e.idle = defaultIdleTimeout
	}
	if e.maxOutput <= 0 {
		e.maxOutput = defaultMaxOutputBytes
	}
	e.header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"forebay"}}
	for name, value := range header {
		e.header.Set(name, value)
	}
	return e
}

// baseURL checks a configured endpoint and returns it without a trailing slash.
func baseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("endpoint: not a URL") // err quotes the value, which may hold a password
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("endpoint: the scheme must be http or https, not %q", u.Scheme)
	case u.Hostname() == "":
		return "", errors.New("endpoint: no host")
	case u.User != nil:
		return "", errors.New("endpoint: credentials do not belong in the URL")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("endpoint: a query or fragment does not belong in the base URL")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// checkKey refuses a key that HTTP cannot carry. Otherwise the first call would fail.
func checkKey(key forebay.Secret) error {
	for _, c := range []byte(key) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("api_key: holds a space, a line break or a character outside ASCII")
		}
	}
	return nil
}

// errIdle is the cause of a call's context when the endpoint has been silent for too long.
var errIdle = errors.New("idle timeout")

// watch is the idle timer of one call. Every byte in either direction resets it.
type watch struct {
	timer *time.Timer
	idle  time.Duration
}

func newWatch(idle time.Duration, expired func()) *watch {
	return &watch{timer: time.AfterFunc(idle, expired), idle: idle}
}

func (w *watch) moved(n int) {
	if n > 0 {
		w.timer.Reset(w.idle)
	}
}

type watchedReader struct {
	io.Reader
	watch *watch
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.watch.moved(n)
	return n, err
}

// events reads the body as a stream of bounded length.
func (e *endpoint) events(body io.Reader) *events {
	return readEvents(&capped{body, wireFactor * e.maxOutput}, int(e.maxOutput)+maxErrorBytes)
}

// answer is a 2xx response in the form for its handler.
type answer struct {
	status int
	header http.Header
	body   io.Reader
	raw    io.Reader // the body without the idle timer
	watch  *watch

	firstToken func() // called with the first text of a stream; may be nil
	idle       time.Duration
}

// outgoing is one request.
type outgoing struct {
	method string // "": POST
	url    string
	body   []byte
	texts  func() []string // the caller's texts, which no error message may repeat
	// limits is called when the headers of an answer of any status have arrived.
	limits func(RateLimits)
	// patience is how long the endpoint may be silent before it answers. 0: its idle timeout.
	patience time.Duration
	// thinks says that a stream may be silent for so long before its first text.
	thinks bool
	header http.Header // further headers; nil: none
	// optional says that not every server has the path, and not every model.
	optional bool
	// refused, if set, gets an answer that is not 2xx.
	refused func(status int, header http.Header, body []byte)
}

// post sends a request and passes a 2xx answer to handle. The error is a *forebay.TaskError or the
// error of ctx.
func (e *endpoint) post(ctx context.Context, out outgoing, handle func(answer) error) error {
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWatch(cmp.Or(out.patience, e.idle), func() { cancel(errIdle) })
	defer w.timer.Stop()

	err := e.do(callCtx, out, w, handle)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if errors.Is(context.Cause(callCtx), errIdle) {
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeIdleTimeout,
			Message: fmt.Sprintf("the endpoint sent nothing for %v", w.idle), Err: err}
	}
	return callError(err)
}

// smallBody is the largest body that is sent at once. The transport writes a body in memory
// together with the header, in one packet. For a larger body, the idle timer watches the sending.
const smallBody = 64 << 10

func (e *endpoint) do(ctx context.Context, out outgoing, w *watch, handle func(answer) error) error {
	body, sending := out.body, *w // of its own: the body may still be sent while an answer arrives
	reader := func() io.ReadCloser {
		if len(body) == 0 {
			return http.NoBody
		}
		if len(body) <= smallBody {
			return io.NopCloser(bytes.NewReader(body))
		}
		return io.NopCloser(watchedReader{bytes.NewReader(body), &sending})
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(out.method, http.MethodPost), out.url, reader())
	if err != nil {
		return forebay.Permanent(CodeBadRequest, "the endpoint's address is not valid")
	}
	// The transport repeats the body only if a pooled connection was closed before it wrote the
	// first byte of the request.
	req.GetBody = func() (io.ReadCloser, error) { return reader(), nil }
	req.ContentLength = int64(len(body))
	req.Header = maps.Clone(e.header)
	maps.Copy(req.Header, out.header)
	if e.authorize != nil {
		if err := e.authorize(ctx, req.Header); err != nil {
			return err
		}
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !out.thinks {
		w.idle = e.idle
	}
	w.moved(1)
	out.limits(readRateLimits(resp.Header, resp.StatusCode, time.Now()))
	from := watchedReader{resp.Body, w}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		detail, err := io.ReadAll(io.LimitReader(from, maxErrorBytes))
		if err != nil && ctx.Err() != nil {
			return err
		}
		if out.refused != nil {
			out.refused(resp.StatusCode, resp.Header, detail)
		}
		return e.statusError(resp.StatusCode, resp.Header, detail, out.optional || e.onlyElsewhere(out.url), out.texts)
	}
	if out.method == "" {
		e.answered.Store(out.url, nil)
	}
	return handle(answer{status: resp.StatusCode, header: resp.Header, body: from, raw: resp.Body, watch: w, firstToken: firstToken(ctx), idle: e.idle})
}

// onlyElsewhere reports whether calls were answered at other addresses and never at this one.
func (e *endpoint) onlyElsewhere(url string) (elsewhere bool) {
	e.answered.Range(func(answered, _ any) bool {
		elsewhere = answered != url
		return elsewhere
	})
	return elsewhere
}

// readAll reads an answer that is not streamed.
func (e *endpoint) readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, e.maxOutput+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > e.maxOutput {
		return nil, e.tooLarge()
	}
	return b, nil
}

func (e *endpoint) tooLarge() error {
	return forebay.Permanent(CodeResponseTooLarge, fmt.Sprintf("the answer is larger than %d bytes", e.maxOutput))
}

// capped reads up to n bytes of r. More is errTooLarge, and not an end that looks like the end of
// the stream.
type capped struct {
	r io.Reader
	n int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.n <= 0 {
		return 0, errTooLarge
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.n)])
	c.n -= int64(n)
	return n, err
}

// drain reads to the end of the stream, where nothing should follow, so that the connection
// returns to the pool. An endpoint that keeps the stream open only loses its connection.
func (a answer) drain() {
	a.watch.timer.Reset(drainTimeout)
	_, _ = io.CopyN(io.Discard, a.raw, 4<<10)
}

// ended returns why ctx ended. errors.Is matches both ctx.Err() and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
