package messages

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// deadGroups are the dead letters of all queues and subscriptions, by queue and reason.
type deadGroups struct{ forebay.DeadMessageGroups }

// Page is where the dead letters of a group are.
func (deadGroups) Page(g forebay.DeadMessageGroup) string {
	return pathOf(g.Queue).Page() + "?" + kit.Values("tab", deadTab, "reason", g.Reason).Encode()
}

// Act is the page of an act on a group.
func (deadGroups) Act(act string, g forebay.DeadMessageGroup) string {
	return boxData{Entity: pathOf(g.Queue)}.Reasoned(act, g.Reason)
}

// listDeadGroups answers GET /dead-letters/messages.
func listDeadGroups(r *kit.Request) error {
	groups, err := r.Client.DeadMessageGroups(r.Context())
	if err != nil {
		return err
	}
	return pages.Render(r, "dead-groups", kit.Page{Title: "Dead letters of messages", Section: "/dead-letters", Data: deadGroups{groups},
		Commands: []string{"forebay messages groups"}})
}
