package api

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

type getInstanceInput struct {
	InstancePath
	decode.Patience
	ShowHistory       bool `query:"showHistory" doc:"with what happened so far"`
	ShowHistoryOutput bool `query:"showHistoryOutput" doc:"with the inputs and results in the history"`
	ShowInput         bool `query:"showInput" default:"true"`
	FailAs500         bool `query:"returnInternalServerErrorOnFailure" doc:"answer with status 500 when the instance has failed"`
}

type listInstancesInput struct {
	InstanceFilter
	Name         string `query:"name" doc:"only of this orchestrator"`
	ShowInput    bool   `query:"showInput" default:"true"`
	Top          int    `query:"top" minimum:"1" maximum:"500" doc:"at most this many; default 50"`
	Continuation string `header:"x-ms-continuation-token" maxLength:"1024" doc:"as the page before had it"`
}

type listInstancesOutput struct {
	Continuation string `header:"x-ms-continuation-token" doc:"there are more: send it with the next request"`
	Body         []instance
}

// InstanceFilter selects instances.
type InstanceFilter struct {
	CreatedFrom string   `query:"createdTimeFrom" doc:"not made before; RFC 3339, of which seconds and zone may be left out: UTC then"`
	CreatedTo   string   `query:"createdTimeTo" doc:"not made after; likewise"`
	Status      []string `query:"runtimeStatus,explode" doc:"only these, repeated or separated by commas"`
	Prefix      string   `query:"instanceIdPrefix" maxLength:"256"`
}

// continuedAsNew is a status of Durable Functions that no instance of Forebay ever shows.
const continuedAsNew = "ContinuedAsNew"

func (f InstanceFilter) request() (req orchestrate.ListRequest, err error) {
	req.Prefix = f.Prefix
	if req.From, err = parseTime("createdTimeFrom", f.CreatedFrom); err != nil {
		return req, err
	}
	if req.Until, err = parseTime("createdTimeTo", f.CreatedTo); err != nil {
		return req, err
	}
	if !req.Until.IsZero() && req.Until.Before(req.From) {
		return req, forebay.Invalid("createdTimeTo", "is before createdTimeFrom")
	}
	for _, s := range splitList(f.Status) {
		status, err := parseStatus(s)
		if err != nil {
			return req, err
		}
		req.Statuses = append(req.Statuses, status)
	}
	return req, nil
}

func parseStatus(s string) (forebay.OrchestrationStatus, error) {
	for _, status := range append(forebay.OrchestrationStatuses, continuedAsNew) {
		if strings.EqualFold(s, string(status)) {
			return status, nil
		}
	}
	return "", forebay.Invalid("runtimeStatus", "%q is none of %s", decode.Shorten(s), joined(forebay.OrchestrationStatuses))
}

func (a orchestrationRoutes) routeInstances() {
	get := durableOperation("get-instance", http.MethodGet, "/instances/{instanceId}", "Get an instance")
	get.Description = "The status is 202 until the instance is over, then 200."
	whole := a.schema(reflect.TypeFor[instance]())
	get.Responses = streamed("202", "It is not over", "application/json", whole)
	get.Responses["500"] = streamed("500", "It has failed, and returnInternalServerErrorOnFailure is set", "application/json", whole)["500"]
	route(a.API, forebay.ScopeRead, get, a.instance)
	list := durableOperation("list-instances", http.MethodGet, "/instances", "List instances, newest first")
	list.Description = "A page may be shorter than top, when its instances are large; x-ms-continuation-token says whether there are more."
	route(a.API, forebay.ScopeRead, list, a.instances)
	attempts := durableOperation("list-activity-attempts", http.MethodGet, "/instances/{instanceId}/attempts", "List the attempts of an instance's activities")
	attempts.Description = "With when each ran, how it ended and the delay after it. eventId is that of the activity in the history of its run: another begins whenever the instance " +
		"continues as new or is rewound."
	route(a.API, forebay.ScopeRead, attempts, func(ctx context.Context, c *call, in *InstancePath) (*answer[[]forebay.ActivityAttempt], error) {
		attempts, err := a.orchestrations.Attempts(ctx, c.caller.Tenant, in.ID)
		return answerOf(notNil(attempts), err)
	})
}

func (a orchestrationRoutes) instance(ctx context.Context, c *call, in *getInstanceInput) (*durableOutput[instance], error) {
	wait, err := in.Duration(maxWait)
	if err != nil {
		return nil, err
	}
	var o forebay.Orchestration
	if wait == 0 {
		o, err = a.orchestrations.Get(ctx, c.caller.Tenant, in.ID)
	} else {
		o, err = a.await(ctx, c, in.ID, wait)
	}
	if err != nil {
		return nil, err
	}
	if err := c.openInstance(ctx, &o, o.ID); err != nil {
		return nil, err
	}
	out := &durableOutput[instance]{Status: http.StatusOK, Body: shown(o, in.ShowInput)}
	if in.ShowHistory {
		events, err := a.orchestrations.History(ctx, c.caller.Tenant, in.ID)
		if err != nil {
			return nil, err
		}
		out.Body.HistoryEvents = summarized(events, in.ShowHistoryOutput && c.mayOpen())
	}
	switch {
	case !o.Status.Terminal():
		out.Status, out.Location, out.RetryAfter = http.StatusAccepted, urisOf(c, in.ID).StatusQueryGetURI, retryAfterStatus
	case o.Status == forebay.OrchestrationFailed && in.FailAs500:
		out.Status = http.StatusInternalServerError
	}
	return out, nil
}

// openInstance takes the payloads out of an instance that the caller may not open. If he may, the
// audit log says that he has.
func (c *call) openInstance(ctx context.Context, o *forebay.Orchestration, target string) error {
	if c.mayOpen() {
		return c.opens(ctx, target)
	}
	o.Input, o.Output, o.CustomStatus = nil, nil, nil
	return nil
}

func (a orchestrationRoutes) instances(ctx context.Context, c *call, in *listInstancesInput) (*listInstancesOutput, error) {
	req, err := in.request()
	if err != nil {
		return nil, err
	}
	req.Name, req.Limit, req.Cursor = in.Name, in.Top, in.Continuation
	found, next, err := a.orchestrations.List(ctx, c.caller.Tenant, req)
	if err != nil {
		return nil, err
	}
	out := &listInstancesOutput{Continuation: next, Body: make([]instance, len(found))}
	for i, o := range found {
		if err := c.openInstance(ctx, &o, "instances"); err != nil {
			return nil, err
		}
		out.Body[i] = shown(o, in.ShowInput)
	}
	return out, nil
}

// summarized returns a history in the form of Durable Functions. It omits work items. The event
// that ended a call stands for the call, once there is one. Inputs and results are large, so they
// are omitted unless payloads is set.
func summarized(events []forebay.OrchestrationEvent, payloads bool) []forebay.OrchestrationEvent {
	scheduled := map[int]forebay.OrchestrationEvent{}
	answered := map[int]bool{}
	for _, e := range events {
		if e.ScheduledID != nil {
			answered[*e.ScheduledID] = true
		}
	}
	summary := make([]forebay.OrchestrationEvent, 0, len(events))
	for _, e := range events {
		switch e.Type {
		case "OrchestratorStarted", "OrchestratorCompleted":
			continue
		case "ExecutionStarted":
			e.Function, e.Name = e.Name, ""
		case "TaskScheduled", "SubOrchestrationInstanceCreated", "TimerCreated":
			if e.Type != "TimerCreated" {
				e.Function, e.Name = e.Name, ""
			}
			if scheduled[e.EventID] = e; answered[e.EventID] {
				continue
			}
		}
		if e.ScheduledID != nil {
			if of, ok := scheduled[*e.ScheduledID]; ok {
				at := of.Timestamp
				e.EventID, e.Function, e.Name, e.InstanceID, e.ScheduledAt, e.ScheduledID = of.EventID, of.Function, of.Name, of.InstanceID, &at, nil
			}
		}
		if e.Failure != nil && e.Reason == "" {
			e.Reason = e.Failure.Message
		}
		if !payloads {
			e.Input, e.Result = nil, nil
		}
		summary = append(summary, e)
	}
	return summary
}
