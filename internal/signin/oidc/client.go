package oidc

import (
	"context"
	"crypto/cipher"
	"log/slog"
	"net/http"
	"net/url"
	"time"

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
	metadata  *metadata
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
	c := &Client{options: o, seal: seal, exchanges: make(chan struct{}, maxExchanges), http: newHTTPClient(), refusals: newRefusals()}
	c.metadata = newMetadata(o.Issuer, c.http, newFailures(o.Logger))
	c.metadata.needs = func(p *provider) []string { return []string{p.Authorization, p.Token, p.JWKS} }
	return c, nil
}

// newHTTPClient returns the client for requests to a provider.
func newHTTPClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // sign-ins are rare
	return &http.Client{
		Transport: bounded{transport}, Timeout: providerTimeout,
		// A redirect could carry the client's secret elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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

// config returns the client as the provider knows it.
func (c *Client) config(p *provider) *oauth2.Config {
	return &oauth2.Config{ClientID: c.options.ClientID, ClientSecret: c.options.ClientSecret.Reveal(), Endpoint: p.Endpoint(), RedirectURL: c.options.Redirect, Scopes: c.options.Scopes}
}

// SignOutAddress returns where a person ends the session at the provider too (OpenID Connect
// RP-Initiated Logout 1.0). It returns "" if the provider has no such page or does not answer
// soon.
func (c *Client) SignOutAddress(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	p, err := c.metadata.provider(ctx)
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
