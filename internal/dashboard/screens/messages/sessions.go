package messages

import (
	"cmp"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type sessionsData struct {
	Queues   []forebay.MessageQueue // that require sessions
	Queue    string                 // whose sessions are shown
	Sessions forebay.Page[forebay.SessionInfo]
}

// listSessions answers GET /sessions.
func listSessions(r *kit.Request) error {
	queues, err := kit.Fetch[forebay.Page[forebay.MessageQueue]](r, "/v1/queues", kit.Values("kind", forebay.KindMessages))
	if err != nil {
		return err
	}
	data := sessionsData{Queue: r.Query("queue")}
	for _, q := range queues.Items {
		if q.RequiresSession {
			data.Queues = append(data.Queues, q)
		}
	}
	if data.Queue == "" && len(data.Queues) == 1 {
		data.Queue = data.Queues[0].Name
	}
	if data.Queue != "" {
		if data.Sessions, err = kit.Fetch[forebay.Page[forebay.SessionInfo]](r, pathOf(data.Queue).api(false, "sessions"), kit.Values("limit", "50", "cursor", r.Query("cursor"))); err != nil {
			return err
		}
	}
	return pages.Render(r, "sessions", kit.Page{Title: "Sessions", Section: "/sessions", Data: data,
		Commands: []string{"forebay messages sessions " + kit.Shell(cmp.Or(data.Queue, "QUEUE"))}})
}

// pathOf returns the queue or subscription of that name.
func pathOf(name string) entity {
	queue, subscription, sub := forebay.CutEntityPath(name)
	if subscription != "" && sub == "" {
		return entity{name, queue, subscription}
	}
	return entity{Name: name}
}

// Link is the page of the queue or subscription.
func (d sessionsData) Link() string { return pathOf(d.Queue).Page() }

// releaseSession answers POST /sessions/release.
func releaseSession(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	queue, id := form.Get("queue"), form.Get("session_id")
	if err := r.Client.Messages(queue).ReleaseSession(r.Context(), id); err != nil {
		return err
	}
	return r.Done("/sessions?"+kit.Values("queue", queue).Encode(), "The session "+id+" is free. Its receiver has lost the lock.")
}
