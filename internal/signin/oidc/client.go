package oidc

import (
	"context"
	"crypto/cipher"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/signin"
)

// Sessions begins sessions of people.
type Sessions interface {
	AsPerson(ctx context.Context, p signin.Person) (token string, err error)
}

// Log takes what the audit log is to have.
type Log interface {
	Record(ctx context.Context, a audit.Act) error
}

// Role is what a role of the provider may do here.
type Role struct {
	Scopes []forebay.Scope
	Tenant string // "": that of the other roles, or the default tenant
}

// Options configures a Client.
type Options struct {
	Name         string // of the provider, as pages show it
	Issuer       string // without /.well-known/openid-configuration
	ClientID     string
	ClientSecret forebay.Secret
	Redirect     string   // address of the callback, as the provider knows it
	Scopes       []string // of OpenID Connect; openid is one of them
	RolesClaim   string
	NameClaim    string // "": preferred_username, or else email, or else sub
	Roles        map[string]Role

	Sessions Sessions
	Audit    Log
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

const (
	// providerTimeout bounds each request to the provider.
	providerTimeout = 10 * time.Second
	// maxAnswerBytes bounds each answer of the provider.
	maxAnswerBytes = 1 << 20
	// maxExchanges is how many answers of the provider this process checks at once.
	maxExchanges = 16
	// exchangeWait is how long an answer waits for its turn.
	exchangeWait = 5 * time.Second
)

// Client signs people in. Its methods are safe for concurrent use.
type Client struct {
	options   Options
	http      *http.Client
	seal      cipher.AEAD
	exchanges chan struct{} // has one value for each answer that is being checked
	metadata  metadata
	refusals  refusals
}

// New returns a client. It asks the provider for nothing yet.
func New(o Options) (*Client, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	seal, err := newSeal(o)
	if err != nil {
		return nil, err
	}
	c := &Client{options: o, seal: seal, exchanges: make(chan struct{}, maxExchanges), metadata: metadata{lock: make(chan struct{}, 1)}, refusals: newRefusals()}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // sign-ins are rare
	c.http = &http.Client{
		Transport: bounded{transport}, Timeout: providerTimeout,
		// A redirect could carry the client's secret elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Name is the provider's, as pages show it.
func (c *Client) Name() string { return c.options.Name }

// bounded cuts answers off that are too long.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswerBytes)
	}
	return resp, err
}

const (
	// metadataFor is how long the provider's metadata is taken from memory.
	metadataFor = time.Hour
	// retryAfter is how long the provider is left alone after it has failed.
	retryAfter = 5 * time.Second
)

// metadata is what the provider says of itself.
type metadata struct {
	lock chan struct{} // full while somebody reads or changes what follows
	last *provider     // nil: not known yet
	next time.Time     // when the provider is to be asked again
	err  error         // of the last time
}

// provider is a provider as its metadata describe it (OpenID Connect Discovery 1.0 section 3).
type provider struct {
	*oidc.Provider
	EndSession    string `json:"end_session_endpoint"`
	NamesIssuer   bool   `json:"authorization_response_iss_parameter_supported"` // RFC 9207
	JWKS          string `json:"jwks_uri"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
}

// provider returns the provider's metadata. It asks for them at most once at a time. What is
// known stays in use while the provider cannot be reached.
func (c *Client) provider(ctx context.Context) (*provider, error) {
	m := &c.metadata
	select {
	case m.lock <- struct{}{}:
		defer func() { <-m.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now() // the wait does not go by the clock of a test
	if now.Before(m.next) {
		return m.last, m.err
	}
	// One browser that gives up does not fail the others that wait.
	found, err := c.discover(context.WithoutCancel(ctx))
	switch {
	case err == nil:
		m.last, m.err, m.next = found, nil, now.Add(metadataFor)
	case m.last != nil:
		c.options.Logger.Warn("the OpenID Connect provider does not answer; what is known of it goes on to count", slog.String("error", kindOf(err)))
		m.next = time.Now().Add(retryAfter)
	default:
		c.log("its metadata cannot be used", err)
		m.err, m.next = err, time.Now().Add(retryAfter)
	}
	return m.last, m.err
}

func (c *Client) discover(ctx context.Context) (*provider, error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, c.http), c.options.Issuer)
	if err != nil {
		return nil, err
	}
	p := &provider{Provider: found}
	if err := found.Claims(p); err != nil {
		return nil, err
	}
	for _, address := range []string{p.Authorization, p.Token, p.JWKS} {
		if !safe(address) {
			return nil, errMetadata
		}
	}
	if !safe(p.EndSession) {
		p.EndSession = ""
	}
	return p, nil
}

var errMetadata = errors.New("its metadata lack an address, or have one that is not https")

// safe reports whether an address of the provider may be used: https, or http on this machine.
func safe(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname()))
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

// config returns the client as the provider knows it.
func (c *Client) config(p *provider) *oauth2.Config {
	return &oauth2.Config{ClientID: c.options.ClientID, ClientSecret: c.options.ClientSecret.Reveal(), Endpoint: p.Endpoint(), RedirectURL: c.options.Redirect, Scopes: c.options.Scopes}
}

// SignOutAddress returns where a person ends the session at the provider too, or "" if the
// provider has no such page or does not answer soon (OpenID Connect RP-Initiated Logout 1.0).
func (c *Client) SignOutAddress(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	p, err := c.provider(ctx)
	if err != nil || p.EndSession == "" {
		return ""
	}
	u, err := url.Parse(p.EndSession)
	if err != nil {
		return ""
	}
	query := u.Query()
	query.Set("client_id", c.options.ClientID)
	u.RawQuery = query.Encode()
	return u.String()
}
