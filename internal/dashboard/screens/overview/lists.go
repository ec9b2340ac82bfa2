package overview

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type backlogData struct {
	forebay.Backlog
	All bool
}

// backlog answers GET /backlog.
func backlog(r *kit.Request) error {
	d := backlogData{All: r.AllTenants()}
	var err error
	if d.Backlog, err = r.Client.Backlog(r.Context(), d.All); err != nil {
		return err
	}
	return pages.Render(r, "backlog", kit.Page{Title: "Backlog", Section: "/backlog", Data: d, Commands: []string{"forebay backlog" + flagOfAll(d.All)}})
}

func flagOfAll(all bool) string {
	if all {
		return " --all-tenants"
	}
	return ""
}

type callsData struct {
	forebay.RunningCalls
	All bool
}

// mostCalls is how many calls the page shows.
const mostCalls = 100

// calls answers GET /calls.
func calls(r *kit.Request) error {
	d := callsData{All: r.AllTenants()}
	var err error
	filter := forebay.CallFilter{AllTenants: d.All, Deployment: r.Query("deployment"), Task: r.Query("task"), Limit: mostCalls}
	if d.RunningCalls, err = r.Client.Calls(r.Context(), filter); err != nil {
		return err
	}
	return pages.Render(r, "calls", kit.Page{Title: "Calls under way", Section: "/calls", Data: d, Commands: []string{"forebay calls" + flagOfAll(d.All)}})
}

// processes answers GET /processes.
func processes(r *kit.Request) error {
	list, err := r.Client.Processes(r.Context())
	if err != nil {
		return err
	}
	return pages.Render(r, "processes", kit.Page{Title: "Processes", Section: "/processes", Data: list, Commands: []string{"forebay processes"}})
}

// prefixes tell what an id is of.
var prefixes = []struct{ prefix, page string }{
	{"batch_", "batches"}, {"resp_", "responses"}, {"key_", "keys"}, {"doc_", "documents"},
}

// find answers GET /find: it goes to what has an id.
func find(r *kit.Request) error {
	id := strings.TrimSpace(r.Query("id"))
	if id == "" {
		r.Redirect("/")
		return nil
	}
	for _, p := range prefixes {
		if strings.HasPrefix(id, p.prefix) {
			r.Redirect(kit.Path(p.page, id))
			return nil
		}
	}
	query := kit.Values("limit", "1", "id", id)
	if r.AllTenants() {
		query.Set("all_tenants", "true")
	}
	jobs, err := kit.Fetch[forebay.Page[forebay.Job]](r, "/v1/jobs", query)
	if err != nil {
		return err
	}
	if len(jobs.Items) > 0 {
		http.Redirect(r.Writer, r.Request, r.In(jobs.Items[0].Tenant, kit.Path("jobs", id)), http.StatusSeeOther)
		return nil
	}
	if _, err := r.Client.Orchestration(r.Context(), id); err == nil {
		r.Redirect(kit.Path("orchestrations", id))
		return nil
	}
	r.Redirect("/jobs?correlation_id=" + url.QueryEscape(id))
	return nil
}
