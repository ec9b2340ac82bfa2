package dashboard_test

import (
	"bufio"
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// front is a proxy with an address of its own. What stands behind it is set later.
type front struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
	// tamper changes answers on their way; nil: none.
	tamper atomic.Pointer[func(*http.Response) error]
	down   atomic.Bool
}

func newFront(t testing.TB) *front { return frontOf(t, httptest.NewServer) }

func newTLSFront(t testing.TB) *front { return frontOf(t, httptest.NewTLSServer) }

func frontOf(t testing.TB, serve func(http.Handler) *httptest.Server) *front {
	t.Helper()
	f := &front{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.target.Load())
			r.Out.Host = r.In.Host
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			if tamper := f.tamper.Load(); tamper != nil {
				return (*tamper)(r)
			}
			return nil
		},
	}
	f.Server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.down.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) to(t testing.TB, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	f.target.Store(u)
}

// federated is a server with a provider, each behind a proxy.
type federated struct {
	*running
	public, provider *front
}

// oidcSecret is the secret of a client that provider.mjs has.
func oidcSecret(client string) forebay.Secret {
	return forebay.Secret("the secret of " + client + ", which is long")
}

// federate starts a provider, and a server that trusts it.
func federate(t testing.TB, database, kind string, change ...func(*server.OIDC)) *federated {
	t.Helper()
	f := &federated{public: newFront(t), provider: newFront(t)}
	f.provider.to(t, startProvider(t, f.provider.URL, f.public.URL+"/ui/sign-in/callback", kind))
	f.running = start(t, database, f.with(change...))
	f.public.to(t, f.url)
	return f
}

// with configures a server that trusts the provider.
func (f *federated) with(change ...func(*server.OIDC)) func(*server.Options) {
	return func(o *server.Options) {
		o.UI.PublicURL = f.public.URL
		o.UI.OIDC = server.OIDC{
			Name: "Example ID", Issuer: f.provider.URL, ClientID: "forebay", ClientSecret: oidcSecret("forebay"),
			Roles: map[string]server.OIDCRole{
				"Forebay.Operator":  {Scopes: []forebay.Scope{forebay.ScopeAdmin}},
				"Forebay.Viewer":    {Scopes: []forebay.Scope{forebay.ScopeView}, Tenant: "acme"},
				"Forebay.Elsewhere": {Scopes: []forebay.Scope{forebay.ScopeRead}, Tenant: "other"},
				"Forebay.Submit":    {Scopes: []forebay.Scope{forebay.ScopeSubmit}},
			},
		}
		for _, f := range change {
			f(&o.UI.OIDC)
		}
	}
}

// startProvider starts the provider and returns where it answers.
func startProvider(t testing.TB, issuer, callback, kind string) string {
	t.Helper()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "oidc"))
	script, err := os.ReadFile(filepath.Join("testdata", "oidc", "provider.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	// Node finds packages from where the script is.
	path := filepath.Join(modules, filepath.Base(t.TempDir())+"-"+filepath.Base(filepath.Dir(t.TempDir()))+".mjs")
	if err := os.WriteFile(path, script, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	ctx, cancel := context.WithCancel(context.Background())
	program := exec.CommandContext(ctx, toolchain.NodeFor(t, modules), path, issuer, callback, kind)
	program.Stderr = os.Stderr
	if os.Getenv("FOREBAY_TEST_VERBOSE") == "" {
		program.Stderr = nil
	}
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = program.Wait() })
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return lines.Text()
		}
	}
	t.Fatal("the provider has not started")
	return ""
}

// person is somebody with a browser without script, who has not signed in.
func (f *federated) person(t testing.TB) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t, f.public.URL + "/ui", &http.Client{Jar: jar, Transport: f.public.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// open opens an absolute address, as a link of another site does, and follows no redirect.
func (v *visitor) open(method, address string, form url.Values) answered {
	v.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(context.Background(), method, address, body)
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := v.http.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return answered{v.t, method + " " + address, resp.StatusCode, resp.Request.URL.RequestURI(), string(page), resp.Header}
}

// location is where an answer leads, as an absolute address.
func (a answered) location(base string) string {
	a.t.Helper()
	to, err := url.Parse(base)
	if err == nil {
		to, err = to.Parse(a.header.Get("Location"))
	}
	if err != nil || a.header.Get("Location") == "" {
		a.t.Fatalf("%s: status %d leads to %q (%v): %s", a.what, a.status, a.header.Get("Location"), err, a.body)
	}
	return to.String()
}

// begin presses the button of the sign-in page and returns the address at the provider.
func (v *visitor) begin(next string) string {
	v.t.Helper()
	page := v.get("/sign-in?"+url.Values{"next": {next}}.Encode()).is(http.StatusOK).has("Sign in with Example ID", "API key")
	href := html.UnescapeString(page.one(`<a class="button" href="/ui(/sign-in/begin[^"]*)"`))
	return v.get(href).is(http.StatusSeeOther).location(v.base)
}

var formAction = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)

// at goes the way at the provider: its pages for the login and for consent. It returns the
// address of the callback.
func (f *federated) at(v *visitor, address, login string) string {
	v.t.Helper()
	for range 12 {
		if strings.HasPrefix(address, f.public.URL) {
			return address
		}
		page := v.open(http.MethodGet, address, nil)
		if page.status == http.StatusOK {
			action := formAction.FindStringSubmatch(page.body)
			if action == nil {
				v.t.Fatalf("the provider's page has no form: %s", page.body)
			}
			form := url.Values{"prompt": {"consent"}}
			if strings.Contains(page.body, `name="login"`) {
				form = url.Values{"prompt": {"login"}, "login": {login}, "password": {"x"}}
			}
			page = v.open(http.MethodPost, html.UnescapeString(action[1]), form)
		}
		address = page.location(address)
	}
	v.t.Fatalf("the provider leads to no end; last to %s", address)
	return ""
}

// signIn goes the whole way, and returns the answer of the callback.
func (f *federated) signIn(v *visitor, login, next string) answered {
	v.t.Helper()
	return v.open(http.MethodGet, f.at(v, v.begin(next), login), nil)
}

// untilStatus opens a page again until it has a status.
func (v *visitor) untilStatus(path string, status int) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	for v.get(path).status != status {
		if sleep.For(ctx, 50*time.Millisecond) != nil {
			v.t.Fatalf("%s does not get the status %d", path, status)
		}
	}
}
