package dashboardtest

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

// Visitor is somebody with a browser that has no script.
type Visitor struct {
	T    testing.TB
	Base string // address of the dashboard
	HTTP *http.Client
}

// Answered is a page as a visitor gets it, after redirects.
type Answered struct {
	T      testing.TB
	What   string
	Status int
	Path   string // with the query
	Body   string
	Header http.Header
}

// Visit signs in with a key.
func (s *Running) Visit(t testing.TB, key string) *Visitor {
	t.Helper()
	raced.Skip(t, raced.Sequential)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &Visitor{t, s.URL + "/ui", &http.Client{Jar: jar}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		page := v.Post("/sign-in", url.Values{"key": {key}, "next": {"/ui/jobs"}})
		if page.Status != http.StatusUnauthorized {
			page.Is(http.StatusOK)
			return v
		}
		if sleep.For(ctx, 20*time.Millisecond) != nil {
			t.Fatal("the server does not know the key")
		}
	}
}

// Do makes a request. path stands below the dashboard.
func (v *Visitor) Do(method, path string, form url.Values, header ...string) Answered {
	v.T.Helper()
	return v.request(method+" "+path, method, v.Base+path, form, append([]string{"Sec-Fetch-Site", "same-origin"}, header...)...)
}

// request makes a request of an absolute address.
func (v *Visitor) request(what, method, address string, form url.Values, header ...string) Answered {
	v.T.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(context.Background(), method, address, body)
	if err != nil {
		v.T.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := v.HTTP.Do(req)
	if err != nil {
		v.T.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		v.T.Fatal(err)
	}
	return Answered{v.T, what, resp.StatusCode, resp.Request.URL.RequestURI(), string(page), resp.Header}
}

// Get opens a page. path stands below the dashboard.
func (v *Visitor) Get(path string, header ...string) Answered {
	v.T.Helper()
	return v.Do(http.MethodGet, path, nil, header...)
}

// Post sends a form, as a page of the dashboard does.
func (v *Visitor) Post(path string, form url.Values) Answered {
	v.T.Helper()
	return v.Do(http.MethodPost, path, form)
}

// Is checks the status.
func (a Answered) Is(status int) Answered {
	a.T.Helper()
	if a.Status != status {
		a.T.Errorf("%s: status %d, want %d: %s", a.What, a.Status, status, a.Text())
	}
	return a
}

// Text is the main part of the page.
func (a Answered) Text() string {
	_, main, found := strings.Cut(a.Body, "<main")
	if !found {
		return a.Body
	}
	main, _, _ = strings.Cut(main, "</main>")
	return main
}

// Has checks that the page's main part has all of these.
func (a Answered) Has(parts ...string) Answered {
	a.T.Helper()
	for _, part := range parts {
		if !strings.Contains(a.Text(), part) {
			a.T.Errorf("%s: the page lacks %q: %s", a.What, part, a.Text())
		}
	}
	return a
}

// Lacks checks that the page's main part has none of these.
func (a Answered) Lacks(parts ...string) Answered {
	a.T.Helper()
	for _, part := range parts {
		if strings.Contains(a.Text(), part) {
			a.T.Errorf("%s: the page has %q: %s", a.What, part, a.Text())
		}
	}
	return a
}

// One returns what the first group of a pattern matches on the page.
func (a Answered) One(pattern string) string {
	a.T.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(a.Body)
	if found == nil {
		a.T.Fatalf("%s: nothing matches %q: %s", a.What, pattern, a.Text())
	}
	return found[1]
}
