package jobs

import (
	"embed"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages about jobs.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get("/", list),
		kit.Get("/jobs", list),
	}
}

type listData struct {
	Jobs     forebay.Page[forebay.Job]
	Statuses []forebay.Status
}

// list answers GET /jobs.
func list(r *kit.Request) error {
	found, err := kit.Fetch[forebay.Page[forebay.Job]](r, "/v1/jobs", kit.Values("status", r.Query("status"), "task", r.Query("task"), "limit", "50", "cursor", r.Query("cursor")))
	if err != nil {
		return err
	}
	return pages.Render(r, "list", kit.Page{Title: "Jobs", Section: "/jobs", Data: listData{found, forebay.Statuses}, Commands: []string{"forebay jobs list"}})
}
