package jobs

import (
	"embed"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages about jobs.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get("/jobs", list),
		kit.Post("/jobs", changeSelected),
		kit.Get("/jobs/{id}", show),
		kit.Post("/jobs/{id}/cancel", cancel),
		kit.Post("/jobs/{id}/redrive", redrive),
		kit.Get("/jobs/{id}/input", downloadInput),
		kit.Get("/jobs/{id}/result", downloadResult),
		kit.Get("/sessions/jobs", listSessions),
		kit.Get("/dead-letters", deadLetters),
		kit.Get("/quarantine", deadLetters),
		kit.Get("/dead-letters/{queue}/{job}", deadLetter),
		kit.Get("/quarantine/{queue}/{job}", deadLetter),
		kit.Post("/dead-letters/{queue}/{job}", mend),
		kit.Post("/quarantine/{queue}/{job}", mend),
		kit.Get("/dead-letters/{queue}/redrive", bulkForm),
		kit.Get("/quarantine/{queue}/redrive", bulkForm),
		kit.Post("/dead-letters/{queue}/redrive", bulk),
		kit.Post("/quarantine/{queue}/redrive", bulk),
	}
}

// filterNames are the values in the address that the API's list takes.
var filterNames = []string{"status", "task", "queue", "priority", "session_id", "correlation_id", "metadata", "waiting_for", "created_after", "created_before", "cursor"}

type listData struct {
	Jobs        forebay.Page[forebay.Job]
	Statuses    []forebay.Status
	WaitReasons []forebay.WaitReason
	AllTenants  bool
	Filtered    bool
}

// pageSize is how many rows a list shows.
const pageSize = "50"

// list answers GET /jobs.
func list(r *kit.Request) error {
	d := listData{Statuses: forebay.Statuses, WaitReasons: forebay.WaitReasons}
	query := kit.Values("limit", pageSize)
	for _, name := range filterNames {
		if v := r.Query(name); v != "" {
			query.Set(name, timeValue(name, v))
			d.Filtered = d.Filtered || name != "cursor"
		}
	}
	if d.AllTenants = r.AllTenants(); d.AllTenants {
		query.Set("all_tenants", "true")
	}
	var err error
	if d.Jobs, err = kit.Fetch[forebay.Page[forebay.Job]](r, "/v1/jobs", query); err != nil {
		return err
	}
	return pages.Render(r, "list", kit.Page{Title: "Jobs", Section: "/jobs", Data: d, Commands: []string{command("forebay jobs list", query)}})
}

// timeValue is what a browser's field for a time holds, as the API takes it: with the zone UTC.
func timeValue(name, value string) string {
	if !strings.HasPrefix(name, "created_") {
		return value
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.Format(time.RFC3339)
		}
	}
	return value
}

// command is a command line with the flags that a query stands for.
func command(line string, query url.Values) string {
	names := make([]string, 0, len(query))
	for name := range query {
		if name != "limit" && name != "cursor" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		flag := " --" + strings.ReplaceAll(strings.TrimPrefix(name, "created_"), "_", "-")
		switch v := query.Get(name); name {
		case "all_tenants":
			line += " --all-tenants"
		case "metadata":
			line += flag + " " + kit.Shell(strings.Replace(v, ":", "=", 1))
		default:
			line += flag + " " + kit.Shell(v)
		}
	}
	return line
}

const (
	mostSelected = 1000 // jobs that one act changes
	atOnce       = 16   // of them, changed side by side
)

// changeSelected answers POST /jobs: it cancels or redrives the jobs that were selected.
func changeSelected(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	ids := form["id"]
	switch {
	case len(ids) == 0:
		return forebay.Invalid("selection", "is empty: select jobs first")
	case len(ids) > mostSelected:
		return forebay.Invalid("selection", "has %d jobs; %d are the most at once", len(ids), mostSelected)
	}
	act, done := r.Client.Cancel, "Cancelled"
	if form.Get("act") == "redrive" {
		act, done = r.Client.Redrive, "Redrove"
	}
	// Together, so that they share commits.
	errs := make([]error, len(ids))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, id := range ids {
		all.Go(func() error {
			_, errs[i] = act(r.Context(), id)
			return nil
		})
	}
	_ = all.Wait() // errs has the errors
	changed, first := 0, error(nil)
	for _, err := range errs {
		if err == nil {
			changed++
		} else if first == nil {
			first = err
		}
	}
	if changed == 0 {
		return first
	}
	notice := done + " " + kit.Plural(changed, "job") + "."
	if left := len(ids) - changed; left > 0 {
		notice += " " + kit.Plural(left, "job") + " did not change. The first because: " + kit.Explain(first)
	}
	return r.Done(back(form.Get("back")), notice)
}

// back is the list that a form was on.
func back(query string) string {
	if query == "" {
		return "/jobs"
	}
	return "/jobs?" + query
}
