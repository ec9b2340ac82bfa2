package atom

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
)

// Verified returns an authorizer that asks the verifier, and counts requests against the limits of
// their tenants.
func Verified(v *auth.Verifier, l *limits.Meter) Authorizer { return verified{v, l} }

type verified struct {
	verifier *auth.Verifier
	limits   *limits.Meter
}

var (
	errNoToken  = forebay.Errorf(forebay.CodeUnauthorized, "MissingToken: The authorization header was not found")
	errWebPage  = forebay.Errorf(forebay.CodeForbidden, "web pages of other origins get no answer")
	errNoSource = forebay.Errorf(forebay.CodeUnauthorized, "the address of the client is not known")
)

func (a verified) Authorize(r *http.Request, header, path string) (auth.Grant, error) {
	if header == "" {
		return auth.Grant{}, errNoToken
	}
	// A server without keys takes any token from its own machine, where browsers run too.
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return auth.Grant{}, errWebPage
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return auth.Grant{}, errNoSource
	}
	g, err := a.verifier.From(remote.Addr()).Header(r.Context(), header, path)
	if err != nil {
		return g, err
	}
	return g, a.limits.Request(r.Context(), g.Caller.Tenant, g.Caller.KeyID)
}

func (a verified) Hold(ctx context.Context, g auth.Grant) (context.Context, func()) {
	return a.verifier.Hold(ctx, g)
}

// acting returns a context that names who acts, for the audit log.
func acting(ctx context.Context, c forebay.Caller) context.Context {
	if c.KeyID == "" {
		return forebay.WithActor(ctx, forebay.LocalActor)
	}
	return forebay.WithActor(ctx, c.KeyID)
}

// manages reports whether the caller may manage what the request is about. The path of the request
// decides, as it is what tokens are for. So a key that is bound to entities reads no list of all.
func (r *request) manages() bool {
	return r.grant.May(forebay.ScopeManage, strings.Trim(r.URL.Path, "/"))
}

// sendsTo reports whether a grant allows to have messages forwarded to an entity.
func sendsTo(g auth.Grant, name string) bool {
	return g.May(forebay.ScopeSend, name) || g.May(forebay.ScopeManage, name)
}
