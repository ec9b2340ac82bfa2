package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/turns"
)

// endpointMessages is the endpoint of Anthropic's API.
const endpointMessages = "messages"

// Messages is the interface of Anthropic's API. Its calls wait and are answered as those of
// OpenAI's are. It implements [api.Surface].
type Messages struct {
	*API
	counts *turns.Line // of counts of tokens under way
}

// NewMessages returns the interface beside that of OpenAI's API.
func NewMessages(a *API) *Messages {
	return &Messages{a, turns.NewLine(countPlaces, countPlacesOfTenant)}
}

// messagesRoots are the addresses under which the routes are.
var messagesRoots = []string{"/v1/", "/anthropic/v1/"}

// Owns implements [api.Surface].
func (a *Messages) Owns(path string) bool {
	return path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") || strings.HasPrefix(path, "/anthropic/")
}

// Key implements [api.Surface].
func (a *Messages) Key(r *http.Request) (string, error) { return messagesKey(r) }

// Routes implements [api.Surface].
func (a *Messages) Routes() []api.SurfaceRoute {
	var routes []api.SurfaceRoute
	add := func(scope forebay.Scope, method, path string, handle func(*api.SurfaceRequest) error) {
		routes = append(routes, api.SurfaceRoute{Method: method, Path: path, Scope: scope, Handle: answering(handle, (*failure).writeMessages)})
	}
	for _, root := range messagesRoots {
		add(forebay.ScopeSubmit, http.MethodPost, root+endpointMessages, a.call)
		add(forebay.ScopeSubmit, http.MethodPost, root+model.PathCountTokens, a.countTokens)
	}
	// Below /v1/ they are at addresses of OpenAI's API.
	add(forebay.ScopeRead, http.MethodGet, "/anthropic/v1/models", a.listModelInfos)
	add(forebay.ScopeRead, http.MethodGet, "/anthropic/v1/models/{model...}", a.getModelInfo)
	return routes
}

// Refuse implements [api.Surface].
func (a *Messages) Refuse(w http.ResponseWriter, r api.Refusal) { refusalOf(r).writeMessages(w) }

// readMessages reads the body of a request for a model of Anthropic's. release gives its memory
// back.
func (a *Messages) readMessages(r *api.SurfaceRequest) (req request, release func(), err error) {
	if req, release, err = a.read(r); err != nil {
		return request{}, nil, err
	}
	switch known, forwards := a.ServesMessages(req.model); {
	case !known:
		err = unknownModel(req.model)
	case !forwards:
		err = badRequest("model", "not_supported", "No deployment of this model takes requests of Anthropic's API as they are.")
	}
	if err != nil {
		release()
		return request{}, nil, err
	}
	return req, release, nil
}

func (a *Messages) call(r *api.SurfaceRequest) error {
	req, release, err := a.readMessages(r)
	if err != nil {
		return err
	}
	defer release()
	need := model.EstimateForward(endpointMessages, req.body)
	need.AsAnthropic = true
	return a.make(r, req, endpointMessages, &pending{body: req.body, stream: req.stream, need: need, asked: r.Header.Clone(), broken: messagesBroken})
}

// messagesBroken is the event that ends a stream that broke.
func messagesBroken(f *failure) []byte {
	return []byte("event: error\ndata: " + string(messagesError(f, "")) + "\n\n")
}

// MessagesTasks returns the tasks of Anthropic's endpoint for these models.
func (c *Calls) MessagesTasks(forwarder Forwarder, models []string) []forebay.Task {
	tasks := make([]forebay.Task, len(models))
	for i, name := range models {
		t := forwarding{c, forwarder, endpointMessages, name}
		tasks[i] = forebay.Task{
			Name: taskName(endpointMessages, name), Description: "Anthropic's POST /v1/messages, as it is", Model: name,
			Estimate: t.estimate, Check: t.check, Run: t.run,
		}
	}
	return tasks
}

// An overload has a status of Anthropic's own.
const (
	statusOverloaded = 529
	typeOverloaded   = "overloaded_error"
)

// messagesTypes are Anthropic's types of errors by status (documentation, "Errors").
var messagesTypes = map[int]string{
	http.StatusBadRequest: typeInvalid, http.StatusUnauthorized: "authentication_error", http.StatusPaymentRequired: "billing_error",
	http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests: typeRateLimit, http.StatusGatewayTimeout: "timeout_error", http.StatusServiceUnavailable: typeOverloaded, statusOverloaded: typeOverloaded,
}

// messagesError is the body of an error. The id of the request may be "".
func messagesError(f *failure, id string) []byte {
	kind := messagesTypes[f.status]
	switch {
	case kind != "":
	case f.status < http.StatusInternalServerError:
		kind = typeInvalid
	default:
		kind = "api_error"
	}
	message := f.message
	if f.param != "" {
		message = f.param + ": " + message
	}
	members := map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}}
	if id != "" {
		members["request_id"] = id
	}
	body, err := json.Marshal(members)
	if err != nil {
		panic(err) // they are strings
	}
	return body
}

// writeMessages answers with the failure, in Anthropic's shape.
func (f *failure) writeMessages(w http.ResponseWriter) {
	h := w.Header()
	id := h.Get("X-Request-Id")
	if id != "" {
		h.Set("Request-Id", id) // which Anthropic's SDKs read
	}
	f.writeHeader(h)
	w.WriteHeader(f.status)
	_, _ = w.Write(append(messagesError(f, id), '\n'))
}
