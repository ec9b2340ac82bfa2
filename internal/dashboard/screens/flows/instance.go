package flows

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// maxEvents is how many events of a history a page shows.
const maxEvents = 500

// instance is an instance with its history.
type instance struct {
	forebay.Orchestration
	HistoryEvents []forebay.OrchestrationEvent `json:"historyEvents"`
}

// apiPath is the address of an instance in the API.
func apiPath(id string) string {
	return "/runtime/webhooks/durabletask/instances/" + url.PathEscape(id)
}

func fetchInstance(r *kit.Request, id string, query url.Values) (i instance, err error) {
	if strings.Trim(id, ".") == "" {
		return i, forebay.ErrNotFound
	}
	return kit.Fetch[instance](r, apiPath(id), query)
}

// form is what somebody has typed, and what was wrong with it.
type form struct {
	Event, Data, Problem string
}

type showData struct {
	instance
	Over     bool
	Workflow string // that it is an instance of; "": none
	Chart    chart
	Child    string // whose rows are shown as well
	Attempts []forebay.ActivityAttempt
	Runs     int // that have attempts
	Events   []forebay.OrchestrationEvent
	Left     int // events that are not shown
	Raise    form
}

// At is the page of an instance.
func (showData) At(id string) string { return at(id) }

// Here is the page of this one.
func (d showData) Here() string { return at(d.ID) }

// Has reports whether there is a value.
func (showData) Has(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// Others are the instances of the same orchestrator.
func (d showData) Others() string {
	return orchestrationsPath + "?name=" + url.QueryEscape(d.Name)
}

// WorkflowAt is the page of its workflow, with its state.
func (d showData) WorkflowAt() string {
	return workflowAt(d.Workflow) + "?instance=" + url.QueryEscape(d.ID)
}

// show answers GET /orchestrations/{id}.
func show(r *kit.Request) error { return render(r, form{}, 0) }

func render(r *kit.Request, raise form, status int) error {
	id := r.PathValue("id")
	shown, err := fetchInstance(r, id, kit.Values("showHistory", "true"))
	if err != nil {
		return err
	}
	attempts, err := kit.Fetch[[]forebay.ActivityAttempt](r, apiPath(id)+"/attempts", nil)
	if err != nil {
		return err
	}
	d := showData{instance: shown, Over: shown.Status.Terminal(), Attempts: attempts, Raise: raise}
	if _, ok := stepsOf(shown.CustomStatus); ok {
		d.Workflow = shown.Name
	}
	rows := rowsOf(shown.HistoryEvents, attempts, endOf(shown.Orchestration))
	if d.Child = r.Query("child"); d.Child != "" {
		if rows, err = withChild(r, rows, d.Child); err != nil {
			return err
		}
	}
	d.Chart = draw(rows)
	for _, a := range attempts {
		d.Runs = max(d.Runs, a.Run+1)
	}
	d.Events, d.Left = shown.HistoryEvents, max(0, len(shown.HistoryEvents)-maxEvents)
	d.Events = d.Events[:len(d.Events)-d.Left]
	if extra := len(d.Attempts) - maxEvents; extra > 0 {
		d.Attempts = d.Attempts[extra:]
	}
	arg := kit.Args(id)
	return pages.Render(r, "orchestration", kit.Page{Title: "Orchestration " + kit.Clean(id), Section: orchestrationsPath, Data: d, Status: status, Commands: []string{
		"forebay orchestrations show " + arg, "forebay orchestrations history " + arg, "forebay orchestrations attempts " + arg}})
}

// endOf is when what is open in an instance ends for now.
func endOf(o forebay.Orchestration) time.Time {
	if o.CompletedAt != nil {
		return *o.CompletedAt
	}
	return time.Now()
}

// withChild adds the rows of an instance that this one has begun, behind the row that it is.
func withChild(r *kit.Request, rows []row, child string) ([]row, error) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.Child == child })
	if i < 0 {
		return rows, nil
	}
	inner, err := fetchInstance(r, child, kit.Values("showHistory", "true", "showInput", "false"))
	if err != nil {
		return nil, err
	}
	attempts, err := kit.Fetch[[]forebay.ActivityAttempt](r, apiPath(child)+"/attempts", nil)
	if err != nil {
		return nil, err
	}
	more := rowsOf(inner.HistoryEvents, attempts, endOf(inner.Orchestration))
	for i := range more {
		more[i].Inner = true
	}
	return slices.Insert(rows, i+1, more...), nil
}

// download answers GET /orchestrations/{id}/history with the whole history as a file.
func download(r *kit.Request) error {
	id := r.PathValue("id")
	if strings.Trim(id, ".") == "" {
		return forebay.ErrNotFound
	}
	return r.Download("orchestration.json", apiPath(id), kit.Values("showHistory", "true", "showHistoryOutput", "true"))
}

// act is something that a form of an instance's page asks for.
type act struct {
	name   string
	handle func(*kit.Request) error
}

var acts = []act{
	{"raise", raise},
	{"suspend", verb("suspend", "The instance is being suspended.", false)},
	{"resume", verb("resume", "The instance goes on.", false)},
	{"rewind", verb("rewind", "The instance goes on; what had failed is done again.", false)},
	{"terminate", verb("terminate", "The instance is being ended.", true)},
	{"restart", restart},
	{"purge", purge},
}

var errNotTyped = forebay.Errorf(forebay.CodeInvalidRequest, "to confirm, type the id of the instance as it is shown; nothing was changed")

// verb returns the handler of an act that has nothing but a reason.
func verb(name, notice string, typed bool) func(*kit.Request) error {
	return func(r *kit.Request) error {
		id := r.PathValue("id")
		values, err := r.Form()
		if err != nil {
			return err
		}
		if typed {
			if !kit.Typed(values, id) {
				return errNotTyped
			}
		}
		do := map[string]func() error{
			"suspend":   func() error { return r.Client.SuspendOrchestration(r.Context(), id, values.Get("reason")) },
			"resume":    func() error { return r.Client.ResumeOrchestration(r.Context(), id, values.Get("reason")) },
			"rewind":    func() error { return r.Client.RewindOrchestration(r.Context(), id, values.Get("reason")) },
			"terminate": func() error { return r.Client.TerminateOrchestration(r.Context(), id, values.Get("reason")) },
		}[name]
		if err := do(); err != nil {
			return err
		}
		return r.Done(at(id), notice)
	}
}

// jsonOf reads JSON that somebody has typed. Nothing is nil.
func jsonOf(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, forebay.Invalid("data", `must be JSON, such as "yes", 7 or {"approved": true}; a text stands in quotes`)
	}
	return json.RawMessage(text), nil
}

func raise(r *kit.Request) error {
	id := r.PathValue("id")
	values, err := r.Form()
	if err != nil {
		return err
	}
	event := strings.TrimSpace(values.Get("event"))
	data, err := jsonOf(values.Get("data"))
	if err == nil {
		err = r.Client.RaiseEvent(r.Context(), id, event, data)
	}
	switch code := forebay.CodeOf(err); {
	case err == nil:
		return r.Done(at(id), fmt.Sprintf("The event %s was sent.", event))
	case code == forebay.CodeInvalidRequest, code == forebay.CodeGone:
		return render(r, form{event, values.Get("data"), kit.Explain(err)}, http.StatusUnprocessableEntity)
	}
	return err
}

func restart(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	id, err := r.Client.RestartOrchestration(r.Context(), r.PathValue("id"), values.Get("keep") == "")
	if err != nil {
		return err
	}
	return r.Done(at(id), "The instance was started anew.")
}

func purge(r *kit.Request) error {
	id := r.PathValue("id")
	values, err := r.Form()
	if err != nil {
		return err
	}
	if !kit.Typed(values, id) {
		return errNotTyped
	}
	if err := r.Client.PurgeOrchestration(r.Context(), id); err != nil {
		return err
	}
	return r.Done(orchestrationsPath, "The instance "+id+" was deleted with its history.")
}
