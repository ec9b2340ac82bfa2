package kit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/api"
)

// Route is a page, or an act that a form of a page asks for.
type Route struct {
	Method string // GET never changes anything; POST
	Path   string // below the base path, as [http.ServeMux] writes it
	Handle func(*Request) error
}

// Get returns the route of a page.
func Get(path string, handle func(*Request) error) Route {
	return Route{http.MethodGet, path, handle}
}

// Post returns the route of an act.
func Post(path string, handle func(*Request) error) Route {
	return Route{http.MethodPost, path, handle}
}

// Request is a request of a browser whose caller is known.
type Request struct {
	*http.Request
	Writer http.ResponseWriter
	Client *client.Client // calls the API as the caller, in the tenant of the address
	Caller forebay.Caller
	Site   *Site
	// Tenant is the one that the address names with ?tenant=; "": none, so the caller's own or
	// all.
	Tenant string
	// Open is true on a server without API keys.
	Open bool
	// Begun is true once the answer has begun: an error can then only cut it off.
	Begun bool

	surface *api.SurfaceRequest
	calls   *recorder
}

// Site is what all pages of a server have in common.
type Site struct {
	Base     string // path that all pages stand below, without a slash at the end
	Version  string
	ReadOnly bool // nobody changes anything here
	Secure   bool // browsers come by TLS
	Grafana  string
	Assets   map[string]string // addresses by name
}

// maxFormBytes bounds what a form sends. An edited input is the largest of it.
const maxFormBytes = 4 << 20

// NewRequest prepares a request of a surface. do answers the requests that its page makes.
func NewRequest(s *api.SurfaceRequest, site *Site, do http.RoundTripper) (*Request, error) {
	r := &Request{Request: s.Request, Writer: s.Writer, Caller: s.Caller, Site: site, surface: s, Open: s.Caller.KeyID == ""}
	if r.Tenant = r.URL.Query().Get("tenant"); r.Tenant != "" && !forebay.ValidName(r.Tenant) {
		return nil, forebay.Invalid("tenant", "is not a valid name")
	}
	r.calls = &recorder{do: do, tenant: r.Tenant}
	var err error
	r.Client, err = client.New(client.Options{BaseURL: inProcessURL, HTTPClient: &http.Client{Transport: r.calls}, RetryTime: -1})
	return r, err
}

// Fetch reads something of the API.
func Fetch[T any](r *Request, path string, query url.Values) (T, error) {
	var out T
	err := r.Client.Call(r.Context(), http.MethodGet, path, query, nil, &out)
	return out, err
}

// Values makes a query of pairs of a name and a value. Empty values are left out.
func Values(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Add(pairs[i], pairs[i+1])
		}
	}
	return query
}

// Form reads the form that a POST has sent.
func (r *Request) Form() (url.Values, error) {
	body, err := r.surface.Upload(maxFormBytes)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, body.Problem(err)
	}
	form, err := url.ParseQuery(string(data))
	if err != nil {
		return nil, forebay.Invalid("form", "is not properly encoded")
	}
	return form, nil
}

// Typed reports whether a form repeats the name of what it is about, as acts that cannot be taken
// back ask for.
func Typed(form url.Values, name string) bool { return strings.TrimSpace(form.Get("confirm")) == name }

// Wait counts the request as one that waits, until leave.
func (r *Request) Wait() (draining <-chan struct{}, leave func(), err error) {
	_, leave, err = r.surface.Wait()
	return r.surface.Draining(), leave, err
}

// Flush sends the bytes written so far.
func (r *Request) Flush() error { return r.surface.Flush() }

// Done ends an act: the browser goes on to a page, which shows the notice once.
func (r *Request) Done(path, notice string) error {
	http.SetCookie(r.Writer, &http.Cookie{Name: noticeCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(clip(notice, maxNotice))),
		Path: r.Site.Base + "/", MaxAge: 30, HttpOnly: true, Secure: r.Site.Secure || r.TLS != nil, SameSite: http.SameSiteLaxMode})
	r.Redirect(path)
	return nil
}

// Redirect sends the browser to a page below the base path.
func (r *Request) Redirect(path string) {
	http.Redirect(r.Writer, r.Request, r.Link(path), http.StatusSeeOther)
}

const (
	noticeCookie = "forebay_notice"
	maxNotice    = 600 // bytes
)

// takeNotice returns the notice of the act before, and forgets it.
func (r *Request) takeNotice() string {
	c, err := r.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(r.Writer, &http.Cookie{Name: noticeCookie, Path: r.Site.Base + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) > maxNotice {
		return ""
	}
	return Clean(string(text))
}

// Link returns the address of a page. It stays in the tenant of this one.
func (r *Request) Link(path string) string {
	if r.Tenant != "" && !strings.Contains(path, "tenant=") {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		path += separator + "tenant=" + url.QueryEscape(r.Tenant)
	}
	return r.Site.Base + path
}

// To returns the address of a page with a query: pairs of a name and a value. Empty values are
// left out.
func (r *Request) To(path string, pairs ...string) string {
	if query := Values(pairs...).Encode(); query != "" {
		path += "?" + query
	}
	return r.Link(path)
}

// In returns the address of a page about something of a tenant.
func (r *Request) In(tenant, path string) string {
	if tenant == "" || tenant == r.TenantName() {
		return r.Link(path)
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return r.Site.Base + path + separator + "tenant=" + url.QueryEscape(tenant)
}

// With returns the address of this page with other values in its query: pairs of a name and a
// value. An empty value is left out. Cursors do not survive.
func (r *Request) With(pairs ...string) string {
	query := r.URL.Query()
	query.Del("cursor")
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Del(pairs[i])
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	address := r.URL.EscapedPath()
	if encoded := query.Encode(); encoded != "" {
		address += "?" + encoded
	}
	return address
}

// Query returns a value of the address's query, or "".
func (r *Request) Query(name string) string { return r.URL.Query().Get(name) }

// May reports whether the caller may do what needs that scope, here and now.
func (r *Request) May(scope string) bool {
	s := forebay.Scope(scope)
	reads := s == forebay.ScopeRead || s == forebay.ScopeView || s == forebay.ScopePayload
	if !reads && (r.Site.ReadOnly || r.Tenant != "" && !r.Caller.May(forebay.ScopeAdmin)) {
		return false
	}
	if s == forebay.ScopeManage && r.Caller.May(forebay.ScopeOperate) { // it does what manage does
		return true
	}
	return r.Caller.May(s)
}

// Withheld reports whether payloads are kept from the caller: those of another tenant, without
// the scope for it.
func (r *Request) Withheld() bool { return r.Tenant != "" && !r.May(string(forebay.ScopePayload)) }

// Operator reports whether the caller sees every tenant.
func (r *Request) Operator() bool { return r.Caller.May(forebay.ScopeView) }

// Operates reports whether the caller sees what was set aside, and webhooks.
func (r *Request) Operates() bool { return r.Caller.May(forebay.ScopeOperate) || r.Operator() }

// AllTenants reports whether a list shows every tenant. Whoever may see all sees all, unless
// the address names one tenant or says ?all=no.
func (r *Request) AllTenants() bool {
	return r.Operator() && r.Tenant == "" && r.Query("all") != "no"
}

// TenantName is the tenant whose things the page shows.
func (r *Request) TenantName() string {
	if r.Tenant != "" {
		return r.Tenant
	}
	return r.Caller.Tenant
}

// inProcessURL is the address of the API for the pages. No name server is asked for it.
const inProcessURL = "http://forebay.internal"

// Call is a request that a page made.
type Call struct {
	Method, Path string
	Body         string // "": none
	Condition    string // a header, such as If-Match; "": none
}

// Curl is a command line that makes the same request. All that came from outside is quoted.
func (c Call) Curl(tenant string) string {
	line := `curl -H "Authorization: Bearer $FOREBAY_API_KEY"`
	if tenant != "" {
		line += " -H " + Shell(forebay.TenantHeader+": "+tenant)
	}
	if c.Method != http.MethodGet {
		line += " -X " + c.Method
	}
	if c.Condition != "" {
		line += " -H " + Shell(c.Condition)
	}
	if c.Body != "" {
		line += " --json " + Shell(c.Body)
	}
	return line + ` "$FOREBAY_URL"` + Shell(c.Path)
}

// maxCalls is how many of a page's requests are shown.
const maxCalls = 12

// maxShownBody is how large a body may be that is shown.
const maxShownBody = 2 << 10

// recorder notes the requests of a page.
type recorder struct {
	do     http.RoundTripper
	tenant string

	mu    sync.Mutex
	calls []Call
}

func (c *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.tenant != "" {
		req.Header.Set("Forebay-Tenant", c.tenant)
	}
	call := Call{Method: req.Method, Path: req.URL.RequestURI()}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if value := req.Header.Get(name); value != "" {
			call.Condition = name + ": " + value
		}
	}
	if req.Body != nil && req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			if data, _ := io.ReadAll(io.LimitReader(body, maxShownBody+1)); len(data) <= maxShownBody {
				call.Body = string(bytes.ToValidUTF8(data, nil))
			} else {
				call.Body = "@body.json" // it is too large for a command line
			}
		}
	}
	c.mu.Lock()
	if len(c.calls) < maxCalls {
		c.calls = append(c.calls, call)
	}
	c.mu.Unlock()
	return c.do.RoundTrip(req)
}

// Explain returns what a caller may read of an error.
func Explain(err error) string {
	if e, ok := errors.AsType[*forebay.Error](err); ok {
		return e.Error()
	}
	return "an internal error; the server's log has it"
}

// SetAside returns the operations on a subqueue for jobs that cannot succeed, as addresses name
// it: dead-letters or quarantine.
func (r *Request) SetAside(segment, queue string) client.SetAside {
	if segment == "quarantine" {
		return r.Client.Quarantine(queue)
	}
	return r.Client.DeadLetters(queue)
}
