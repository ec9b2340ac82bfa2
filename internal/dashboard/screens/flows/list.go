package flows

import (
	"embed"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

const (
	orchestrationsPath = "/orchestrations"
	workflowsPath      = "/workflows"
)

// Routes are the pages about orchestrations and workflows.
func Routes() []kit.Route {
	routes := []kit.Route{
		kit.Get(orchestrationsPath, list),
		kit.Get(orchestrationsPath+"/{id}", show),
		kit.Get(orchestrationsPath+"/{id}/history", download),
		kit.Get(workflowsPath, listWorkflows),
		kit.Get(workflowsPath+"/{name}", showWorkflow),
		kit.Post(workflowsPath+"/{name}/start", startWorkflow),
	}
	for _, act := range acts {
		routes = append(routes, kit.Post(orchestrationsPath+"/{id}/"+act.name, act.handle))
	}
	return routes
}

// at is the page of an instance.
func at(id string) string { return orchestrationsPath + "/" + url.PathEscape(id) }

// workflowAt is the page of a workflow.
func workflowAt(name string) string { return workflowsPath + "/" + url.PathEscape(name) }

// pageSize is how many instances a list shows.
const pageSize = 50

type listData struct {
	Items    []forebay.Orchestration
	Next     string
	Statuses []forebay.OrchestrationStatus
}

// At is the page of an instance.
func (listData) At(id string) string { return at(id) }

// formTimes are the forms of a time in an address. Browsers send the latter two. They have no
// zone: it is UTC.
var formTimes = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04"}

func timeOf(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range formTimes {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, forebay.Invalid(field, "must be a time such as 2026-03-01T09:30, in UTC")
}

// list answers GET /orchestrations.
func list(r *kit.Request) error {
	f := client.OrchestrationFilter{Prefix: r.Query("prefix"), Name: r.Query("name"), Limit: pageSize}
	if status := r.Query("status"); status != "" {
		f.Statuses = []forebay.OrchestrationStatus{forebay.OrchestrationStatus(status)}
	}
	var err error
	if f.From, err = timeOf("from", r.Query("from")); err != nil {
		return err
	}
	if f.Until, err = timeOf("until", r.Query("until")); err != nil {
		return err
	}
	d := listData{Statuses: forebay.OrchestrationStatuses}
	if d.Items, d.Next, err = r.Client.OrchestrationPage(r.Context(), f, r.Query("cursor")); err != nil {
		return err
	}
	return pages.Render(r, "orchestrations", kit.Page{Title: "Orchestrations", Section: orchestrationsPath, Data: d, Commands: []string{"forebay orchestrations list"}})
}
