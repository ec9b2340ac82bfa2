package jobs

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// parseTime reads a time in UTC, as a browser's field or the API writes it.
func parseTime(v string) (time.Time, error) {
	return time.Parse(time.RFC3339, timeValue("created_", v))
}

// rateOf reads how fast, and how many at most, a form asks to redrive.
func rateOf(form url.Values) (rate float64, most int, err error) {
	if v := form.Get("rate"); v != "" {
		if rate, err = strconv.ParseFloat(v, 64); err != nil || rate < 0 {
			return 0, 0, forebay.Invalid("rate", "must be a number of jobs each second")
		}
	}
	if v := form.Get("max"); v != "" {
		if most, err = strconv.Atoi(v); err != nil || most < 1 {
			return 0, 0, forebay.Invalid("max", "must be a number of jobs")
		}
	}
	return rate, most, nil
}

// mostEditable bounds an input that the page lets somebody edit.
const mostEditable = 1 << 20

// edit is what somebody wants to change of a job that was set aside.
type edit struct {
	Input, Task, MaxAttempts string
	// Version is of the job that was shown. A job that has changed since is not changed by who has
	// not seen it.
	kit.Version
}

type deadLetterData struct {
	Place    place
	Job      forebay.SetAsideJob
	Input    string // indented, as it is stored
	Editable bool
	Edit     edit
	Diff     []kit.DiffLine // nil: nothing was checked yet
	Checked  bool
	Problem  string
}

// deadLetter answers GET /dead-letters/{queue}/{job}.
func deadLetter(r *kit.Request) error {
	d, err := peek(r)
	if err != nil {
		return err
	}
	return d.render(r, 0)
}

func peek(r *kit.Request) (*deadLetterData, error) {
	d := &deadLetterData{Place: placeOf(r)}
	var err error
	if d.Job, err = kit.Fetch[forebay.SetAsideJob](r, d.Place.path(r.PathValue("queue"), r.PathValue("job")), nil); err != nil {
		return nil, err
	}
	d.Input = indent(d.Job.Input)
	d.Editable = !d.Job.InputWithheld && len(d.Job.Input) > 0 && len(d.Job.Input) <= mostEditable
	d.Edit = edit{Input: d.Input, Task: d.Job.Task, Version: kit.VersionOf(d.Job.ETag)}
	return d, nil
}

func (d *deadLetterData) render(r *kit.Request, status int) error {
	return pages.Render(r, "dead_letter", kit.Page{Title: "Job " + d.Job.JobID, Section: "/dead-letters", Data: d, Status: status, Still: true, Commands: []string{
		"forebay " + d.Place.Segment + " show " + d.Job.JobID + " --queue " + d.Job.Queue, "forebay jobs redrive " + d.Job.JobID,
	}})
}

// indent writes JSON on several lines. Its numbers and the order of its keys stay.
func indent(raw json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// mend answers POST /dead-letters/{queue}/{job}: it checks an edit, or redrives the job with it.
func mend(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	d, err := peek(r)
	if err != nil {
		return ifGone(err)
	}
	asked := edit{Input: strings.ReplaceAll(form.Get("input"), "\r\n", "\n"), Task: form.Get("task"), MaxAttempts: form.Get("max_attempts"), Version: kit.ReadVersion(form)}
	change, err := d.change(asked)
	d.Edit = asked
	if err != nil {
		d.Problem = kit.Explain(err)
		return d.render(r, http.StatusUnprocessableEntity)
	}
	request := forebay.RedriveRequest{Filter: forebay.SetAsideFilter{JobIDs: []string{d.Job.JobID}}, Edit: change, DryRun: form.Get("act") != "redrive"}
	_, err = r.SetAside(d.Place.Segment, d.Job.Queue).Redrive(r.On(asked.Version), request)
	if kit.Changed(err) {
		return mendAgain(r, asked)
	}
	if code := forebay.CodeOf(err); err != nil && (code == forebay.CodeForbidden || code == forebay.CodeInternal || code == "") {
		return err
	}
	switch {
	case err != nil:
		d.Problem = kit.Explain(err)
		return d.render(r, http.StatusUnprocessableEntity)
	case request.DryRun:
		d.Checked, d.Diff = true, kit.Diff(d.Input, asked.Input)
		return d.render(r, http.StatusOK)
	}
	return r.Done(kit.Path("jobs", d.Job.JobID), "Redriven as generation "+strconv.Itoa(d.Job.Generation+1)+".")
}

// mendAgain shows an edit of a job that has changed meanwhile, beside the job of now.
func mendAgain(r *kit.Request, asked edit) error {
	d, err := peek(r)
	if err != nil {
		return ifGone(err)
	}
	asked.Version = d.Edit.Version
	d.Edit, d.Problem = asked, "The job has changed meanwhile: it ran again and was set aside once more. Nothing was stored. Look at it, and check your change again."
	return d.render(r, http.StatusConflict)
}

// ifGone says what it means that a job that was shown is not found.
func ifGone(err error) error {
	if forebay.CodeOf(err) != forebay.CodeNotFound {
		return err
	}
	return forebay.Errorf(forebay.CodeConflict, "the job is not here any more: somebody has redriven or purged it meanwhile, and your change was not stored")
}

// change is what differs between an edit and the job; nil: nothing.
func (d *deadLetterData) change(asked edit) (*forebay.RedriveEdit, error) {
	change := &forebay.RedriveEdit{}
	changed := false
	if d.Editable && asked.Input != d.Input {
		if !json.Valid([]byte(asked.Input)) {
			return nil, forebay.Invalid("input", "is not JSON")
		}
		change.Input, changed = json.RawMessage(asked.Input), true
	}
	if asked.Task != "" && asked.Task != d.Job.Task {
		change.Task, changed = asked.Task, true
	}
	if asked.MaxAttempts != "" {
		n, err := strconv.Atoi(asked.MaxAttempts)
		if err != nil {
			return nil, forebay.Invalid("max_attempts", "must be a whole number")
		}
		change.MaxAttempts, changed = &n, true
	}
	if !changed {
		return nil, nil //nolint:nilnil // no change is what was asked for
	}
	return change, nil
}
