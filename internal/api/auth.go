package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/api/inprocess"
)

// open is the scope of routes that need no key.
const open forebay.Scope = ""

// maxKeyBytes is the longest key that is looked up.
const maxKeyBytes = 256

// admit returns the middleware of a route. It lets a request through if the caller has one of the
// scopes. Without any, the route is open.
func (a *API) admit(route string, scopes anyOf) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callFrom(ctx.Context())
		held, release, err := c.enter(ctx.Context(), route, entityOf(ctx), scopes)
		if err != nil {
			a.fail(c, err)
			return
		}
		defer release()
		if len(scopes) > 0 {
			c.r = c.r.WithContext(held)
			ctx = huma.WithContext(ctx, held)
		}
		next(ctx)
	}
}

// keyEnded returns the error of a request whose key was revoked or has expired meanwhile, or nil.
func keyEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); forebay.CodeOf(cause) == forebay.CodeUnauthorized {
		return cause
	}
	return nil
}

// addressOf returns the address that a request comes from.
func addressOf(r *http.Request) string {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return remote.Addr().Unmap().String()
}

// authenticate finds out who calls. Without any key, a server serves only its own machine.
func (c *call) authenticate(ctx context.Context) error {
	a := c.api
	if s, ok := c.surface.(SignedInSurface); ok {
		caller, found, err := s.SignedIn(c.r)
		if found || err != nil {
			c.caller, c.home = caller, caller.Tenant
			return err
		}
	}
	key, err := c.key()
	c.sentKey = key != "" || err != nil
	if err != nil {
		return err
	}
	caller, isOpen, err := a.keys.Authenticate(ctx, key)
	if err != nil && key != "" && c.surface != nil { // its SDKs do not start without a key
		if anybody, free, openErr := a.keys.Authenticate(ctx, ""); openErr == nil && free {
			caller, isOpen, err = anybody, true, nil
		}
	}
	if err != nil {
		return err
	}
	if isOpen {
		if a.closed {
			return errKeyNeeded
		}
		if err := CheckLocal(c.r); err != nil {
			return err
		}
	}
	c.caller, c.home = caller, caller.Tenant
	return nil
}

// SignedInSurface is a surface that knows some callers by other means than an API key.
type SignedInSurface interface {
	Surface
	// SignedIn returns who makes a request. found is false if the request does not say; then
	// the key decides, or that the server needs none. An error is a *forebay.Error.
	SignedIn(r *http.Request) (caller forebay.Caller, found bool, err error)
}

type actingAsKey struct{}

// actingAs returns the caller of a request that this process makes itself.
func actingAs(ctx context.Context) (forebay.Caller, bool) {
	caller, ok := ctx.Value(actingAsKey{}).(forebay.Caller)
	return caller, ok
}

// As returns a transport for a client whose requests a answers itself, as that caller, without
// a connection. Scopes hold as for any request. Rates of requests do not: they count what came
// in.
func (a *API) As(caller forebay.Caller) http.RoundTripper {
	return inprocess.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What the request of the page has belongs to that one alone.
		ctx := connections.Without(r.Context())
		a.ServeHTTP(w, r.WithContext(context.WithValue(ctx, actingAsKey{}, caller)))
	})}
}

// key returns the API key that the request has, or "".
func (c *call) key() (string, error) {
	if c.surface != nil {
		return c.surface.Key(c.r)
	}
	key, err := Bearer(c.r.Header)
	if err == nil && key == "" && isDurable(c.r.URL.Path) {
		return c.api.functionsKey(c)
	}
	return key, err
}

// Bearer returns the key of an Authorization header (RFC 6750 section 2.1), or "".
func Bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	key = strings.TrimSpace(key)
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || !forebay.ValidText(key, maxKeyBytes) {
		return "", forebay.Errorf(forebay.CodeUnauthorized, "the Authorization header must be: Bearer, a space, and an API key")
	}
	return key, nil
}

// CheckLocal decides whether a server without keys may serve the request. The request must come
// from this machine and not through a proxy. It must not come from a web page of another origin,
// nor through a name that was rebound to the loopback address.
func CheckLocal(r *http.Request) error {
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"} {
		if r.Header.Get(forwarded) != "" {
			return errKeyNeeded
		}
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return errKeyNeeded
	}
	if !loopbackHost(r.Host) {
		return forebay.Errorf(forebay.CodeForbidden, "a server without API keys answers only to localhost, not to this host name")
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errCrossOrigin
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return errCrossOrigin
		}
	}
	return nil
}

var (
	errKeyNeeded = forebay.Errorf(forebay.CodeUnauthorized,
		"a server without API keys answers only its own machine; make a key with: forebay keys create")
	errCrossOrigin = forebay.Errorf(forebay.CodeForbidden, "a server without API keys does not answer web pages of other origins")
)

// loopbackHost reports whether a Host header names this machine: localhost or a loopback address.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
