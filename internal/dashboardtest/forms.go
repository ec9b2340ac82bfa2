package dashboardtest

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/sleep"
)

// SetStatus sends the form of a page that changes the status and the note of an entity.
func (v *Visitor) SetStatus(path string, pairs ...string) Answered {
	v.T.Helper()
	return v.Post(path+"/status", v.Get(path).Form("/ui"+path+"/status", pairs...))
}

// Open opens an absolute address, as a link of another site does, and follows no redirect.
func (v *Visitor) Open(method, address string, form url.Values) Answered {
	v.T.Helper()
	return v.request(method+" "+address, method, address, form, "Sec-Fetch-Site", "cross-site")
}

// Location is where an answer leads, as an absolute address.
func (a Answered) Location(base string) string {
	a.T.Helper()
	to, err := url.Parse(base)
	if err == nil {
		to, err = to.Parse(a.Header.Get("Location"))
	}
	if err != nil || a.Header.Get("Location") == "" {
		a.T.Fatalf("%s: status %d leads to %q (%v): %s", a.What, a.Status, a.Header.Get("Location"), err, a.Body)
	}
	return to.String()
}

// UntilStatus opens a page again until it has a status.
func (v *Visitor) UntilStatus(path string, status int) {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(v.T.Context(), time.Minute)
	defer cancel()
	for v.Get(path).Status != status {
		if sleep.For(ctx, 50*time.Millisecond) != nil {
			v.T.Fatalf("%s does not get the status %d", path, status)
		}
	}
}

// LiveUntil reads the stream of a page until it has a text, or says that it ended without.
func (v *Visitor) LiveUntil(path string, has func(stream string) bool) (stream string, found bool) {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.Base+"/live?page="+path, nil)
	if err != nil {
		v.T.Fatal(err)
	}
	resp, err := v.HTTP.Do(req)
	if err != nil {
		v.T.Fatal(err)
	}
	defer resp.Body.Close()
	var read strings.Builder
	buffer := make([]byte, 4096)
	for !has(read.String()) {
		n, err := resp.Body.Read(buffer)
		read.Write(buffer[:n])
		if err != nil {
			return read.String(), has(read.String())
		}
	}
	return read.String(), true
}

// NoForms checks that who may not change anything sees no form that does.
func (a Answered) NoForms() Answered {
	a.T.Helper()
	for _, form := range regexp.MustCompile(`<form[^>]*method="post"[^>]*>`).FindAllString(a.Text(), -1) {
		a.T.Errorf("%s: the page has a form: %s", a.What, form)
	}
	return a
}

// Still checks that the script does not fetch the page again: an act answered.
func (a Answered) Still() Answered {
	a.T.Helper()
	if strings.Contains(a.Body, "data-live") {
		a.T.Errorf("%s: the page would be fetched again", a.What)
	}
	return a
}

// Until opens a page again until its main part has a text.
func (v *Visitor) Until(path, text string) Answered {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(v.T.Context(), time.Minute)
	defer cancel()
	for {
		page := v.Get(path)
		if strings.Contains(page.Text(), text) || sleep.For(ctx, 50*time.Millisecond) != nil {
			return page.Has(text)
		}
	}
}

// Hidden returns the value of a hidden field of the form that goes to an address.
func (a Answered) Hidden(action, name string) string {
	a.T.Helper()
	_, form, found := strings.Cut(a.Text(), `action="`+action+`"`)
	if !found {
		a.T.Fatalf("%s: no form goes to %s: %s", a.What, action, a.Text())
	}
	form, _, _ = strings.Cut(form, "</form>")
	return unescape(Answered{a.T, a.What, a.Status, a.Path, form, a.Header}.One(`name="` + name + `" value="([^"]*)"`))
}

// Form returns the form of the page that goes to an address, with the version that it carries and
// these fields.
func (a Answered) Form(action string, pairs ...string) url.Values {
	a.T.Helper()
	f := Values(pairs...)
	f.Set("etag", a.Hidden(action, "etag"))
	if _, rest, _ := strings.Cut(a.Text(), `action="`+action+`"`); strings.Contains(strings.SplitN(rest, "</form>", 2)[0], `name="shown"`) {
		f.Set("shown", a.Hidden(action, "shown"))
	}
	return f
}

// isOneOf checks the status.
func (a Answered) IsOneOf(status ...int) {
	a.T.Helper()
	if !slices.Contains(status, a.Status) {
		a.T.Errorf("%s: status %d", a.What, a.Status)
	}
}
func unescape(s string) string {
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+", "&amp;", "&").Replace(s)
}

// Values are those of a form, name by name.
func Values(pairs ...string) url.Values {
	f := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Add(pairs[i], pairs[i+1])
	}
	return f
}
