package jobs

import (
	"net/url"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// place is a kind of subqueue for jobs that cannot succeed.
type place struct {
	Segment string // of addresses, here and in the API
	Name    string
}

// placeOf returns where a request looks.
func placeOf(r *kit.Request) place {
	if strings.HasPrefix(strings.TrimPrefix(r.URL.Path, r.Site.Base), "/quarantine") {
		return place{"quarantine", "Quarantine"}
	}
	return place{"dead-letters", "Dead letters"}
}

// path is the API's address of the subqueue of a queue.
func (p place) path(queue string, segments ...string) string {
	return "/v1" + kit.Path("queues", queue, p.Segment) + kit.Path(segments...)
}

// setAsideNames are the values in the address that select jobs that were set aside.
var setAsideNames = []string{"queue", "task", "reason", "error_class", "correlation_id", "before", "after"}

type deadLettersData struct {
	Place      place
	Groups     forebay.SetAsideGroups
	Jobs       forebay.Page[forebay.SetAsideJob]
	AllTenants bool
	Queue      string // "": every queue
	Queues     []string
	Filtered   bool
}

// deadLetters answers GET /dead-letters and /quarantine.
func deadLetters(r *kit.Request) error {
	d := deadLettersData{Place: placeOf(r), Queue: r.Query("queue"), AllTenants: r.AllTenants()}
	query := url.Values{}
	for _, name := range setAsideNames {
		if v := r.Query(name); v != "" {
			query.Set(name, timeValue("created_"+name, v))
			d.Filtered = d.Filtered || name != "queue"
		}
	}
	if d.AllTenants {
		query.Set("all_tenants", "true")
	}
	var err error
	if d.Groups, err = kit.Fetch[forebay.SetAsideGroups](r, "/v1/"+d.Place.Segment+"/groups", query); err != nil {
		return err
	}
	line := command("forebay "+d.Place.Segment+" list", query)
	if d.Queue == "" {
		line += " --all-queues"
	}
	query.Set("limit", pageSize)
	if cursor := r.Query("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	if d.Jobs, err = kit.Fetch[forebay.Page[forebay.SetAsideJob]](r, "/v1/"+d.Place.Segment, query); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, j := range d.Jobs.Items {
		if !seen[j.Queue] {
			seen[j.Queue] = true
			d.Queues = append(d.Queues, j.Queue)
		}
	}
	return pages.Render(r, "dead_letters", kit.Page{Title: d.Place.Name, Section: "/dead-letters", Data: d, Commands: []string{line}})
}

// filterOf makes a filter of the values of an address or a form.
func filterOf(get func(string) string) (forebay.SetAsideFilter, error) {
	f := forebay.SetAsideFilter{Task: get("task"), Reason: get("reason"), ErrorClass: forebay.ErrorClass(get("error_class")), CorrelationID: get("correlation_id")}
	for name, at := range map[string]**time.Time{"before": &f.Before, "after": &f.After} {
		v := get(name)
		if v == "" {
			continue
		}
		t, err := parseTime(v)
		if err != nil {
			return f, forebay.Invalid(name, "must be a time such as 2026-11-26T12:00:00Z")
		}
		*at = &t
	}
	return f, nil
}

// bulkData is a redrive or a purge of many jobs, before it is carried out.
type bulkData struct {
	Place   place
	Queue   string
	Filter  forebay.SetAsideFilter
	Values  map[string]string // of the filter, for the next form
	Bounds  bool              // somebody has chosen some of them
	Report  *forebay.RedriveReport
	Rate    string
	Max     string
	Problem string
}

// bulkForm answers GET /dead-letters/{queue}/redrive: what a redrive would do, by a dry run
// that changes nothing.
func bulkForm(r *kit.Request) error { return renderBulk(r, r.Query, "") }

func renderBulk(r *kit.Request, get func(string) string, problem string) error {
	d := bulkData{Place: placeOf(r), Queue: r.PathValue("queue"), Values: map[string]string{}, Rate: get("rate"), Max: get("max"), Problem: problem}
	var err error
	if d.Filter, err = filterOf(get); err != nil {
		return err
	}
	for _, name := range setAsideNames[1:] {
		if v := get(name); v != "" {
			d.Values[name] = v
		}
	}
	d.Bounds = len(d.Values) > 0
	if d.Filter.Before == nil { // what is set aside later was not looked at
		seen, err := newestOf(r, d.Place, d.Queue)
		if err != nil {
			return err
		}
		d.Filter.Before, d.Values["before"] = &seen, seen.Format(time.RFC3339Nano)
	}
	report, err := r.SetAside(d.Place.Segment, d.Queue).Redrive(r.Context(), forebay.RedriveRequest{Filter: d.Filter, DryRun: true})
	if err != nil {
		return err
	}
	d.Report = &report
	selected := kit.Values("queue", d.Queue)
	for name, value := range d.Values {
		selected.Set(name, timeValue("created_"+name, value))
	}
	page := kit.Page{Title: d.Place.Name + " of " + d.Queue + ": redrive or purge", Section: "/dead-letters", Data: d, Still: true,
		Commands: []string{command("forebay "+d.Place.Segment+" redrive --dry-run", selected), command("forebay "+d.Place.Segment+" purge", selected)}}
	if problem != "" {
		page.Status = 422
	}
	return pages.Render(r, "bulk", page)
}

// newestOf is just after the latest time at which a job of the queue was set aside. That time
// is the database's, whose clock may differ.
func newestOf(r *kit.Request, where place, queue string) (time.Time, error) {
	groups, err := kit.Fetch[forebay.SetAsideGroups](r, "/v1/"+where.Segment+"/groups", kit.Values("queue", queue))
	newest := time.Unix(0, 0)
	for _, g := range groups.Groups {
		if g.Newest.After(newest) {
			newest = g.Newest
		}
	}
	return newest.Add(time.Millisecond).UTC(), err
}

// bulk answers POST /dead-letters/{queue}/redrive: it redrives or purges what a filter selects.
func bulk(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	where, queue := placeOf(r), r.PathValue("queue")
	filter, err := filterOf(form.Get)
	if err != nil {
		return err
	}
	set := r.SetAside(where.Segment, queue)
	list := "/" + where.Segment + "?queue=" + url.QueryEscape(queue)
	if form.Get("act") == "purge" {
		if !kit.Typed(form, queue) {
			return renderBulk(r, form.Get, "To purge, type the name of the queue: "+queue)
		}
		report, err := set.Purge(r.Context(), filter)
		if err != nil {
			return err
		}
		return r.Done(list, "Purged "+kit.Plural(report.Purged, "job")+" for good.")
	}
	rate, max, err := rateOf(form)
	if err != nil {
		return renderBulk(r, form.Get, kit.Explain(err))
	}
	report, err := set.Redrive(r.Context(), forebay.RedriveRequest{Filter: filter, All: filter.Empty(), RatePerSecond: rate, Max: max})
	if err != nil {
		return err
	}
	notice := "Redrove " + kit.Plural(report.Redriven, "job") + "."
	if report.Skipped > 0 {
		notice += " " + kit.Plural(report.Skipped, "job") + " had gone meanwhile."
	}
	return r.Done(list, notice)
}
