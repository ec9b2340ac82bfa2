package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// durablePath is the path below which orchestrations are managed. Paths, parameters, statuses and
// bodies are those of the HTTP API of Durable Functions (durable-functions-http-api). Descriptions
// say what Forebay adds.
const durablePath = "/runtime/webhooks/durabletask"

const (
	retryAfterStart  = "10" // seconds, after a start
	retryAfterStatus = "5"  // seconds, for an instance that is not over
)

// InstancePath names an instance.
type InstancePath struct {
	ID string `path:"instanceId" doc:"id of the instance"`
}

// instance is an instance in the form of the routes below.
type instance struct {
	forebay.Orchestration
	HistoryEvents []forebay.OrchestrationEvent `json:"historyEvents"`
}

// managementURIs are the URIs at which an instance is managed.
type managementURIs struct {
	ID                    string `json:"id"`
	StatusQueryGetURI     string `json:"statusQueryGetUri"`
	SendEventPostURI      string `json:"sendEventPostUri"`
	TerminatePostURI      string `json:"terminatePostUri"`
	SuspendPostURI        string `json:"suspendPostUri"`
	ResumePostURI         string `json:"resumePostUri"`
	RewindPostURI         string `json:"rewindPostUri"`
	RestartPostURI        string `json:"restartPostUri"`
	PurgeHistoryDeleteURI string `json:"purgeHistoryDeleteUri"`
}

// durableOutput is an answer with a status that depends on the instance.
type durableOutput[T any] struct {
	Status     int
	Location   string `header:"Location"`
	RetryAfter string `header:"Retry-After"`
	Body       T
}

func durableOperation(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: durablePath + path, Tags: []string{"orchestrations"}, Summary: summary}
}

func (a orchestrationRoutes) routeOrchestrations() {
	if a.orchestrations == nil {
		return
	}
	a.routeStarts()
	a.routeInstances()
	a.routeInstanceVerbs()
	a.routeInstancePurges()
	a.routeWorkflows()
	a.durable = durableNamesOf(a.huma.OpenAPI())
}

// StartInput names an orchestrator.
type StartInput struct {
	Name    string `path:"name" doc:"name of the orchestrator"`
	Version string `query:"version" maxLength:"256" doc:"of its code; default: the latest"`
	decode.Patience
	PollingInterval float64 `query:"pollingInterval" doc:"taken for the sake of clients that send it beside timeout; the answer comes at once when the instance is over"`
}

type startWithIDInput struct {
	StartInput
	InstancePath
}

func (in *StartInput) wait() (time.Duration, error) {
	if err := decode.CheckSeconds("pollingInterval", in.PollingInterval, maxWait); err != nil {
		return 0, err
	}
	if in.PollingInterval > 0 && in.Timeout == 0 && in.Wait == "" {
		return 0, forebay.Invalid("pollingInterval", "needs timeout beside it")
	}
	return in.Duration(maxWait)
}

func (a orchestrationRoutes) routeStarts() {
	start := durableOperation("start-orchestration", http.MethodPost, "/orchestrators/{name}", "Start an instance")
	start.Description = "The body is the input: any JSON, or nothing. The instance is on disk when the answer comes. With wait or timeout the answer " +
		"is its output with status 200 if it completes in time, its status if it ends otherwise, and else the same as without.\n\n" +
		"An instance that has the id already and is not over is 409; one that is over is purged. An orchestrator that there is not is 404."
	routeStart(a, start, func(ctx context.Context, c *call, in *StartInput) (*durableOutput[any], error) {
		return a.start(ctx, c, in, "")
	})
	withID := durableOperation("start-orchestration-with-id", http.MethodPost, "/orchestrators/{name}/{instanceId}", "Start an instance with an id of one's own")
	withID.Description = start.Description
	routeStart(a, withID, func(ctx context.Context, c *call, in *startWithIDInput) (*durableOutput[any], error) {
		return a.start(ctx, c, &in.StartInput, in.ID)
	})
}

func routeStart[I any](a orchestrationRoutes, op huma.Operation, start func(context.Context, *call, *I) (*durableOutput[any], error)) {
	op.DefaultStatus = http.StatusAccepted
	op.Responses = a.startedResponse()
	op.Responses["200"] = streamed("200", "How it ended", "application/json", &huma.Schema{Description: "its output, or its status if it did not complete"})["200"]
	route(a.API, forebay.ScopeSubmit, op, start)
	a.documentValue(op, "the input")
}

func (a orchestrationRoutes) startedResponse() map[string]*huma.Response {
	return streamed("202", "Where the instance is managed", "application/json", a.schema(reflect.TypeFor[managementURIs]()))
}

// documentValue describes a body that is any JSON value, or nothing.
func (a orchestrationRoutes) documentValue(op huma.Operation, what string) {
	a.documentBody(op, transfer.JSON[0], &huma.Schema{Description: what})
	a.huma.OpenAPI().Paths[op.Path].Post.RequestBody.Required = false
}

func (a orchestrationRoutes) start(ctx context.Context, c *call, in *StartInput, id string) (*durableOutput[any], error) {
	wait, err := in.wait()
	if err != nil {
		return nil, err
	}
	input, release, err := a.readJSON(c)
	if err != nil {
		return nil, err
	}
	id, err = a.orchestrations.Start(ctx, c.caller.Tenant, orchestrate.StartRequest{Name: in.Name, ID: id, Version: in.Version, Input: input})
	release()
	if err != nil {
		return nil, err
	}
	if wait == 0 {
		return started(c, id), nil
	}
	o, err := a.await(ctx, c, id, wait)
	switch {
	case err != nil:
		return nil, err
	case o.Status == forebay.OrchestrationCompleted:
		return &durableOutput[any]{Status: http.StatusOK, Body: o.Output}, nil
	case o.Status.Terminal():
		return &durableOutput[any]{Status: http.StatusOK, Body: shown(o, true)}, nil
	}
	return started(c, id), nil
}

func started(c *call, id string) *durableOutput[any] {
	uris := urisOf(c, id)
	return &durableOutput[any]{Status: http.StatusAccepted, Location: uris.StatusQueryGetURI, RetryAfter: retryAfterStart, Body: uris}
}

func urisOf(c *call, id string) managementURIs {
	at := c.origin() + durablePath + "/instances/" + url.PathEscape(id)
	return managementURIs{
		ID:                    id,
		StatusQueryGetURI:     at,
		SendEventPostURI:      at + "/raiseEvent/{eventName}",
		TerminatePostURI:      at + "/terminate?reason={text}",
		SuspendPostURI:        at + "/suspend?reason={text}",
		ResumePostURI:         at + "/resume?reason={text}",
		RewindPostURI:         at + "/rewind?reason={text}",
		RestartPostURI:        at + "/restart",
		PurgeHistoryDeleteURI: at,
	}
}

// origin returns the address under which the client knows the server. A proxy that terminates TLS
// says so in X-Forwarded-Proto. Only the caller gets the answer.
func (c *call) origin() string {
	switch {
	case c.r.Host == "":
		return ""
	case c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https"):
		return "https://" + c.r.Host
	}
	return "http://" + c.r.Host
}

// readJSON reads a body that is any JSON value, or nothing: nil. Nothing may be of any type.
func (a orchestrationRoutes) readJSON(c *call) (value json.RawMessage, release func(), err error) {
	kind := transfer.CheckContentType(c.r.Header, transfer.JSON)
	if kind != nil && c.r.ContentLength > 0 {
		return nil, nil, kind
	}
	data, release, err := a.readAll(c, a.maxInput)
	if err != nil {
		return nil, nil, err
	}
	if decode.Blank(data) {
		release()
		return nil, func() {}, nil
	}
	if kind != nil {
		release()
		return nil, nil, kind
	}
	if err := jsoncheck.Check("body", data); err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}

// await returns an instance once it is over, or as it stands when the time has passed.
func (a orchestrationRoutes) await(ctx context.Context, c *call, id string, timeout time.Duration) (o forebay.Orchestration, err error) {
	waiting, leave, err := a.waiting(ctx, c)
	if err != nil {
		return o, err
	}
	defer leave()
	return a.orchestrations.Wait(waiting, c.caller.Tenant, id, timeout)
}

// shown returns an instance in the form for callers. The output of a failed instance is its
// message.
func shown(o forebay.Orchestration, withInput bool) instance {
	if !withInput {
		o.Input = nil
	}
	if o.Failure != nil && o.Output == nil {
		o.Output, _ = json.Marshal(o.Failure.Message) // a string
	}
	return instance{Orchestration: o}
}
