package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// SenderOptions are the settings of a Sender. The zero value is useful.
type SenderOptions struct {
	Policy    Policy
	RootCAs   *x509.CertPool // nil: the system's
	UserAgent string         // default "Forebay-Webhooks"
	// Observe is called for each delivery that was tried, with its outcome. It must be quick.
	Observe func(Endpoint, Delivery, Outcome)
}

// Sender makes single tries. It is safe for concurrent use.
type Sender struct {
	policy    Policy
	transport http.RoundTripper
	userAgent string
	observe   func(Endpoint, Delivery, Outcome) // may be nil
}

// A connection of HTTP/2 serves all webhooks at a host. One that has gone dead without a word is
// found out within a try. Else it would fail every try until the kernel gives it up, in some
// fifteen minutes.
const (
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
)

// NewSender returns a sender with a pool of connections of its own.
func NewSender(opts SenderOptions) *Sender {
	s := &Sender{policy: opts.Policy, userAgent: cmp.Or(opts.UserAgent, "Forebay-Webhooks"), observe: opts.Observe}
	dialer := net.Dialer{Timeout: 10 * time.Second, Resolver: opts.Policy.Resolver, ControlContext: s.policy.control}
	s.transport = &http.Transport{
		Proxy:                  nil, // a proxy could reach addresses that the policy refuses
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: opts.RootCAs},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    forebay.DefaultWebhookConcurrency,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxAnswerBytes,
		DisableCompression:     true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	return s
}

// Policy returns where the sender may send to.
func (s *Sender) Policy() *Policy { return &s.policy }

// Close closes the connections that are not in use.
func (s *Sender) Close() {
	if t, ok := s.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// errTimeout is the cause of a try's context once SendTimeout has passed.
var errTimeout = errors.New("no answer in time")

// Send tries once to deliver the message.
func (s *Sender) Send(ctx context.Context, e Endpoint, m Message) Attempt {
	ctx, cancel := context.WithTimeoutCause(ctx, SendTimeout, errTimeout)
	defer cancel()
	a := Attempt{At: time.Now()}
	s.try(ctx, e, m, &a)
	a.Duration = time.Since(a.At)
	return a
}

func (s *Sender) try(ctx context.Context, e Endpoint, m Message, a *Attempt) {
	req, err := s.request(ctx, e, m, a.At)
	if err != nil {
		a.Failure, a.Err = FailedConfig, err
		return
	}
	// A round trip follows no redirect and keeps no cookie. A POST of which anything was written
	// is not sent again.
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		a.Failure, a.Err = classify(ctx, err), err
		return
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	if a.Status < 200 || a.Status > 299 {
		a.Failure = FailedStatus
		a.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), a.At)
	}
	// Only the status counts. The rest is read so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBytes)
}

func (s *Sender) request(ctx context.Context, e Endpoint, m Message, at time.Time) (*http.Request, error) {
	if _, err := s.policy.parseURL(e.URL); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(m.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", cmp.Or(m.ContentType, "application/json"))
	req.Header.Set("User-Agent", s.userAgent)
	return req, setSignature(req.Header, e.Secrets, deliveryID(m.ID), at, m.Body)
}

func classify(ctx context.Context, err error) Failure {
	var refused errAddress
	var resolve *net.DNSError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var network net.Error
	switch {
	case errors.As(err, &refused), errors.As(err, &resolve):
		return FailedAddress
	case errors.Is(context.Cause(ctx), errTimeout):
		return FailedTimeout
	case ctx.Err() != nil:
		return FailedStopped
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &record):
		return FailedTLS
	case errors.As(err, &network) && network.Timeout():
		return FailedTimeout
	}
	return FailedConnection
}

// retryAfter reads a Retry-After header (RFC 9110, section 10.2.3): seconds or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
