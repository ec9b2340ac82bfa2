package jobs

import (
	"net/url"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type sessionsData struct {
	Sessions   forebay.Page[forebay.JobSession]
	AllTenants bool
}

// Jobs is the list of a session's jobs.
func (sessionsData) Jobs(s forebay.JobSession) string {
	return "/jobs?" + kit.Values("session_id", s.SessionID, "queue", s.Queue).Encode()
}

// SetAside is the list of a session's queue's dead letters.
func (sessionsData) SetAside(s forebay.JobSession) string {
	return "/dead-letters?" + kit.Values("queue", s.Queue).Encode()
}

// Job is the page of the session's first job, which says what holds it up.
func (sessionsData) Job(s forebay.JobSession) string { return kit.Path("jobs", s.First.JobID) }

// sessionPath is the page about one session of jobs.
func sessionPath(id, queue string) string {
	return "/sessions/jobs?session_id=" + url.QueryEscape(id) + "&queue=" + url.QueryEscape(queue)
}

// listSessions answers GET /sessions/jobs.
func listSessions(r *kit.Request) error {
	d := sessionsData{AllTenants: r.AllTenants()}
	query := kit.Values("queue", r.Query("queue"), "session_id", r.Query("session_id"))
	if d.AllTenants {
		query.Set("all_tenants", "true")
	}
	line := command("forebay jobs sessions", query)
	query.Set("limit", pageSize)
	if cursor := r.Query("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	var err error
	if d.Sessions, err = kit.Fetch[forebay.Page[forebay.JobSession]](r, "/v1/job-sessions", query); err != nil {
		return err
	}
	return pages.Render(r, "sessions", kit.Page{Title: "Sessions of jobs", Section: "/sessions", Data: d, Commands: []string{line}})
}
