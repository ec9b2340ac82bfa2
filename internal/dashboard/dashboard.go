package dashboard

import (
	"context"
	"embed"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
	"github.com/forebayhq/forebay/internal/dashboard/screens/documents"
	"github.com/forebayhq/forebay/internal/dashboard/screens/flows"
	"github.com/forebayhq/forebay/internal/dashboard/screens/jobs"
	"github.com/forebayhq/forebay/internal/dashboard/screens/messages"
	"github.com/forebayhq/forebay/internal/dashboard/screens/openai"
	"github.com/forebayhq/forebay/internal/dashboard/screens/operate"
	"github.com/forebayhq/forebay/internal/dashboard/screens/overview"
	"github.com/forebayhq/forebay/internal/signin"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// SignIn begins, checks and ends sessions.
type SignIn interface {
	WithKey(ctx context.Context, key string) (token string, err error)
	Caller(ctx context.Context, token string, use bool) (forebay.Caller, error)
	Forget(ctx context.Context, token string, caller forebay.Caller) error
}

// DefaultBase is the path of the dashboard.
const DefaultBase = "/ui"

// Options configures a Dashboard.
type Options struct {
	SignIn    SignIn
	Provider  Provider // nil: nobody signs in by OpenID Connect
	Base      string   // path, such as /ui; "": DefaultBase
	PublicURL string   // scheme and host that browsers use; "": the request's
	Version   string
	ReadOnly  bool
	Grafana   string // address of the shipped board; "": none
}

// Dashboard is the surface of the pages.
type Dashboard struct {
	Options
	site    *kit.Site
	assets  map[string]asset
	origins *http.CrossOriginProtection
	api     *api.API
	secure  bool // cookies are for TLS alone
}

// Check returns what is wrong with the paths of options, or nil.
func Check(o Options) *forebay.Error {
	if !strings.HasPrefix(o.Base, "/") || strings.HasSuffix(o.Base, "/") || strings.Contains(o.Base, "//") || strings.ContainsAny(o.Base, "{}?#%\\\" ") {
		return forebay.Invalid("ui.path", "must begin with / and not end with it, such as %s", DefaultBase)
	}
	if o.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(o.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return forebay.Invalid("ui.public_url", "must be a scheme and a host, such as https://forebay.example.com")
	}
	return nil
}

// New returns a dashboard. Its options have passed [Check].
func New(o Options) *Dashboard {
	d := &Dashboard{Options: o, origins: http.NewCrossOriginProtection()}
	if u, err := url.Parse(o.PublicURL); err == nil && u.Host != "" {
		if err := d.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			panic(err) // it was checked
		}
		d.secure = u.Scheme == "https"
	}
	d.site = &kit.Site{Base: o.Base, Version: o.Version, ReadOnly: o.ReadOnly, Secure: d.secure, Grafana: o.Grafana, Assets: map[string]string{}}
	var addresses map[string]string
	d.assets, addresses = loadAssets()
	for name, address := range addresses {
		d.site.Assets[name] = o.Base + "/assets/" + address
	}
	return d
}

// Use sets the API that answers the requests of pages. It is called before the first page.
func (d *Dashboard) Use(a *api.API) { d.api = a }

// Owns reports whether an address is the dashboard's.
func (d *Dashboard) Owns(path string) bool {
	return path == d.Base || strings.HasPrefix(path, d.Base+"/")
}

// Key is for callers with an API key in a header: pages take none.
func (d *Dashboard) Key(*http.Request) (string, error) { return "", nil }

// SignedIn returns whose session a request has.
func (d *Dashboard) SignedIn(r *http.Request) (forebay.Caller, bool, error) {
	c, err := r.Cookie(d.cookieName())
	if err != nil {
		return forebay.Caller{}, false, nil
	}
	use := r.Header.Get("X-Refresh") == "" && r.URL.Path != d.Base+"/live" // what a script does by itself is no use
	caller, err := d.SignIn.Caller(r.Context(), c.Value, use)
	if errors.Is(err, signin.ErrSignedOut) { // a server without keys needs no session either
		return forebay.Caller{}, false, nil
	}
	return caller, true, err
}

// screens are the routes of all pages.
func screens() []kit.Route {
	return slices.Concat(overview.Routes(), jobs.Routes(), messages.Routes(), documents.Routes(), flows.Routes(), openai.Routes(), operate.Routes())
}

// Routes are the addresses of the dashboard.
func (d *Dashboard) Routes() []api.SurfaceRoute {
	routes := []api.SurfaceRoute{
		{Method: http.MethodGet, Path: d.Base, Handle: d.open(func(r *api.SurfaceRequest) error {
			http.Redirect(r.Writer, r.Request, d.Base+"/", http.StatusSeeOther)
			return nil
		})},
		{Method: http.MethodGet, Path: d.Base + "/assets/{hash}/{name}", Handle: d.open(d.serveAsset)},
		{Method: http.MethodGet, Path: d.Base + "/sign-in", Handle: d.open(d.showSignIn)},
		{Method: http.MethodPost, Path: d.Base + "/sign-in", Handle: d.open(d.signIn)},
		{Method: http.MethodGet, Path: d.Base + beginPath, Handle: d.open(d.beginSignIn)},
		{Method: http.MethodGet, Path: d.Base + CallbackPath, Handle: d.open(d.finishSignIn)},
		d.route(kit.Post("/sign-out", d.signOut)),
		d.route(kit.Post("/theme", d.setTheme)),
		d.route(kit.Get("/live", d.live)),
	}
	for _, r := range screens() {
		routes = append(routes, d.route(r))
	}
	return routes
}

// policy is what pages may load: only from here, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func protect(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}

var errCrossOrigin = forebay.Errorf(forebay.CodeForbidden, "this form was sent by a page of another origin; behind a proxy, configure ui.public_url")

// check refuses what a page of another origin asks for.
func (d *Dashboard) check(r *http.Request) error {
	if err := d.origins.Check(r); err != nil {
		return errCrossOrigin
	}
	return nil
}

// open is for addresses that need no session.
func (d *Dashboard) open(handle func(*api.SurfaceRequest) error) func(*api.SurfaceRequest) error {
	return func(r *api.SurfaceRequest) error {
		protect(r.Writer.Header())
		if err := d.check(r.Request); err != nil {
			return err
		}
		return handle(r)
	}
}

var errReadOnly = forebay.Errorf(forebay.CodeForbidden, "this dashboard is read-only (ui.read_only); use the command line")

// route makes a route of the API from one of the pages'. Any scope that reads opens it. What a
// page reads and changes is checked by the API.
func (d *Dashboard) route(r kit.Route) api.SurfaceRoute {
	pattern := d.Base + r.Path
	if strings.HasSuffix(pattern, "/") {
		pattern += "{$}"
	}
	own := r.Path == "/sign-out" || r.Path == "/theme"
	return api.SurfaceRoute{Method: r.Method, Path: pattern, Scope: forebay.ScopeRead, Handle: func(s *api.SurfaceRequest) error {
		protect(s.Writer.Header())
		if r.Method != http.MethodGet {
			if err := d.check(s.Request); err != nil {
				return err
			}
			if d.ReadOnly && !own {
				return errReadOnly
			}
		}
		request, err := kit.NewRequest(s, d.site, d.api.As(s.Caller))
		if err != nil {
			return err
		}
		err = r.Handle(request)
		if e, ok := errors.AsType[*forebay.Error](err); ok && !request.Begun && e.Code != forebay.CodeUnauthorized {
			return d.fail(request, e)
		}
		return err
	}}
}

// fail shows an error on a page.
func (d *Dashboard) fail(r *kit.Request, e *forebay.Error) error {
	status := api.StatusOf(e.Code)
	return pages.Render(r, "problem", kit.Page{Title: http.StatusText(status), Data: e.Error(), Status: status, Still: true})
}

// Refuse answers with an error before a page could.
func (d *Dashboard) Refuse(w http.ResponseWriter, refusal api.Refusal) {
	protect(w.Header())
	r := &kit.Request{Request: refusal.Request, Writer: w, Site: d.site}
	if refusal.Status == http.StatusUnauthorized {
		w.Header().Del("Www-Authenticate")
		d.renderSignIn(r, http.StatusUnauthorized, signInForm{Next: pageOf(refusal.Request)})
		return
	}
	d.renderBare(r, "problem", kit.Page{Title: http.StatusText(refusal.Status), Data: refusal.Message, Status: refusal.Status})
}

// pageOf returns the address of the page that a request belongs to. A form is not sent again after
// a sign-in, so what it was sent to is none: it belongs to the page that has the form.
func pageOf(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.URL.RequestURI()
	}
	if u, err := url.Parse(r.Referer()); err == nil && r.Referer() != "" {
		return u.RequestURI()
	}
	return ""
}

func (d *Dashboard) renderBare(r *kit.Request, name string, page kit.Page) {
	page.Bare = true
	if err := pages.Render(r, name, page); err != nil {
		http.Error(r.Writer, page.Title, page.Status) // the client has gone, or a template is wrong
	}
}

// setTheme keeps the choice of light or dark.
func (d *Dashboard) setTheme(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	if theme := form.Get("theme"); theme == "light" || theme == "dark" {
		http.SetCookie(r.Writer, &http.Cookie{Name: kit.ThemeCookie, Value: theme, Path: d.Base + "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, Secure: d.secure || r.TLS != nil, SameSite: http.SameSiteLaxMode})
	}
	http.Redirect(r.Writer, r.Request, d.local(form.Get("back")), http.StatusSeeOther)
	return nil
}

// local returns an address if it is a page of the dashboard, else its first page.
func (d *Dashboard) local(address string) string {
	if u, err := url.Parse(address); err == nil && u.Scheme == "" && u.Host == "" && d.Owns(path.Clean(u.Path)) && !strings.Contains(address, "\\") {
		return address
	}
	return d.Base + "/"
}
