// Package client is the Go SDK of a Forebay server.
//
// Every method is one operation of the HTTP interface and uses the types of package forebay.
// Errors of the server are *forebay.Error values with its stable code. A server that cannot be
// reached is CodeUnavailable.
//
// The client repeats safe requests with growing delays while the server cannot be reached or
// says that it is busy. Submits are safe, because each carries an idempotency key.
//
// A change or a deletion can be made conditional: give its context the entity tag that was read,
// by [forebay.WithCondition]. If somebody else has changed the thing since, the error is
// forebay.CodePreconditionFailed and nothing is changed. Such a request is not repeated.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// DefaultBaseURL is the address of a server without configuration.
const DefaultBaseURL = "http://127.0.0.1:8080"

const (
	defaultRetryTime        = 30 * time.Second
	defaultMaxResponseBytes = 64 << 20 // a page of 500 jobs with a 64 KiB result each, and room
)

// Options configures a Client. The zero value is for a server on this machine without API keys.
type Options struct {
	BaseURL    string         // "" is DefaultBaseURL
	Key        forebay.Secret // an API key, fb_…
	HTTPClient *http.Client   // nil: the package's own; a Timeout also ends long polls and streams

	// RetryTime is how long one call is repeated. 0 is 30 s. A negative value means no
	// repetition.
	RetryTime time.Duration
	// MaxResponseBytes limits how much of one answer is read into memory. 0 is 64 MiB. Streams
	// are limited by line, and Result is not limited.
	MaxResponseBytes int64
	// CACertificates are PEM certificates of authorities to trust in addition to the system's.
	// They do not combine with HTTPClient.
	CACertificates []byte
}

// Client calls one server. It is safe for concurrent use.
//
// Its methods are declared by subject, in unexported types that it embeds. jobs.go has those of
// jobs, topics.go those of topics, and so on.
type Client struct {
	*endpoint

	auditLog
	batches
	deadLetters
	deployments
	documents
	jobs
	keys
	signIns
	live
	messageQueues
	orchestrations
	queues
	reports
	tasks
	tenants
	topics
	responses
	webhooks
	workflows
}

// New returns a client. The error is a *forebay.Error about the base URL or the certificates.
func New(o Options) (*Client, error) {
	if o.BaseURL == "" {
		o.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, forebay.Invalid("base URL", "must be like %s", DefaultBaseURL)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	e := &endpoint{base: base, key: o.Key, http: o.HTTPClient, retryTime: o.RetryTime, maxBytes: o.MaxResponseBytes}
	if e.http == nil {
		transport := newTransport()
		if len(o.CACertificates) > 0 {
			roots, err := x509.SystemCertPool()
			if err != nil {
				roots = x509.NewCertPool()
			}
			if !roots.AppendCertsFromPEM(o.CACertificates) {
				return nil, forebay.Invalid("ca_certificates", "holds no certificate in PEM")
			}
			transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		}
		e.http = &http.Client{Transport: transport}
	}
	if e.retryTime == 0 {
		e.retryTime = defaultRetryTime
	}
	if e.maxBytes <= 0 {
		e.maxBytes = defaultMaxResponseBytes
	}
	return newClient(e), nil
}

// ForTenant returns a client that acts in another tenant with the same key and connections. It
// needs the scope admin, or view to read. "" is the tenant of the key.
func (c *Client) ForTenant(name string) *Client {
	e := *c.endpoint
	e.tenant = name
	return newClient(&e)
}

func newClient(e *endpoint) *Client {
	return &Client{
		endpoint:       e,
		auditLog:       auditLog{e},
		batches:        batches{e},
		deadLetters:    deadLetters{e},
		deployments:    deployments{e},
		documents:      documents{e},
		jobs:           jobs{e},
		keys:           keys{e},
		signIns:        signIns{e},
		live:           live{e},
		messageQueues:  messageQueues{e},
		orchestrations: orchestrations{e},
		queues:         queues{e},
		reports:        reports{e},
		tasks:          tasks{e},
		tenants:        tenants{e},
		topics:         topics{e},
		responses:      responses{e},
		webhooks:       webhooks{e},
		workflows:      workflows{e},
	}
}

// newTransport returns a transport that gives up on a server that accepts a connection and then
// says nothing. The longest long poll takes a minute.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 90 * time.Second,
	}
}

// BaseURL returns the server's address, without a password.
func (c *Client) BaseURL() string { return c.base.Redacted() }

// Call makes a request that has no method of its own. path stands below the base URL and is
// escaped. body is sent as JSON unless it is nil. The answer is decoded into out unless that is
// nil. Only GET is repeated.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	return c.call(ctx, request{method: method, path: path, query: query, body: body, once: method != http.MethodGet}, out)
}

// Open reads what has no method of its own, of whatever size. The caller must close it.
func (c *Client) Open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
