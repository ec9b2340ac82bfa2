package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const deploymentsPath = "/deployments"

// deployment is what the pages show of one.
type deployment struct {
	forebay.Deployment
}

// State is the word for whether calls go to it.
func (d deployment) State() string {
	switch {
	case d.Paused:
		return "paused"
	case d.Breaker == forebay.BreakerOpen:
		return "open"
	case d.Breaker == forebay.BreakerHalfOpen:
		return "half-open"
	case d.PausedUntil != nil:
		return "throttled"
	}
	return "ready"
}

// Broken reports whether its breaker is what keeps calls away.
func (d deployment) Broken() bool { return !d.Paused && d.Turning() }

// gauge is a bar of what is used of a quota in a minute.
type gauge struct {
	Name               string
	Used, Limit, Quota int64
}

// Title is the name at the beginning of a line.
func (g gauge) Title() string { return strings.ToUpper(g.Name[:1]) + g.Name[1:] }

// Label says the same in words.
func (g gauge) Label() string {
	parts := []string{kit.Number(g.Used) + " " + g.Name + " used in the last minute"}
	if g.Limit > 0 {
		parts = append(parts, "learned limit "+kit.Number(g.Limit))
	}
	if g.Quota > 0 {
		parts = append(parts, "quota "+kit.Number(g.Quota))
	}
	if g.Limit == 0 && g.Quota == 0 {
		parts = append(parts, "no limit is known")
	}
	return strings.Join(parts, ", ")
}

// Known reports whether there is a limit to draw.
func (g gauge) Known() bool { return g.Limit > 0 || g.Quota > 0 }

// Gauges are the bars of what the provider limits. Output has one where it counts apart.
func (d deployment) Gauges() []gauge {
	all := []gauge{
		{"requests", d.Used.Requests, d.Limit.Requests, d.Quota.Requests},
		{"tokens", d.Used.Tokens, d.Limit.Tokens, d.Quota.Tokens},
		{"output tokens", d.Used.OutputTokens, d.Limit.OutputTokens, d.Quota.OutputTokens},
	}
	return slices.DeleteFunc(all, func(g gauge) bool { return g.Name == "output tokens" && !g.Known() && g.Used == 0 })
}

// Turning reports whether the breaker turns calls away.
func (d deployment) Turning() bool { return d.Breaker != forebay.BreakerClosed && d.Breaker != "" }

type deploymentsData struct {
	Deployments []deployment
	Next        string
	Total       int
	Simulated   bool // all of them are
}

// listDeployments answers GET /deployments.
func listDeployments(r *kit.Request) error {
	found, err := kit.Fetch[forebay.Page[forebay.Deployment]](r, "/v1/deployments", nil)
	if err != nil {
		return err
	}
	data := deploymentsData{Total: len(found.Items), Simulated: len(found.Items) > 0}
	rows, next, err := part(r, found.Items)
	if err != nil {
		return err
	}
	for _, d := range found.Items {
		data.Simulated = data.Simulated && d.Simulated
	}
	for _, d := range rows {
		data.Deployments = append(data.Deployments, deployment{d})
	}
	data.Next = next
	return pages.Render(r, "deployments", kit.Page{Title: "Deployments", Section: deploymentsPath, Data: data, Commands: []string{"forebay deployments list"}})
}

type deploymentData struct {
	deployment
	Changes forebay.Page[forebay.DeploymentChange]
	Faults  string // JSON; "": it is not simulated
	OfSim   kit.Version
	Typed   string // faults that were not taken
	Problem string
}

// Happened says what a change is, in words.
func (deploymentData) Happened(change string) string {
	if change == "paused" {
		return "paused, as the provider asked"
	}
	return strings.ReplaceAll(change, "_", " ")
}

// showDeployment answers GET /deployments/{name}.
func showDeployment(r *kit.Request) error {
	return renderDeployment(r, nil)
}

// renderDeployment shows a deployment. again changes the form of its faults after a refusal, and
// says the status of the page; it may be nil.
func renderDeployment(r *kit.Request, again func(*deploymentData) (status int)) error {
	name := r.PathValue("name")
	d, err := r.Client.Deployment(r.Context(), name)
	if err != nil {
		return err
	}
	data := deploymentData{deployment: deployment{d}}
	data.Changes, err = kit.Fetch[forebay.Page[forebay.DeploymentChange]](r, "/v1"+kit.Path("deployments", name, "changes"), kit.Values("limit", "50", "cursor", r.Query("cursor")))
	if err != nil {
		return err
	}
	if again != nil { // the address is that of an act: it has no further pages
		data.Changes.NextCursor = ""
	}
	commands := []string{"forebay deployments show " + kit.Shell(name), "forebay deployments changes " + kit.Shell(name)}
	if d.Simulated {
		if data.Faults, data.OfSim, err = faultsOf(r, name); err != nil {
			return err
		}
		commands = append(commands, "forebay deployments sim "+name)
	}
	if r.May("admin") {
		commands = append(commands, "forebay deployments pause "+name, "forebay deployments resume "+name, "forebay deployments forget "+name)
	}
	status := 0
	if again != nil {
		status = again(&data)
	}
	return pages.Render(r, "deployment", kit.Page{Title: "Deployment " + name, Section: deploymentsPath, Data: data, Commands: commands, Status: status, Still: status != 0})
}

// faultsOf returns the faults of a simulated deployment in a form to edit.
func faultsOf(r *kit.Request, name string) (string, kit.Version, error) {
	raw, etag, err := r.Client.TaggedSimFaults(r.Context(), name)
	if err != nil {
		return "", kit.Version{}, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, raw, "", "  ")
	return out.String(), kit.VersionOf(etag), err
}

// deploymentAct has the API do something to the deployment.
func deploymentAct(r *kit.Request, change func(ctx context.Context, name string) (forebay.Deployment, error), notice string) error {
	name := r.PathValue("name")
	if _, err := change(r.Context(), name); err != nil {
		return err
	}
	return r.Done(kit.Path("deployments", name), notice)
}

func pauseDeployment(r *kit.Request) error {
	return deploymentAct(r, r.Client.PauseDeployment, "Paused. Calls in flight finish; no new call goes there.")
}

func resumeDeployment(r *kit.Request) error {
	return deploymentAct(r, r.Client.ResumeDeployment, "Resumed. If its breaker was open, one call tries it now.")
}

// forgetDeployment answers POST /deployments/{name}/forget: the form has the name typed.
func forgetDeployment(r *kit.Request) error {
	if err := confirmed(r, r.PathValue("name")); err != nil {
		return err
	}
	return deploymentAct(r, r.Client.ForgetDeployment, "What was learned is forgotten. Limit, pace and breaker begin anew.")
}

// confirmed reads a form that must repeat what it is about.
func confirmed(r *kit.Request, name string) error {
	form, err := r.Form()
	if err == nil && !kit.Typed(form, name) {
		err = forebay.Errorf(forebay.CodeConflict, "nothing was done: to confirm, type %s exactly", name)
	}
	return err
}

// setFaults answers POST /deployments/{name}/sim.
func setFaults(r *kit.Request) error {
	name := r.PathValue("name")
	form, err := r.Form()
	if err != nil {
		return err
	}
	typed, version := form.Get("faults"), kit.ReadVersion(form)
	if !json.Valid([]byte(typed)) {
		err = forebay.Errorf(forebay.CodeInvalidJSON, "This is no JSON.")
	} else {
		err = r.Client.SetSimFaults(r.On(version), name, json.RawMessage(typed))
	}
	if err == nil {
		return r.Done(kit.Path("deployments", name), "The faults are set. They hold from the next call on, until the server stops.")
	}
	if !refused(err) {
		return err
	}
	return renderDeployment(r, func(d *deploymentData) (status int) {
		d.Typed = typed
		status, d.Problem, d.OfSim = version.Again(err, d.OfSim)
		return status
	})
}

// refused reports whether an error is about what somebody typed, or about what has changed
// meanwhile.
func refused(err error) bool {
	switch forebay.CodeOf(err) {
	case forebay.CodeInvalidRequest, forebay.CodeInvalidJSON, forebay.CodeUnknownField, forebay.CodePayloadTooLarge, forebay.CodePreconditionFailed:
		return true
	}
	return false
}
