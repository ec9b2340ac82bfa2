package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// cause is why a job does not run now, and where that can be changed.
type cause struct {
	Text       string
	Link, Name string // of the page; "": none, or none that the caller may open
	Anchor     string // where on the page
	At         any    // a time that the text ends with; nil: none
}

// maxCauses is how many of them a page shows.
const maxCauses = 20

// whyItWaits explains what holds a job back. Each cause leads to what can be changed about it.
func whyItWaits(r *kit.Request, j *forebay.Job) (list []cause) {
	if j.Status.Terminal() || j.WaitingFor == nil {
		return nil
	}
	for _, on := range j.WaitingOn[:min(len(j.WaitingOn), maxCauses)] {
		c := causeOf(&on, j)
		if (on.Kind == forebay.CauseDeployment || on.Kind == forebay.CauseTenant || on.Kind == forebay.CauseKey) && !r.Operator() {
			c.Link, c.Name = "", ""
			c.Text += " An operator of the server can change that."
		}
		list = append(list, c)
	}
	if len(list) > 0 {
		return list
	}
	switch *j.WaitingFor {
	case forebay.WaitSchedule:
		c := cause{Text: "Its time has not come: it was scheduled. A schedule is not changed; cancel the job, and submit it anew."}
		if j.Status == forebay.StatusRetrying {
			c = cause{Text: "It waits between two attempts.", Link: kit.Path("queues", j.Queue), Name: "Retries of the queue " + j.Queue, Anchor: "settings"}
		}
		if c.At = j.ScheduledAt; j.ScheduledAt != nil {
			c.Text += " It may start at"
		}
		return []cause{c}
	case forebay.WaitWorker:
		c := cause{Text: "No running process knows its task."}
		if r.Operator() {
			c.Link, c.Name = "/processes", "Processes"
		}
		return []cause{c}
	}
	return []cause{{Text: "It waits for " + string(*j.WaitingFor) + "."}}
}

// causeOf explains one cause.
func causeOf(on *forebay.WaitCause, j *forebay.Job) cause {
	switch on.Kind {
	case forebay.CauseDeployment:
		c := cause{Link: kit.Path("deployments", on.Name), Name: "Deployment " + on.Name, Anchor: "state"}
		switch on.Reason {
		case forebay.WaitBreaker:
			c.Text = "The circuit breaker of the deployment " + on.Name + " is not closed, because calls failed or were turned away. A resume lets one call try."
		case forebay.WaitPaused:
			c.Text = "The deployment " + on.Name + " is paused."
		case forebay.WaitConcurrency:
			c.Text, c.Anchor = "The deployment "+on.Name+" has as many calls under way as it may have at once.", "quota"
		default:
			c.Text, c.Anchor = "The quota of the deployment "+on.Name+" has no room for it now.", "quota"
		}
		if on.Until != nil {
			c.Text, c.At = c.Text+" That ends, or a call may try, at", on.Until
		}
		return c
	case forebay.CauseTenant:
		c := cause{Link: kit.Path("tenants", on.Name), Name: "Budget of " + on.Name, Anchor: "budget",
			Text: "The budget of its tenant has no room for it, or that of its API key. More room, or the next period, lets it go."}
		switch on.Reason {
		case forebay.WaitPaused:
			c.Text, c.Name, c.Anchor = "Its tenant is paused.", "Pause of "+on.Name, "pause"
		case forebay.WaitConcurrency:
			c.Text, c.Name, c.Anchor = "Its tenant has as many calls under way as it may have at once.", "Concurrency of "+on.Name, "concurrency"
		}
		return c
	case forebay.CauseKey:
		return cause{Text: "The API key that submitted it has a budget of its own.", Link: kit.Path("keys", on.Name), Name: "Budget of the key " + on.Name, Anchor: "budget"}
	case forebay.CauseQueue:
		return cause{Text: "Its queue is paused, for every tenant.", Link: kit.Path("queues", on.Name), Name: "Pause of the queue " + on.Name, Anchor: "pause"}
	case forebay.CauseSession:
		return cause{Text: "Another job of its session goes first. Jobs of one session run one after the other.",
			Link: sessionPath(on.Name, j.Queue), Name: "The session"}
	}
	return cause{Text: "It waits for " + string(on.Reason) + " of " + on.Name + "."}
}
