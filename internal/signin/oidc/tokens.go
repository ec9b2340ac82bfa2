package oidc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/forebayhq/forebay"
)

// TokensOptions configures Tokens.
type TokensOptions struct {
	Issuer    string   // as the tokens and the provider's metadata name it
	Audiences []string // a token must be for one of them
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Tokens checks access tokens that a provider gave to programs: JSON Web Tokens (RFC 9068), also
// those of Entra ID. Its methods are safe for concurrent use.
type Tokens struct {
	options  TokensOptions
	http     *http.Client
	metadata *metadata
	failures *failures
}

// NewTokens returns a Tokens. It asks the provider for nothing yet.
func NewTokens(o TokensOptions) *Tokens {
	if o.Now == nil {
		o.Now = time.Now
	}
	client := newHTTPClient()
	client.Transport = &paced{next: client.Transport, share: share{burst: keyReadsBurst, every: keyReadsEvery}}
	t := &Tokens{options: o, http: client, failures: newFailures(o.Logger)}
	t.metadata = newMetadata(o.Issuer, client, t.failures)
	t.metadata.needs = func(p *provider) []string { return []string{p.JWKS} }
	return t
}

const (
	keyReadsBurst = 10
	keyReadsEvery = 10 * time.Second
)

// paced refuses requests that come too fast. Whoever sends tokens with wrong signatures would
// otherwise have this process ask the provider for its keys each time.
type paced struct {
	next  http.RoundTripper
	mu    sync.Mutex
	share share
}

var errPaced = errors.New("the provider was asked for its keys too often")

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	_, ok := p.share.take(time.Now())
	p.mu.Unlock()
	if !ok {
		return nil, errPaced
	}
	return p.next.RoundTrip(r)
}

var (
	errTokensDown = forebay.Errorf(forebay.CodeUnavailable, "the issuer of tokens cannot be reached, or does not answer as it should; try again later")
	errNoToken    = forebay.Errorf(forebay.CodeUnauthorized, "the token is no JSON Web Token of the configured issuer, for this server's audience, that is in force")
)

// Verify checks a token and returns what it says, whom it is about, and when it expires by this
// process's clock. Its errors are *forebay.Error: CodeUnauthorized if the token is not valid,
// CodeUnavailable if the provider does not answer.
func (t *Tokens) Verify(ctx context.Context, raw string) (said Claims, subject string, expires time.Time, err error) {
	p, err := t.metadata.provider(ctx)
	if err != nil {
		return nil, "", time.Time{}, errTokensDown
	}
	verifier := p.Verifier(&oidc.Config{SkipClientIDCheck: true, Now: t.options.Now})
	token, err := verifier.Verify(oidc.ClientContext(ctx, t.http), raw)
	switch {
	case err != nil && strings.Contains(err.Error(), errPaced.Error()):
		return nil, "", time.Time{}, errNoToken
	case err != nil && strings.Contains(err.Error(), "fetching keys"):
		t.failures.log("its keys cannot be read", err)
		return nil, "", time.Time{}, errTokensDown
	case err != nil, !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(t.options.Audiences, a) }):
		return nil, "", time.Time{}, errNoToken
	}
	if token.Claims(&said) != nil || !forebay.ValidText(token.Subject, maxSubjectBytes) {
		return nil, "", time.Time{}, errNoToken
	}
	return said, token.Subject, token.Expiry, nil
}

// NameOf returns the name of whom a token of an issuer is about. No two subjects have the same.
// It stands after [forebay.PersonPrefix] where API keys stand by their ids.
func (c Claims) NameOf(issuer, subject string) string {
	name := c.name("")
	if name == "" {
		name = "unnamed"
	}
	return nameOf(name, issuer, subject)
}
