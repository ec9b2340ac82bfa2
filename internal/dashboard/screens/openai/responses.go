package openai

import (
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type responseList struct {
	times
	forebay.ResponsePage
	Statuses []string
}

// At is the page of a response.
func (responseList) At(id string) string { return pageOf(responsesPath, id) }

// JobAt is the page of a job.
func (responseList) JobAt(id string) string { return pageOf("/jobs", id) }

// Next is where the next page begins.
func (l responseList) Next() string {
	if l.HasMore {
		return l.LastID
	}
	return ""
}

// Searched is how far the list looked, or "".
func (l responseList) Searched() any {
	if l.SearchedTo == 0 {
		return ""
	}
	return l.Time(l.SearchedTo)
}

// listResponses answers GET /responses.
func listResponses(r *kit.Request) error {
	found, err := kit.Fetch[forebay.ResponsePage](r, "/v1/responses",
		kit.Values("limit", pageSize, "after", r.Query("cursor"), "status", r.Query("status"), "background", r.Query("background")))
	if err != nil {
		return err
	}
	d := responseList{ResponsePage: found, Statuses: forebay.ResponseStatuses}
	line := "forebay response list"
	if status := r.Query("status"); status != "" {
		line += " --status " + kit.Shell(status)
	}
	if background := r.Query("background"); background != "" {
		line += " --background=" + kit.Shell(background)
	}
	return pages.Render(r, "responses", kit.Page{Title: "Responses", Section: responsesPath, Data: d, Commands: []string{line}})
}

// response is what a page shows of OpenAI's object.
type response struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Model     string `json:"model"`
	CreatedAt int64  `json:"created_at"`
	Previous  string `json:"previous_response_id"`
	Error     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Total   int64 `json:"total_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
	Output   []item          `json:"output"`
	Metadata json.RawMessage `json:"metadata"`
}

// item is an item of an output.
type item struct {
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Name      string          `json:"name"`
	CallID    string          `json:"call_id"`
	Arguments string          `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Content   []struct {
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
}

// Said is what a tool was called with.
func (i item) Said() string {
	if i.Arguments != "" {
		return i.Arguments
	}
	return string(i.Input)
}

type responseData struct {
	times
	response
	Listed   *forebay.Response // nil: it is gone since
	Withheld string            // why the caller does not see what it says; "": he does
	Texts    []string          // of the output
	Tools    []item            // that were called
	Other    []string          // types of the other items
}

// Here is the page of the response.
func (d responseData) Here() string { return pageOf(responsesPath, d.ID) }

// At is the page of another.
func (responseData) At(id string) string { return pageOf(responsesPath, id) }

// JobAt is the page of a job.
func (responseData) JobAt(id string) string { return pageOf("/jobs", id) }

// Over reports whether it has ended.
func (d responseData) Over() bool { return d.Status != "queued" && d.Status != "in_progress" }

// HasMetadata reports whether the client gave any.
func (d responseData) HasMetadata() bool {
	m := string(d.Metadata)
	return m != "" && m != "null" && m != "{}"
}

// showResponse answers GET /responses/{id}.
func showResponse(r *kit.Request) error {
	id := r.PathValue("id")
	at, err := apiPath(responsesPath, id)
	if err != nil {
		return err
	}
	listed, err := kit.Fetch[forebay.ResponsePage](r, "/v1/responses", kit.Values("id", id))
	if err != nil {
		return err
	}
	found, err := kit.Fetch[response](r, at, nil)
	d := responseData{response: found}
	switch {
	case err != nil && forebay.CodeOf(err) == forebay.CodeForbidden && len(listed.Data) > 0:
		l := listed.Data[0]
		d.response, d.Withheld = response{ID: l.ID, Status: l.Status, Model: l.Model, CreatedAt: l.CreatedAt, Previous: l.Previous}, kit.Explain(err)
	case err != nil:
		return err
	}
	if len(listed.Data) > 0 {
		d.Listed = &listed.Data[0]
	}
	for _, i := range d.Output {
		switch {
		case i.Type == "message":
			for _, part := range i.Content {
				d.Texts = append(d.Texts, part.Text+part.Refusal)
			}
		case strings.HasSuffix(i.Type, "_call"):
			d.Tools = append(d.Tools, i)
		default:
			d.Other = append(d.Other, i.Type)
		}
	}
	name := kit.Args(id)
	return pages.Render(r, "response", kit.Page{Title: "Response " + kit.Clean(id), Section: responsesPath, Data: d,
		Commands: []string{"forebay response show " + name, "forebay response cancel " + name, "forebay response delete " + name}})
}

// downloadResponse answers GET /responses/{id}/content with the object as the API has it.
func downloadResponse(r *kit.Request) error {
	at, err := apiPath(responsesPath, r.PathValue("id"))
	if err != nil {
		return err
	}
	return r.Download(r.PathValue("id")+".json", at, nil)
}

// cancelResponse answers POST /responses/{id}/cancel.
func cancelResponse(r *kit.Request) error {
	id := r.PathValue("id")
	if _, err := r.Client.CancelResponse(r.Context(), id); err != nil {
		return err
	}
	return r.Done(pageOf(responsesPath, id), "The response was cancelled, unless it had ended before.")
}

var errNotTyped = forebay.Errorf(forebay.CodeInvalidRequest, "to confirm, type the id of the response as it is shown; nothing was changed")

// deleteResponse answers POST /responses/{id}/delete.
func deleteResponse(r *kit.Request) error {
	id := r.PathValue("id")
	values, err := r.Form()
	if err != nil {
		return err
	}
	if !kit.Typed(values, id) {
		return errNotTyped
	}
	if err := r.Client.DeleteResponse(r.Context(), id); err != nil {
		return err
	}
	return r.Done(responsesPath, "The response "+id+" was deleted.")
}
