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
	"github.com/forebayhq/forebay/internal/turns"
)

// open marks routes that need no key.
const open forebay.Scope = ""

// maxKeyBytes bounds what is looked up as a key.
const maxKeyBytes = 256

// admit lets a request through to a route when its caller has the scope.
func (a *API) admit(route string, scope forebay.Scope) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callFrom(ctx.Context())
		c.route = route
		if scope != open {
			if err := a.authenticate(ctx.Context(), c); err != nil {
				if forebay.CodeOf(err) == forebay.CodeUnauthorized {
					if tooMany := a.limits.Stranger(addressOf(c.r)); tooMany != nil {
						err = tooMany
					}
				}
				a.fail(c, err)
				return
			}
			tenant := turns.With(ctx.Context(), c.caller.Tenant)
			if err := a.limits.Request(tenant, c.caller.Tenant, c.caller.KeyID); err != nil {
				a.fail(c, err)
				return
			}
			if err := connectionOf(c.r.Context()).belongsTo(c.caller.Tenant); err != nil {
				c.w.Header().Set("Connection", "close")
				a.fail(c, err)
				return
			}
			if !c.caller.May(scope) {
				a.fail(c, forebay.Errorf(forebay.CodeForbidden, "this needs a key with the scope %q", scope))
				return
			}
			held, release := a.keys.Hold(tenant, c.caller)
			defer release()
			c.r = c.r.WithContext(held)
			ctx = huma.WithContext(ctx, held)
		} else if err := a.limits.Stranger(addressOf(c.r)); err != nil {
			a.fail(c, err)
			return
		}
		next(ctx)
	}
}

// keyEnded returns why a request ends because its key has been revoked or has expired meanwhile; nil: it has not.
func keyEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); forebay.CodeOf(cause) == forebay.CodeUnauthorized {
		return cause
	}
	return nil
}

// addressOf is the address that a request comes from.
func addressOf(r *http.Request) string {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return remote.Addr().Unmap().String()
}

// authenticate finds out who calls. A server without any key serves its own machine only.
func (a *API) authenticate(ctx context.Context, c *call) error {
	key, err := bearer(c.r.Header)
	if err == nil && key == "" && isDurable(c.r.URL.Path) {
		key, err = a.functionsKey(c)
	}
	c.sentKey = key != "" || err != nil
	if err != nil {
		return err
	}
	caller, isOpen, err := a.keys.Authenticate(ctx, key)
	if err != nil {
		return err
	}
	if isOpen {
		if err := checkLocal(c.r); err != nil {
			return err
		}
	}
	c.caller = caller
	return nil
}

// bearer returns the key of an Authorization header (RFC 6750 section 2.1), "" when there is none.
func bearer(h http.Header) (string, error) {
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

// checkLocal decides whether a server without keys may serve the request. It comes from this
// machine, not through a proxy, and no web page made the browser send it: neither from another
// origin, nor from a name that was rebound to the loopback address.
func checkLocal(r *http.Request) error {
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
