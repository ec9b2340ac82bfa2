package auth

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/limits"
)

// Options configures a Verifier.
type Options struct {
	Keys   *keys.Service
	Limits *limits.Meter // may be nil
	JWT    JWT           // without an issuer no JSON Web Token is taken
	// Closed says that a server without keys serves nobody, see the HTTP API's setting.
	Closed bool
	Logger *slog.Logger
}

// Verifier checks what clients of Service Bus show. Its methods are safe for concurrent use.
type Verifier struct {
	keys   *keys.Service
	limits *limits.Meter
	jwt    *issuer // nil: none
	closed bool
}

// New returns a verifier. It asks the issuer of tokens for nothing yet.
func New(o Options) *Verifier {
	return &Verifier{keys: o.Keys, limits: o.Limits, jwt: newIssuer(o.JWT, o.Logger), closed: o.Closed}
}

// Peer checks what comes from one address.
type Peer struct {
	verifier *Verifier
	address  netip.Addr
}

// From returns what checks tokens that come from an address. A server without API keys accepts
// any from its own machine: a caller that lets web pages in must check their origin itself.
func (v *Verifier) From(address netip.Addr) Peer { return Peer{v, address.Unmap()} }

var (
	errExpired  = errToken("has expired; compare the clocks")
	errAudience = errToken("is for another resource than it is used for")
	errKeyless  = forebay.Errorf(forebay.CodeUnauthorized, "a server without API keys answers only its own machine; make a key with: forebay keys create")
	errKey      = forebay.Errorf(forebay.CodeUnauthorized, "the name and the key are not those of an API key that is in force; the name is the key's id")
)

// SAS checks a shared access signature that is used for an audience, an address or a path. Its
// errors are *forebay.Error: CodeUnauthorized, CodeRateLimited after too many of these, or those
// of the database.
func (p Peer) SAS(ctx context.Context, token, audience string) (Grant, error) {
	g, err := p.sas(ctx, token, audience)
	return g, p.count(err)
}

func (p Peer) sas(ctx context.Context, token, audience string) (Grant, error) {
	s, err := parseSAS(token)
	if err != nil {
		return Grant{}, err
	}
	if s.name != "" && strings.EqualFold(s.name, PathOf(audience)) {
		s.path = s.name // the SDK for Go signs the mere name of what an entity forwards to
	}
	v := p.verifier
	switch {
	case !s.expires.After(v.keys.Now()):
		return Grant{}, errExpired
	case !forebay.CoversEntity(s.path, PathOf(audience)):
		return Grant{}, errAudience
	}
	caller, err := v.keys.Signed(ctx, s.key, s.signed, s.mac)
	if forebay.CodeOf(err) == forebay.CodeUnauthorized {
		caller, err = p.keyless(ctx, err)
	}
	if err != nil {
		return Grant{}, err
	}
	g := ofKey(caller, s.path)
	g.Expires = v.keys.ToLocal(s.expires)
	return g, nil
}

// Plain checks the id and the text of an API key, as SASL PLAIN has them (RFC 4616). Its errors
// are those of SAS.
func (p Peer) Plain(ctx context.Context, name, key string) (Grant, error) {
	g, err := p.plain(ctx, name, key)
	return g, p.count(err)
}

// maxKeyBytes is the longest key that is looked up.
const maxKeyBytes = 256

func (p Peer) plain(ctx context.Context, name, key string) (Grant, error) {
	err := error(errKey)
	var caller forebay.Caller
	if forebay.ValidText(name, maxKeyNameBytes) && forebay.ValidText(key, maxKeyBytes) {
		caller, _, err = p.verifier.keys.Authenticate(ctx, key)
		if err == nil && caller.KeyID != name || forebay.CodeOf(err) == forebay.CodeUnauthorized {
			err = errKey
		}
	}
	if forebay.CodeOf(err) == forebay.CodeUnauthorized {
		caller, err = p.keyless(ctx, err)
	}
	if err != nil {
		return Grant{}, err
	}
	return ofKey(caller, ""), nil
}

// JWT checks a JSON Web Token of the configured issuer. Its errors are those of SAS, and
// CodeUnavailable if the issuer cannot be asked for its keys.
func (p Peer) JWT(ctx context.Context, token string) (Grant, error) {
	g, err := p.verifier.jwt.grant(ctx, token)
	if p.verifier.jwt == nil {
		var caller forebay.Caller
		if caller, err = p.keyless(ctx, errNoJWT); err == nil {
			g = ofKey(caller, "")
		}
	}
	return g, p.count(err)
}

// Header checks the Authorization header of a request to manage entities. It holds a shared
// access signature, or a JSON Web Token with or without "Bearer " before it. In place of the
// latter an API key may stand.
func (p Peer) Header(ctx context.Context, authorization, audience string) (Grant, error) {
	scheme, token, found := strings.Cut(authorization, " ")
	switch {
	case strings.EqualFold(scheme, sasScheme):
		return p.SAS(ctx, authorization, audience)
	case found && !strings.EqualFold(scheme, "Bearer"):
		return Grant{}, p.count(forebay.Errorf(forebay.CodeUnauthorized, "the Authorization header must have a shared access signature or a Bearer token"))
	case !found:
		token = authorization
	}
	if token = strings.TrimSpace(token); !keys.IsKey(token) {
		return p.JWT(ctx, token)
	}
	caller, _, err := p.verifier.keys.Authenticate(ctx, token)
	if forebay.CodeOf(err) == forebay.CodeUnauthorized {
		caller, err = p.keyless(ctx, err)
	}
	if err != nil {
		return Grant{}, p.count(err)
	}
	return ofKey(caller, ""), nil
}

// keyless returns the caller on a server without any key, which takes whatever its own machine
// shows: clients do not start without a key. Otherwise the error stays.
func (p Peer) keyless(ctx context.Context, refused error) (forebay.Caller, error) {
	caller, open, err := p.verifier.keys.Authenticate(ctx, "")
	switch {
	case forebay.CodeOf(err) == forebay.CodeUnauthorized:
		return forebay.Caller{}, refused
	case err != nil:
		return forebay.Caller{}, err
	case !open:
		return forebay.Caller{}, refused
	case p.verifier.closed || !p.address.IsLoopback():
		return forebay.Caller{}, errKeyless
	}
	return caller, nil
}

// count counts a refusal. Beyond the rate of its address it becomes CodeRateLimited.
func (p Peer) count(err error) error {
	if err == nil || forebay.CodeOf(err) != forebay.CodeUnauthorized {
		return err
	}
	if tooMany := p.verifier.limits.Stranger(p.address.String()); tooMany != nil {
		return tooMany
	}
	return err
}

// Hold returns a context for what a client has opened under a grant. It ends within about a
// second of a revocation of the key, and when the key or the token expires. Without a key it ends
// when the first one is made. Its cause is an error of CodeUnauthorized. release must be called
// when it is closed.
func (v *Verifier) Hold(ctx context.Context, g Grant) (held context.Context, release func()) {
	caller := g.Caller
	if caller.ExpiresAt.IsZero() || !g.Expires.IsZero() && g.Expires.Before(caller.ExpiresAt) {
		caller.ExpiresAt = g.Expires
	}
	return v.keys.Hold(ctx, caller)
}
