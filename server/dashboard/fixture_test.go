package dashboard_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/sleep"
)

// visitor is somebody with a browser that has no script.
type visitor struct {
	t    testing.TB
	base string // address of the dashboard
	http *http.Client
}

// answered is a page as a visitor gets it, after redirects.
type answered struct {
	t      testing.TB
	what   string
	status int
	path   string // with the query
	body   string
	header http.Header
}

// visit signs in with a key.
func (s *running) visit(t testing.TB, key string) *visitor {
	t.Helper()
	raced.Skip(t, raced.Sequential)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t, s.url + "/ui", &http.Client{Jar: jar}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		page := v.post("/sign-in", url.Values{"key": {key}, "next": {"/ui/jobs"}})
		if page.status != http.StatusUnauthorized {
			page.is(http.StatusOK)
			return v
		}
		if sleep.For(ctx, 20*time.Millisecond) != nil {
			t.Fatal("the server does not know the key")
		}
	}
}

func (v *visitor) do(method, path string, form url.Values, header ...string) answered {
	v.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(context.Background(), method, v.base+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := v.http.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return answered{v.t, method + " " + path, resp.StatusCode, resp.Request.URL.RequestURI(), string(page), resp.Header}
}

// get opens a page. path stands below the dashboard.
func (v *visitor) get(path string, header ...string) answered {
	v.t.Helper()
	return v.do(http.MethodGet, path, nil, header...)
}

// post sends a form, as a page of the dashboard does.
func (v *visitor) post(path string, form url.Values) answered {
	v.t.Helper()
	return v.do(http.MethodPost, path, form)
}

func (a answered) is(status int) answered {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("%s: status %d, want %d: %s", a.what, a.status, status, a.text())
	}
	return a
}

// text is the main part of the page.
func (a answered) text() string {
	_, main, found := strings.Cut(a.body, "<main")
	if !found {
		return a.body
	}
	main, _, _ = strings.Cut(main, "</main>")
	return main
}

// has checks that the page's main part has all of these.
func (a answered) has(parts ...string) answered {
	a.t.Helper()
	for _, part := range parts {
		if !strings.Contains(a.text(), part) {
			a.t.Errorf("%s: the page lacks %q: %s", a.what, part, a.text())
		}
	}
	return a
}

// lacks checks that the page's main part has none of these.
func (a answered) lacks(parts ...string) answered {
	a.t.Helper()
	for _, part := range parts {
		if strings.Contains(a.text(), part) {
			a.t.Errorf("%s: the page has %q: %s", a.what, part, a.text())
		}
	}
	return a
}

// one returns what the first group of a pattern matches on the page.
func (a answered) one(pattern string) string {
	a.t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(a.body)
	if found == nil {
		a.t.Fatalf("%s: nothing matches %q: %s", a.what, pattern, a.text())
	}
	return found[1]
}
