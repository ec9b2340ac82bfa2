package flows

import (
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// stepsOf reads the states of steps from the custom status that an instance of a workflow has.
func stepsOf(customStatus json.RawMessage) (status struct {
	Version string            `json:"workflow_version"`
	Steps   map[string]string `json:"steps"`
}, ok bool) {
	err := json.Unmarshal(customStatus, &status)
	return status, err == nil && status.Version != ""
}

type workflowsData struct{ Items []forebay.Workflow }

// At is the page of a workflow.
func (workflowsData) At(name string) string { return workflowAt(name) }

// Tasks are the tasks that a workflow calls, each once.
func (workflowsData) Tasks(w forebay.Workflow) string {
	var names []string
	seen := map[string]bool{}
	for _, s := range w.Steps {
		if !seen[s.Task] {
			names = append(names, s.Task)
		}
		seen[s.Task] = true
	}
	return strings.Join(names, ", ")
}

// listWorkflows answers GET /workflows.
func listWorkflows(r *kit.Request) error {
	found, err := kit.Fetch[forebay.Page[forebay.Workflow]](r, "/v1/workflows", nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "workflows", kit.Page{Title: "Workflows", Section: workflowsPath, Data: workflowsData{found.Items}, Commands: []string{"forebay workflows list"}})
}

type workflowData struct {
	forebay.Workflow
	Instance  *forebay.Orchestration // whose states are shown; nil: none
	Other     bool                   // the instance began with another text
	States    map[string]string
	Instances []forebay.Orchestration // the newest
	ID, Input string                  // that somebody has typed
	Problem   string
}

// At is the page of an instance.
func (workflowData) At(id string) string { return at(id) }

// Here is the page of this workflow.
func (d workflowData) Here() string { return workflowAt(d.Name) }

// With is this page with the states of an instance.
func (d workflowData) With(id string) string { return d.Here() + "?instance=" + url.QueryEscape(id) }

// All is the list of its instances.
func (d workflowData) All() string { return orchestrationsPath + "?name=" + url.QueryEscape(d.Name) }

// Graph is the drawing.
func (d workflowData) Graph() template.HTML { return drawGraph(d.Name, d.Steps, d.States) }

// State is that of a step; "": not known.
func (d workflowData) State(step string) string { return d.States[step] }

// newest is how many instances the page of a workflow shows.
const newest = 10

// showWorkflow answers GET /workflows/{name}.
func showWorkflow(r *kit.Request) error { return renderWorkflow(r, workflowData{}, 0) }

func renderWorkflow(r *kit.Request, d workflowData, status int) (err error) {
	name := r.PathValue("name")
	if strings.Trim(name, ".") == "" {
		return forebay.ErrNotFound
	}
	if d.Workflow, err = r.Client.Workflow(r.Context(), name); err != nil {
		return err
	}
	if d.Instances, _, err = r.Client.OrchestrationPage(r.Context(), client.OrchestrationFilter{Name: name, Limit: newest}, ""); err != nil {
		return err
	}
	if id := r.Query("instance"); id != "" {
		shown, err := fetchInstance(r, id, kit.Values("showInput", "false"))
		if err != nil {
			return err
		}
		if shown.Name != name {
			return forebay.Invalid("instance", "is no instance of this workflow")
		}
		d.Instance = &shown.Orchestration
		if now, ok := stepsOf(shown.CustomStatus); ok {
			d.States, d.Other = now.Steps, now.Version != d.Version
		}
	}
	return pages.Render(r, "workflow", kit.Page{Title: "Workflow " + name, Section: workflowsPath, Data: d, Status: status, Commands: []string{
		"forebay orchestrations start " + kit.Shell(name) + " --input '{}'", "forebay orchestrations list --name " + kit.Shell(name)}})
}

// startWorkflow answers POST /workflows/{name}/start.
func startWorkflow(r *kit.Request) error {
	name := r.PathValue("name")
	values, err := r.Form()
	if err != nil {
		return err
	}
	d := workflowData{ID: strings.TrimSpace(values.Get("id")), Input: values.Get("input")}
	input, err := jsonOf(d.Input)
	var id string
	if err == nil {
		id, err = r.Client.StartOrchestration(r.Context(), name, d.ID, input)
	}
	switch code := forebay.CodeOf(err); {
	case err == nil:
		return r.Done(workflowAt(name)+"?instance="+url.QueryEscape(id), "The instance "+id+" was started.")
	case code == forebay.CodeInvalidRequest:
		d.Problem = kit.Explain(err)
		return renderWorkflow(r, d, http.StatusUnprocessableEntity)
	case code == forebay.CodeConflict:
		d.Problem = kit.Explain(err)
		return renderWorkflow(r, d, http.StatusConflict)
	}
	return err
}
