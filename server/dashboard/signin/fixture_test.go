package signin_test

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

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboardtest"
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
	*dashboardtest.Running
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
	f.Running = dashboardtest.Start(t, database, f.with(change...))
	f.public.to(t, f.URL)
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
func (f *federated) person(t testing.TB) *dashboardtest.Visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &dashboardtest.Visitor{T: t, Base: f.public.URL + "/ui", HTTP: &http.Client{Jar: jar, Transport: f.public.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// begin presses the button of the sign-in page and returns the address at the provider.
func begin(v *dashboardtest.Visitor, next string) string {
	v.T.Helper()
	page := v.Get("/sign-in?"+url.Values{"next": {next}}.Encode()).Is(http.StatusOK).Has("Sign in with Example ID", "API key")
	href := html.UnescapeString(page.One(`<a class="button" href="/ui(/sign-in/begin[^"]*)"`))
	return v.Get(href).Is(http.StatusSeeOther).Location(v.Base)
}

var formAction = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)

// at goes the way at the provider: its pages for the login and for consent. It returns the
// address of the callback.
func (f *federated) at(v *dashboardtest.Visitor, address, login string) string {
	v.T.Helper()
	for range 12 {
		if strings.HasPrefix(address, f.public.URL) {
			return address
		}
		page := v.Open(http.MethodGet, address, nil)
		if page.Status == http.StatusOK {
			action := formAction.FindStringSubmatch(page.Body)
			if action == nil {
				v.T.Fatalf("the provider's page has no form: %s", page.Body)
			}
			form := url.Values{"prompt": {"consent"}}
			if strings.Contains(page.Body, `name="login"`) {
				form = url.Values{"prompt": {"login"}, "login": {login}, "password": {"x"}}
			}
			page = v.Open(http.MethodPost, html.UnescapeString(action[1]), form)
		}
		address = page.Location(address)
	}
	v.T.Fatalf("the provider leads to no end; last to %s", address)
	return ""
}

// signIn goes the whole way, and returns the answer of the callback.
func (f *federated) signIn(v *dashboardtest.Visitor, login, next string) dashboardtest.Answered {
	v.T.Helper()
	return v.Open(http.MethodGet, f.at(v, begin(v, next), login), nil)
}
