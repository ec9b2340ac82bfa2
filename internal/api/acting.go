package api

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/api/inprocess"
)

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
