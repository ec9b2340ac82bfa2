package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
)

type raiseInput struct {
	InstancePath
	Event string `path:"eventName" doc:"name of the event, in upper or lower case"`
}

type reasonInput struct {
	InstancePath
	Reason string `query:"reason" maxLength:"4096"`
}

type restartInput struct {
	InstancePath
	NewID bool `query:"restartWithNewInstanceId" default:"true" doc:"false: under its own id, which it has to be over for"`
}

type purged struct {
	InstancesDeleted int `json:"instancesDeleted"`
}

func (a orchestrationRoutes) routeInstanceVerbs() {
	raise := instanceVerb("raise-event", "raiseEvent/{eventName}", "Send an instance an event")
	raise.Description = "The body is what the event brings: any JSON, or nothing. One that the instance does not wait for yet is kept until it does. " +
		"An instance that is over, or about to be, is 410."
	route(a.API, forebay.ScopeSubmit, raise, func(ctx context.Context, c *call, in *raiseInput) (*none, error) {
		data, release, err := a.readJSON(c)
		if err != nil {
			return nil, err
		}
		defer release()
		return &none{}, a.orchestrations.Raise(ctx, c.caller.Tenant, in.ID, in.Event, data)
	})
	a.documentValue(raise, "what the event brings")
	for _, verb := range []struct {
		name, summary string
		do            func(ctx context.Context, tenant, id, reason string) error
	}{
		{"terminate", "End an instance, and those that it has called", a.orchestrations.Terminate},
		{"suspend", "Keep an instance from going on until it is resumed", a.orchestrations.Suspend},
		{"resume", "Let a suspended instance go on", a.orchestrations.Resume},
	} {
		op := instanceVerb(verb.name+"-instance", verb.name, verb.summary)
		op.Description = "An instance that is over, or about to be, is 410."
		routeNoBody(a.API, forebay.ScopeOperate, op, func(ctx context.Context, c *call, in *reasonInput) (*none, error) {
			return &none{}, verb.do(ctx, c.caller.Tenant, in.ID, in.Reason)
		})
	}
	rewind := instanceVerb("rewind-instance", "rewind", "Let an instance that has failed go on")
	rewind.Description = "What failed in it is done again, what succeeded is not. An instance that is over and has not failed is 410, one that is not over 409."
	routeNoBody(a.API, forebay.ScopeOperate, rewind, a.rewind)
	restart := instanceVerb("restart-instance", "restart", "Start an instance anew, with its input")
	restart.Description = "The answer is that of a start. An instance that shall keep its id and is not over is 409."
	restart.Responses = a.startedResponse()
	routeNoBody(a.API, forebay.ScopeOperate, restart, func(ctx context.Context, c *call, in *restartInput) (*durableOutput[any], error) {
		id, err := a.orchestrations.Restart(ctx, c.caller.Tenant, in.ID, in.NewID)
		if err != nil {
			return nil, err
		}
		return started(c, id), nil
	})
}

func instanceVerb(id, path, summary string) huma.Operation {
	op := durableOperation(id, http.MethodPost, "/instances/{instanceId}/"+path, summary)
	op.DefaultStatus = http.StatusAccepted
	return op
}

func (a orchestrationRoutes) rewind(ctx context.Context, c *call, in *reasonInput) (*none, error) {
	err := a.orchestrations.Rewind(ctx, c.caller.Tenant, in.ID, in.Reason)
	if forebay.CodeOf(err) == forebay.CodeConflict {
		if o, gone := a.orchestrations.Get(ctx, c.caller.Tenant, in.ID); gone == nil && o.Status.Terminal() {
			err = withStatus(c, err, http.StatusGone)
		}
	}
	return &none{}, err
}

// withStatus answers a conflict with the status that Durable Functions uses for it.
func withStatus(c *call, conflict error, status int) error {
	p := newProblem(c, forebay.CodeConflict, conflict.Error())
	p.Status, p.Title = status, http.StatusText(status)
	return p
}

func (a orchestrationRoutes) routeInstancePurges() {
	one := durableOperation("purge-instance", http.MethodDelete, "/instances/{instanceId}", "Delete an instance with its history")
	one.Description = "One that is not over is 412."
	route(a.API, forebay.ScopeOperate, one, func(ctx context.Context, c *call, in *InstancePath) (*answer[purged], error) {
		err := a.orchestrations.Purge(ctx, c.caller.Tenant, in.ID)
		if err != nil && forebay.CodeOf(err) == forebay.CodeConflict {
			err = withStatus(c, err, http.StatusPreconditionFailed)
		}
		return answerOf(purged{1}, err)
	})
	many := durableOperation("purge-instances", http.MethodDelete, "/instances", "Delete the instances that are over and were made in a time")
	many.Description = "createdTimeFrom is required. If there are none to delete the answer is 404. What selects instances only in the list, such as name, is refused."
	many.RejectUnknownQueryParameters = true // of those that are parameters of other routes: ignored, they would delete more than was meant
	route(a.API, forebay.ScopeOperate, many, a.purgeInstances)
	for _, p := range a.huma.OpenAPI().Paths[many.Path].Delete.Parameters {
		p.Required = p.Name == "createdTimeFrom" || p.Required
	}
}

func (a orchestrationRoutes) purgeInstances(ctx context.Context, c *call, in *InstanceFilter) (*answer[purged], error) {
	req, err := in.request()
	if err != nil {
		return nil, err
	}
	if in.CreatedFrom == "" {
		return nil, forebay.Invalid("createdTimeFrom", "is required here: %s", decode.WantTime)
	}
	for _, status := range req.Statuses {
		if !status.Terminal() {
			return nil, forebay.Invalid("runtimeStatus", "takes what is over, not %s", status)
		}
	}
	n, err := a.orchestrations.PurgeMany(ctx, c.caller.Tenant, req)
	if err == nil && n == 0 {
		err = forebay.Errorf(forebay.CodeNotFound, "there are no such instances that are over")
	}
	return answerOf(purged{n}, err)
}
