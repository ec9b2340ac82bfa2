package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
)

// Provider signs people in by OpenID Connect.
type Provider interface {
	// Name is what pages call it.
	Name() string
	// Begin returns the address where a person signs in, and what the browser keeps meanwhile,
	// under a name that state begins with.
	Begin(ctx context.Context, next string) (address, state, sealed string, err error)
	// Finish checks the answer and begins a session. next is known once the browser's cookie is.
	Finish(ctx context.Context, sealed string, answer url.Values) (token, next string, err error)
	// SignOutAddress is where a person ends the session at the provider; "": nowhere.
	SignOutAddress(ctx context.Context) string
}

const (
	beginPath = "/sign-in/begin"
	// CallbackPath stands below the base path. The provider sends browsers there.
	CallbackPath = "/sign-in/callback"
	// leftQuery is the query of the page that a person sees who has signed out.
	leftQuery = "left"
)

const (
	flowSeconds   = 600
	flowNameBytes = 16
	// maxFlows is how many sign-ins one browser may have under way, one in each tab.
	maxFlows = 8
)

// flowCookie is the cookie of a sign-in under way. With TLS it has the prefix that keeps other
// hosts of the same domain from setting it, which demands the path "/".
func (d *Dashboard) flowCookie(name, value string, seconds int) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, MaxAge: seconds, Path: d.Base + "/sign-in/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if d.secure {
		c.Path, c.Secure = "/", true
	}
	return c
}

// flowName names the cookie of the sign-in with that state.
func (d *Dashboard) flowName(state string) string {
	prefix := "forebay_sign_in_"
	if d.secure {
		prefix = "__Host-" + prefix
	}
	return prefix + state[:min(len(state), flowNameBytes)]
}

// beginSignIn answers GET /sign-in/begin: it sends the browser to the provider. A form could not,
// because the policy of pages lets forms lead to this server alone.
func (d *Dashboard) beginSignIn(r *api.SurfaceRequest) error {
	if d.Provider == nil {
		return errNoProvider
	}
	next := d.local(r.URL.Query().Get("next"))
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default: // a page of another origin does not begin a sign-in
		http.Redirect(r.Writer, r.Request, d.Base+"/sign-in?"+url.Values{"next": {next}}.Encode(), http.StatusSeeOther)
		return nil
	}
	address, state, sealed, err := d.Provider.Begin(r.Context(), next)
	if err != nil {
		return d.failSignIn(r, next, err)
	}
	d.dropFlows(r)
	http.SetCookie(r.Writer, d.flowCookie(d.flowName(state), sealed, flowSeconds))
	http.Redirect(r.Writer, r.Request, address, http.StatusSeeOther)
	return nil
}

// dropFlows makes room for one more sign-in. Browsers send their oldest cookies first.
func (d *Dashboard) dropFlows(r *api.SurfaceRequest) {
	var names []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, d.flowName("")) {
			names = append(names, c.Name)
		}
	}
	for len(names) >= maxFlows {
		http.SetCookie(r.Writer, d.flowCookie(names[0], "", -1))
		names = names[1:]
	}
}

// finishSignIn answers GET /sign-in/callback, where the provider sends the browser. Only a
// browser that began the sign-in has its cookie, and it has it once.
func (d *Dashboard) finishSignIn(r *api.SurfaceRequest) error {
	if d.Provider == nil {
		return errNoProvider
	}
	answer, sealed := r.URL.Query(), ""
	if c, err := r.Cookie(d.flowName(answer.Get("state"))); err == nil {
		sealed = c.Value
		http.SetCookie(r.Writer, d.flowCookie(c.Name, "", -1))
	}
	token, next, err := d.Provider.Finish(r.Context(), sealed, answer)
	if err != nil {
		return d.failSignIn(r, next, err)
	}
	d.setCookie(r.Writer, r.Request, token)
	http.Redirect(r.Writer, r.Request, d.local(next), http.StatusSeeOther)
	return nil
}

var errNoProvider = forebay.Errorf(forebay.CodeNotFound, "nobody signs in here by OpenID Connect: ui.oidc is not configured")

// failSignIn shows why a sign-in failed, on the page where another one begins.
func (d *Dashboard) failSignIn(r *api.SurfaceRequest, next string, err error) error {
	e, ok := errors.AsType[*forebay.Error](err)
	if !ok || e.Code == forebay.CodeInternal {
		return err
	}
	d.renderSignIn(d.bare(r), api.StatusOf(e.Code), signInForm{Next: next, Problem: e.Error(), ByKey: e.Code == forebay.CodeUnavailable})
	return nil
}
