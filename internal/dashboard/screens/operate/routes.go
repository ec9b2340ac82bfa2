package operate

import (
	"embed"
	"net/http"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages of this package, and their acts.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get("/deployments", listDeployments),
		kit.Get("/deployments/{name}", showDeployment),
		act("/deployments/{name}/pause", pauseDeployment),
		act("/deployments/{name}/resume", resumeDeployment),
		act("/deployments/{name}/forget", forgetDeployment),
		act("/deployments/{name}/sim", setFaults),
		kit.Get("/usage", showUsage),
		kit.Get("/retries", showRetries),
		kit.Get("/tenants", listTenants),
		kit.Get("/tenants/{name}", showTenant),
		kit.Get("/tenants/{name}/limits", showLimits),
		act("/tenants/{name}/pause", pauseTenant),
		act("/tenants/{name}/resume", resumeTenant),
		act("/tenants/{name}/budget", setTenantBudget),
		act("/tenants/{name}/concurrency", setConcurrency),
		act("/tenants/{name}/limits", setLimits),
		kit.Get("/keys", listKeys),
		kit.Get("/keys/{id}", showKey),
		act("/keys", createKey),
		act("/keys/{id}/budget", setKeyBudget),
		act("/keys/{id}/revoke", revokeKey),
		kit.Get(signInsPath, listSignIns),
		act(signInsPath, endSignIns),
		act(signInsPath+"/{id}/end", endSignIn),
		kit.Get("/audit", listAudit),
		kit.Get("/audit/verify", verifyAudit),
	}
}

// act is the route of an act of an administrator. The API would refuse anybody else too, but a
// handler reads first what is there.
func act(path string, handle func(*kit.Request) error) kit.Route {
	return kit.Post(path, func(r *kit.Request) error {
		if !r.May("admin") {
			return forebay.Errorf(forebay.CodeForbidden, "this needs a key with the scope %q", forebay.ScopeAdmin)
		}
		return handle(r)
	})
}

// pageRows is how many rows of a list a page shows.
const pageRows = 50

// part returns the rows of a whole list that the page shows, and the cursor of the next ones, ""
// after the last.
func part[T any](r *kit.Request, list []T) (rows []T, next string, err error) {
	from := 0
	if cursor := r.Query("cursor"); cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil || from < 0 {
			return nil, "", forebay.Errorf(forebay.CodeInvalidCursor, "this is not a cursor of this list")
		}
	}
	from = min(from, len(list))
	to := min(from+pageRows, len(list))
	if to < len(list) {
		next = strconv.Itoa(to)
	}
	return list[from:to], next, nil
}

// span is the time that a report covers, as the address tells it.
type span struct {
	Since, Until time.Time // zero: the API's own
	Last         string    // the choice among spans; "": Since and Until were given
	Problem      string
}

// choice is a span to choose.
type choice struct{ Value, Name string }

// spans are what can be chosen by one click.
var spans = []choice{{"24h", "24 hours"}, {"7d", "7 days"}, {"30d", "30 days"}, {"90d", "90 days"}}

var spanLengths = map[string]time.Duration{"24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour, "90d": 90 * 24 * time.Hour}

// spanOf reads the time that a report covers: last, or since and until.
func spanOf(r *kit.Request) (s span, err error) {
	if s.Since, err = timeOf(r, "since"); err != nil {
		return s, err
	}
	if s.Until, err = timeOf(r, "until"); err != nil {
		return s, err
	}
	if !s.Since.IsZero() || !s.Until.IsZero() {
		if s.Since.IsZero() {
			s.Since = s.Until.Add(-24 * time.Hour)
		}
		return s, nil
	}
	s.Last = r.Query("last")
	if s.Last == "" {
		s.Last = spans[0].Value
	}
	length, ok := spanLengths[s.Last]
	if !ok {
		return s, forebay.Invalid("last", "must be 24h, 7d, 30d or 90d")
	}
	// Reports cover whole hours, and this hour is one of them.
	s.Since = time.Now().UTC().Truncate(time.Hour).Add(time.Hour - length)
	return s, nil
}

// fieldLayout is how browsers send a field of a time. All times of the pages are in UTC.
const fieldLayout = "2006-01-02T15:04"

// timeOf reads a time of the address, as RFC 3339 has it or as a field sends it.
func timeOf(r *kit.Request, name string) (time.Time, error) {
	text := r.Query(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := readTime(text)
	if err != nil {
		return time.Time{}, forebay.Invalid(name, "must be a time, such as 2030-01-02T15:04")
	}
	return t, nil
}

func readTime(text string) (t time.Time, err error) {
	for _, layout := range []string{time.RFC3339, fieldLayout, fieldLayout + ":05"} {
		if t, err = time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, err
}

// field is the time in a field of a form.
func field(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(fieldLayout)
}

// exactField is field with the seconds, if there are any.
func exactField(t time.Time) string {
	if t.Equal(t.Truncate(time.Minute)) {
		return field(t)
	}
	return t.UTC().Format(fieldLayout + ":05.999")
}

// SinceField is what the field of a form shows.
func (s span) SinceField() string { return field(s.Since) }

// UntilField is what the field of a form shows.
func (s span) UntilField() string { return field(s.Until) }

// until is the end of the time, which is now if none was given.
func (s span) until() time.Time {
	if s.Until.IsZero() {
		return time.Now().UTC()
	}
	return s.Until
}

func timeValue(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// allTenants is the parameter of the API for what all tenants have together.
func allTenants(r *kit.Request) string {
	if r.AllTenants() {
		return "true"
	}
	return ""
}

// statusRefused is the status of a page that shows a form again.
const statusRefused = http.StatusUnprocessableEntity
