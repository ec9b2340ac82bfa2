package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// responseRoutes returns the routes of responses below a root.
func (a *API) responseRoutes(root string, add func(scope forebay.Scope, method, path string, handle func(*api.SurfaceRequest) error)) {
	add(forebay.ScopeSubmit, http.MethodPost, root+"responses", a.createResponse)
	add(forebay.ScopeSubmit, http.MethodPost, root+endpointCompact, a.compact)
	if root != "/v1/" {
		add(forebay.ScopeSubmit, http.MethodPost, root+"deployments/{deployment}/"+endpointCompact, a.compact)
		add(forebay.ScopeSubmit, http.MethodPost, root+"deployments/{deployment}/responses", a.createResponse)
	}
	add(forebay.ScopeRead, http.MethodGet, root+"responses/{id}", a.getResponse)
	add(forebay.ScopeSubmit, http.MethodPost, root+"responses/{id}/cancel", a.cancelResponse)
	add(forebay.ScopeSubmit, http.MethodDelete, root+"responses/{id}", a.deleteResponse)
	add(forebay.ScopeRead, http.MethodGet, root+"responses/{id}/input_items", a.listInputItems)
	add(forebay.ScopeSubmit, http.MethodPost, root+"responses/input_tokens", func(*api.SurfaceRequest) error { return notServed("POST /responses/input_tokens") }) // else it looks like an id
}

// notServed is the failure for a part of OpenAI's API that is not here.
func notServed(what string) error {
	return &failure{status: http.StatusNotFound, kind: typeInvalid, code: "not_supported", message: what + " is not served here."}
}

// createResponse answers POST /responses.
func (a *API) createResponse(r *api.SurfaceRequest) error {
	req, release, err := a.read(r)
	if err != nil {
		return err
	}
	defer release()
	asked, err := bridge.Parse(req.body, req.model)
	if err != nil {
		return refused(err)
	}
	if known, _ := a.Serves(req.model, forebay.CallEstimate{}); !known {
		return unknownModel(req.model)
	}
	if err := a.Responses.Complete(r.Context(), r.Caller.Tenant, asked); err != nil {
		return refused(err)
	}
	need, err := a.needOf(asked)
	if err != nil {
		return err
	}
	if asked.Background {
		return a.createInBackground(r, req, asked, need)
	}
	return a.respond(r, req, responding{asked: asked, need: need, body: req.body, id: ids.New(bridge.IDPrefix), created: time.Now()})
}

// responding is a response whose client waits for it.
type responding struct {
	asked   *bridge.Request
	need    forebay.CallEstimate
	body    []byte // that is stored
	id      string
	created time.Time
	socket  bool
	ended   func(context.Context, bridge.End) // before the client learns of it; may be nil
}

// respond makes a response, stores it if it is to be stored, and answers with it.
func (a *API) respond(r *api.SurfaceRequest, req request, of responding) error {
	asked := of.asked
	var keep func(context.Context, bridge.End) error
	if asked.Store {
		done, err := a.Responses.Room(r.Context(), r.Caller.Tenant, int64(len(of.body)))
		if err != nil {
			return err
		}
		defer done()
	}
	if asked.Store || of.ended != nil {
		keep = func(ctx context.Context, end bridge.End) error {
			if asked.Store {
				if err := a.Responses.Record(ctx, r.Caller.Tenant, responses.Finished{ID: of.id, Request: asked, Created: of.created, Body: of.body, End: end}); err != nil {
					return err
				}
			}
			if of.ended != nil {
				of.ended(ctx, end)
			}
			return nil
		}
	}
	p := &pending{body: asked.Native(), stream: asked.Stream, need: of.need, translate: func() translation {
		return &asResponse{Exchange: bridge.NewExchange(asked, of.id, of.created, asked.Stream, bridge.State{}), stream: asked.Stream, socket: of.socket, keep: keep}
	}}
	return a.make(r, req, endpointResponses, p)
}

// needOf returns what a call for a response needs, or why no deployment of its model can make it.
func (a *API) needOf(asked *bridge.Request) (forebay.CallEstimate, error) {
	need := model.EstimateForward(endpointResponses, asked.Native())
	need.AsOpenAI = true
	return need, a.able(asked, &need)
}

// able returns why no deployment of its model can make a call, and notes where only one can that
// speaks Responses.
func (a *API) able(asked *bridge.Request, need *forebay.CallEstimate) error {
	if err := a.served(asked.Model, *need); err != nil {
		return err
	}
	if beyond := asked.Beyond(); beyond != nil {
		need.AsResponses = true
		if _, can := a.Serves(asked.Model, *need); !can {
			return refused(beyond)
		}
	}
	return nil
}

// maxIdempotencyKey is the longest Idempotency-Key.
const maxIdempotencyKey = 255

// createInBackground stores a response that a job makes.
func (a *API) createInBackground(r *api.SurfaceRequest, req request, asked *bridge.Request, need forebay.CallEstimate) error {
	key, err := transfer.IdempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if len(key) > maxIdempotencyKey {
		return badRequest("Idempotency-Key", "", "An Idempotency-Key has at most 255 characters.")
	}
	again, err := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	row, err := a.Responses.Create(r.Context(), r.Caller.Tenant, responses.Submission{Request: asked, Body: req.body, Need: need, Priority: req.priority(),
		IdempotencyKey: key, Again: err == nil && again > 0, Traceparent: r.Header.Get("Traceparent")})
	if err != nil {
		return refused(err)
	}
	r.Correlate(row.Job)
	if asked.Stream {
		return a.follow(r, row, -1)
	}
	return a.answerResponse(r, row)
}

// refused is the failure for a request that is refused as a request for a response.
func refused(err error) error {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return badRequest(e.Param, e.Code, e.Message)
	}
	return err
}

// found is the failure for a response that there is not. Other errors are as they are.
func found(id string, err error) error {
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		return &failure{status: http.StatusNotFound, kind: typeInvalid, message: "Response with id '" + cut(id, maxShownID) + "' not found."}
	}
	return refused(err)
}

// maxShownID is how much of an unknown id is repeated. A response's id has 31 characters.
const maxShownID = 64

// answerResponse answers with a response as it stands.
func (a *API) answerResponse(r *api.SurfaceRequest, row responses.Row) error {
	if err := r.Open(row.ID); err != nil {
		return err
	}
	object, err := a.Responses.Object(r.Context(), row)
	if err != nil {
		return err
	}
	return answer(r, object)
}

// getResponse answers GET /responses/{id}.
func (a *API) getResponse(r *api.SurfaceRequest) error {
	stream, after, err := streamAsked(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	row, err := a.Responses.Response(r.Context(), r.Caller.Tenant, id)
	switch {
	case err != nil:
		return found(id, err)
	case !stream:
		return a.answerResponse(r, row)
	case row.Seq == 0:
		return badRequest("stream", "", "This response cannot be streamed: it was not created with 'background' set to true.")
	}
	return a.follow(r, row, after)
}

// maxSequence bounds the number of an event. JavaScript knows no larger integers exactly.
const maxSequence = 1<<53 - 1

// maxQueryBody is the largest body of a GET request that is read.
const maxQueryBody = 4 << 10

// streamAsked reads whether a stream is asked for, and after which event it begins. OpenAI's
// client for Go says in a body that it wants a stream.
func streamAsked(r *api.SurfaceRequest) (stream bool, after int64, err error) {
	query := r.URL.Query()
	values := map[string]string{"stream": query.Get("stream"), "starting_after": query.Get("starting_after")}
	if r.ContentLength != 0 {
		body, release, err := r.Body(maxQueryBody)
		if err != nil {
			return false, 0, err
		}
		defer release()
		for name := range values {
			if member := gjson.GetBytes(body, name); member.Exists() && values[name] == "" {
				values[name] = member.String()
			}
		}
	}
	switch values["stream"] {
	case "", "false":
	case "true":
		stream = true
	default:
		return false, 0, badRequest("stream", "invalid_type", "Invalid type for 'stream': expected a boolean.")
	}
	after = -1
	if text := values["starting_after"]; text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after > maxSequence {
			return false, 0, badRequest("starting_after", "invalid_type", "Invalid type for 'starting_after': expected an integer.")
		}
	}
	return stream, max(after, -1), nil
}

// pingEvery is how often a stream says that it goes on, and looks whether it missed something.
const pingEvery = 15 * time.Second

var errStopping = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; try again")

// follow answers with the events of a background response after one, and with those that come,
// until it ends. A client that leaves does not end the response.
func (a *API) follow(r *api.SurfaceRequest, row responses.Row, after int64) error {
	if err := r.Open(row.ID); err != nil {
		return err
	}
	ctx, leave, err := r.Wait()
	if err != nil {
		return err
	}
	defer leave()
	changes, stop := a.Responses.Watch(row)
	defer stop()
	h := r.Writer.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	r.Writer.WriteHeader(http.StatusOK)
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		events, over, err := a.Responses.Events(ctx, r.Caller.Tenant, row.ID, after)
		if err != nil {
			return a.brokenOff(ctx, r, err)
		}
		out := frames(events...)
		if over {
			out = append(out, streamEnd...)
		}
		if _, err := r.Writer.Write(out); err != nil || r.Flush() != nil || over {
			return nil
		}
		if after += int64(len(events)); len(events) > 0 {
			continue
		}
		select {
		case <-changes:
		case <-ping.C:
			if _, err := r.Writer.Write([]byte(": ping\n\n")); err != nil || r.Flush() != nil {
				return nil
			}
		case <-ctx.Done():
			return a.brokenOff(ctx, r, ctx.Err())
		}
	}
}

// brokenOff ends a stream that is not complete.
func (a *API) brokenOff(ctx context.Context, r *api.SurfaceRequest, err error) error {
	switch {
	case r.Context().Err() != nil: // the client or its key has gone
		r.Gone()
		return r.Context().Err()
	case ctx.Err() != nil:
		return errStopping
	}
	return err
}

// cancelResponse answers POST /responses/{id}/cancel.
func (a *API) cancelResponse(r *api.SurfaceRequest) error {
	id := r.PathValue("id")
	row, err := a.Responses.Cancel(r.Context(), r.Caller.Tenant, id)
	if err != nil {
		return found(id, err)
	}
	return a.answerResponse(r, row)
}

// deleteResponse answers DELETE /responses/{id}.
func (a *API) deleteResponse(r *api.SurfaceRequest) error {
	id := r.PathValue("id")
	if err := a.Responses.Delete(r.Context(), r.Caller.Tenant, id); err != nil {
		return found(id, err)
	}
	return answer(r, deleted{ID: id, Object: "response", Deleted: true})
}

// Pages of input items.
const (
	defaultItems = 20
	maxItems     = 100
)

// listInputItems answers GET /responses/{id}/input_items.
func (a *API) listInputItems(r *api.SurfaceRequest) error {
	asked, err := pageOf(r, defaultItems, maxItems)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	items, err := a.Responses.InputItems(r.Context(), r.Caller.Tenant, id)
	if err != nil {
		return found(id, err)
	}
	if err := r.Open(id); err != nil {
		return err
	}
	list, err := asked.of(items)
	if err != nil {
		return err
	}
	if list.Data, err = a.Responses.Referred(r.Context(), r.Caller.Tenant, list.Data); err != nil {
		return err
	}
	return answer(r, list)
}

// itemList is a list of items as OpenAI's API shows it.
type itemList struct {
	Object  string            `json:"object"`
	Data    []json.RawMessage `json:"data"`
	FirstID string            `json:"first_id"`
	LastID  string            `json:"last_id"`
	HasMore bool              `json:"has_more"`
}

// of returns the page of these items, oldest first.
func (p page) of(items []json.RawMessage) (itemList, error) {
	list := itemList{Object: "list", Data: []json.RawMessage{}}
	if !p.oldest {
		slices.Reverse(items)
	}
	idOf := func(item json.RawMessage) string { return gjson.GetBytes(item, "id").Str }
	if p.after != "" {
		at := slices.IndexFunc(items, func(item json.RawMessage) bool { return idOf(item) == p.after })
		if at < 0 {
			return list, badRequest("after", "invalid_value", "There is no item '"+cut(p.after, 100)+"' in this list.")
		}
		items = items[at+1:]
	}
	list.HasMore = len(items) > p.limit
	list.Data = append(list.Data, items[:min(len(items), p.limit)]...)
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = idOf(list.Data[0]), idOf(list.Data[n-1])
	}
	return list, nil
}
