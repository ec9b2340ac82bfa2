package dashboard

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// cookieName is the session's. Browsers send a __Host- cookie only by TLS, to this host alone.
func (d *Dashboard) cookieName() string {
	if d.secure {
		return "__Host-forebay"
	}
	return "forebay_session"
}

// setCookie sets or, with "", removes the cookie of a session. Lax lets a link in a chat open a
// page; nothing is ever changed by a link.
func (d *Dashboard) setCookie(w http.ResponseWriter, r *http.Request, token string) {
	c := &http.Cookie{Name: d.cookieName(), Value: token, Path: "/", HttpOnly: true, Secure: d.secure || r.TLS != nil, SameSite: http.SameSiteLaxMode}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// signInForm is what the page of signing in shows.
type signInForm struct {
	Next     string // where to go afterwards
	Problem  string
	Provider string // its name; "": there is none
	ByKey    bool   // the form for keys is open, although there is a provider
	Leave    string // where to end the session at the provider; "": nobody has just signed out
}

func (d *Dashboard) renderSignIn(r *kit.Request, status int, form signInForm) {
	form.Next = d.local(form.Next)
	if d.Provider != nil {
		form.Provider = d.Provider.Name()
	}
	d.renderBare(r, "sign-in", kit.Page{Title: "Sign in", Status: status, Data: form})
}

// bare is a request of somebody who has not signed in.
func (d *Dashboard) bare(r *api.SurfaceRequest) *kit.Request {
	return &kit.Request{Request: r.Request, Writer: r.Writer, Site: d.site}
}

// showSignIn answers GET /sign-in.
func (d *Dashboard) showSignIn(r *api.SurfaceRequest) error {
	form := signInForm{Next: r.URL.Query().Get("next")}
	if d.Provider != nil && r.URL.Query().Has(leftQuery) {
		form.Leave = d.Provider.SignOutAddress(r.Context())
	}
	d.renderSignIn(d.bare(r), http.StatusOK, form)
	return nil
}

const maxSignInBytes = 8 << 10

// signIn answers POST /sign-in: it exchanges a key for a session.
func (d *Dashboard) signIn(r *api.SurfaceRequest) error {
	body, err := r.Upload(maxSignInBytes)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return body.Problem(err)
	}
	form, err := url.ParseQuery(string(data))
	if err != nil {
		return forebay.Invalid("form", "is not properly encoded")
	}
	next := d.local(form.Get("next"))
	token, err := d.SignIn.WithKey(r.Context(), strings.TrimSpace(form.Get("key")))
	if err != nil {
		problem := "This key is unknown, expired or revoked."
		if code := forebay.CodeOf(err); code != forebay.CodeUnauthorized {
			if code == "" || code == forebay.CodeInternal {
				return err
			}
			problem = err.Error()
		}
		d.renderSignIn(d.bare(r), http.StatusUnauthorized, signInForm{Next: next, Problem: problem, ByKey: true})
		return nil
	}
	d.setCookie(r.Writer, r.Request, token)
	http.Redirect(r.Writer, r.Request, next, http.StatusSeeOther)
	return nil
}

// signOut answers POST /sign-out.
func (d *Dashboard) signOut(r *kit.Request) error {
	if c, err := r.Cookie(d.cookieName()); err == nil {
		if err := d.SignIn.Forget(r.Context(), c.Value, r.Caller); err != nil {
			return err
		}
	}
	d.setCookie(r.Writer, r.Request, "")
	address := d.Base + "/sign-in"
	if r.Caller.IsPerson() {
		address += "?" + leftQuery
	}
	http.Redirect(r.Writer, r.Request, address, http.StatusSeeOther)
	return nil
}
