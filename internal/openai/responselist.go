package openai

import (
	"net/http"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/responses"
)

// wantsSocket reports whether a request asks for a WebSocket. Some clients offer another protocol
// with every request, such as h2c.
func wantsSocket(h http.Header) bool {
	for protocol := range strings.SplitSeq(strings.Join(h.Values("Upgrade"), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(protocol), "websocket") {
			return true
		}
	}
	return false
}

// listResponses answers GET /responses, which OpenAI does not have. The list is in the shape of
// its other lists. A request for a WebSocket at the same address opens one.
func (a *API) listResponses(r *api.SurfaceRequest) error {
	if wantsSocket(r.Header) {
		return a.socket(r)
	}
	if !r.Caller.May(forebay.ScopeRead) {
		return forebay.Errorf(forebay.CodeForbidden, "this needs a key with the scope %q", forebay.ScopeRead)
	}
	p, err := pageOf(r, defaultItems, maxItems)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	q := responses.Query{ID: query.Get("id"), Status: query.Get("status"), After: p.after, Limit: p.limit}
	if q.Status != "" && !slices.Contains(forebay.ResponseStatuses, q.Status) {
		return badRequest("status", "invalid_value", "Invalid 'status': expected one of "+strings.Join(forebay.ResponseStatuses, ", ")+".")
	}
	if p.oldest {
		return badRequest("order", "invalid_value", "Invalid 'order': responses are listed newest first.")
	}
	switch text := query.Get("background"); text {
	case "":
	case "true", "false":
		background := text == "true"
		q.Background = &background
	default:
		return badRequest("background", "invalid_type", "Invalid type for 'background': expected a boolean.")
	}
	page, err := a.Responses.List(r.Context(), r.Caller.Tenant, q)
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		return &failure{status: http.StatusBadRequest, kind: typeInvalid, code: "invalid_value", param: "after",
			message: "There is no response '" + cut(p.after, maxShownID) + "' in this list."}
	}
	if err != nil {
		return err
	}
	list := struct {
		Object  string `json:"object"`
		FirstID string `json:"first_id,omitempty"`
		forebay.ResponsePage
	}{Object: "list", ResponsePage: page}
	if len(page.Data) > 0 {
		list.FirstID = page.Data[0].ID
	}
	return answer(r, list)
}
