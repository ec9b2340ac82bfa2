package dashboard_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/server"
)

// root asks for / and does not follow where the answer sends to.
func root(t *testing.T, url, accept string) (status int, location, dashboard string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var welcome struct{ Name, Dashboard string }
	if err := json.NewDecoder(resp.Body).Decode(&welcome); err != nil || welcome.Name != "forebay" {
		t.Errorf("%s answers %+v, %v", req.URL, welcome, err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), welcome.Dashboard
}

const browserAccepts = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestABrowserAtTheRootIsSentToTheDashboard(t *testing.T) {
	t.Parallel()
	for base, o := range map[string]server.UI{"/ui": {}, "/ops/board": {Path: "/ops/board"}, "": {Off: true}} {
		s := dashboardtest.Start(t, "sqlite:"+t.TempDir()+"/f.db", func(options *server.Options) { options.UI = o })
		if status, location, dashboard := root(t, s.URL, "*/*"); status != http.StatusOK || location != "" || dashboard != base {
			t.Errorf("%q: a client gets %d, %q, %q", base, status, location, dashboard)
		}
		status, location, dashboard := root(t, s.URL, browserAccepts)
		if base == "" {
			if status != http.StatusOK || location != "" || dashboard != "" {
				t.Errorf("off: a browser gets %d, %q, %q", status, location, dashboard)
			}
			continue
		}
		if status != http.StatusSeeOther || location != base+"/" {
			t.Errorf("%s: a browser gets %d, %q", base, status, location)
		}
	}
}

// lines is a log that a running server writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestTheStartNamesTheDashboard(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]server.UI{
		"":                                  {},
		"https://forebay.example.com/board": {Path: "/board", PublicURL: "https://forebay.example.com"},
		"off":                               {Off: true},
	} {
		log := &lines{}
		t.Run(o.Path, func(t *testing.T) { // it has stopped at the end, so all is written
			s := dashboardtest.Start(t, "sqlite:"+t.TempDir()+"/f.db", func(options *server.Options) {
				options.UI, options.Logger = o, slog.New(slog.NewTextHandler(log, nil))
			})
			if want == "" {
				want = s.URL + "/ui"
			}
			root(t, s.URL, "*/*")
		})
		_, line, _ := strings.Cut(log.String(), `msg="forebay is running"`)
		line, _, _ = strings.Cut(line, "\n")
		if want == "off" && strings.Contains(line, "dashboard=") || want != "off" && !strings.HasSuffix(line, " dashboard="+want) {
			t.Errorf("want %s in %q", want, line)
		}
	}
}

// Behind a proxy a request from this machine says nothing, so a server without keys answers
// nobody.
func TestAServerBehindAProxyIsNotOpen(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]int{
		"": http.StatusOK, "http://localhost:8080": http.StatusOK, "http://127.0.0.1:8080": http.StatusOK, "https://forebay.example.com": http.StatusUnauthorized,
	} {
		s := dashboardtest.Start(t, "sqlite:"+t.TempDir()+"/f.db", func(o *server.Options) { o.UI.PublicURL = public })
		for _, path := range []string{"/v1/jobs", "/ui/", "/ui/keys", "/v1/models"} {
			resp, err := http.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%q: %s is answered with %d, want %d", public, path, resp.StatusCode, want)
			}
		}
	}
}

// A cookie of an earlier server does not lock anybody out of one that needs no session.
func TestAStaleCookieLocksNobodyOut(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+t.TempDir()+"/f.db")
	for value, want := range map[string]int{strings.Repeat("x", 43): http.StatusOK, "short": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ui/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "forebay_session", Value: value})
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the cookie %q: %d", value, resp.StatusCode)
		}
	}
}
