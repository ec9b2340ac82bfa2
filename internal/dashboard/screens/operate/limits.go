package operate

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// limitRow is a limit of a tenant on the page.
type limitRow struct {
	forebay.LimitUse
	Typed string // the field of the form; "" is the default
}

// About says what is limited.
func (l limitRow) About() string { return l.Name.About() }

// Label says in words what the bar shows.
func (l limitRow) Label() string {
	text := "limit " + kit.Number(l.Limit)
	if l.Used != nil {
		text = kit.Number(*l.Used) + " used, " + text
	}
	return text
}

type limitsData struct {
	kit.Version
	Tenant  string
	Rows    []limitRow
	Problem string
}

// setValue is what was set for a limit; "" if it is the default.
func setValue(l forebay.LimitUse) string {
	if !l.Set {
		return ""
	}
	return strconv.FormatInt(l.Limit, 10)
}

// limitsVersion is what the form shows of a tenant's limits.
func limitsVersion(t forebay.Tenant) kit.Version {
	values := make([]kit.Value, len(t.Limits))
	for i, l := range t.Limits {
		values[i] = kit.Value{Name: string(l.Name), Text: setValue(l)}
	}
	return kit.VersionOf(t.ETag, values...)
}

// showLimits answers GET /tenants/{name}/limits.
func showLimits(r *kit.Request) error {
	t, err := r.Client.Tenant(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return renderLimits(r, t, 0, nil, limitsVersion(t), "")
}

// renderLimits shows the limits, with what somebody typed if that was not taken.
func renderLimits(r *kit.Request, t forebay.Tenant, status int, typed url.Values, version kit.Version, problem string) error {
	data := limitsData{Version: version, Tenant: t.Name, Problem: problem}
	for _, l := range t.Limits {
		row := limitRow{l, setValue(l)}
		if typed != nil {
			row.Typed = typed.Get(string(l.Name))
		}
		data.Rows = append(data.Rows, row)
	}
	commands := []string{"forebay tenants show " + t.Name}
	if r.May("admin") {
		commands = append(commands, "forebay tenants set-limits "+t.Name+" --waiting-jobs 50000")
	}
	return pages.Render(r, "limits", kit.Page{Title: "Limits of " + t.Name, Section: tenantsPath, Data: data, Commands: commands, Status: status, Still: true})
}

// setLimits answers POST /tenants/{name}/limits.
func setLimits(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name, version := r.PathValue("name"), kit.ReadVersion(form)
	limits, err := readLimits(form)
	if err == nil {
		_, err = r.Client.SetLimits(r.On(version), name, limits)
	}
	if err == nil {
		return r.Done(kit.Path("tenants", name, "limits"), "The limits are set.")
	}
	if !refused(err) {
		return err
	}
	t, fetching := r.Client.Tenant(r.Context(), name)
	if fetching != nil {
		return fetching
	}
	status, problem, version := version.Again(err, limitsVersion(t))
	return renderLimits(r, t, status, form, version, problem)
}

func readLimits(form url.Values) (limits forebay.TenantLimits, err error) {
	for _, name := range forebay.LimitNames() {
		if *limits.Field(name), err = readCount(string(name), strings.TrimSpace(form.Get(string(name)))); err != nil {
			return limits, err
		}
	}
	if problem := limits.Check(""); problem != nil {
		return limits, problem
	}
	return limits, nil
}
