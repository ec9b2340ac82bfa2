package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/audit"
)

// maxFaultsBytes is far more than the settings of a simulated deployment need.
const maxFaultsBytes = 16 << 10

// DeploymentPath names the deployment a request is about.
type DeploymentPath struct {
	Name string `path:"name" doc:"name of the deployment"`
}

func (a *API) routeDeployments() {
	tags := []string{"deployments"}
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-deployments", Method: http.MethodGet, Path: "/v1/deployments", Tags: tags, Summary: "List deployments of models, and HTTP functions",
		Description: "With what all processes know of them: quota, use, pauses, breaker.",
	}, func(ctx context.Context, _ *call, _ *none) (*answer[forebay.Page[forebay.Deployment]], error) {
		list, err := a.deployments.List(ctx)
		return pageAnswer(page(list), err)
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "get-deployment", Method: http.MethodGet, Path: "/v1/deployments/{name}", Tags: tags, Summary: "Get a deployment",
	}, func(ctx context.Context, _ *call, in *DeploymentPath) (*answer[forebay.Deployment], error) {
		return a.deployment(ctx, in.Name)
	})
	pause := func(paused bool) func(context.Context, *call, *DeploymentPath) (*answer[forebay.Deployment], error) {
		return func(ctx context.Context, c *call, in *DeploymentPath) (*answer[forebay.Deployment], error) {
			if err := a.deployments.SetPaused(ctx, in.Name, paused, c.actor()); err != nil {
				return nil, err
			}
			return a.deployment(ctx, in.Name)
		}
	}
	routeNoBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "pause-deployment", Method: http.MethodPost, Path: "/v1/deployments/{name}/pause", Tags: tags, Summary: "Pause a deployment",
		Description: "No process calls it any more; calls in flight finish. Jobs go to the model's other deployments, or wait. A pause outlives a restart.",
	}, pause(true))
	routeNoBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "resume-deployment", Method: http.MethodPost, Path: "/v1/deployments/{name}/resume", Tags: tags, Summary: "Resume a deployment",
	}, pause(false))
	routeNoBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "forget-deployment", Method: http.MethodPost, Path: "/v1/deployments/{name}/forget", Tags: tags, Summary: "Forget what was learned of a deployment",
		Description: "Its learned limit, its breaker and the pauses that its provider asked for begin anew, in all processes. " +
			"So does the count of what was sent in the last minute. A pause by an operator stays.",
	}, func(ctx context.Context, c *call, in *DeploymentPath) (*answer[forebay.Deployment], error) {
		if err := a.deployments.Forget(ctx, in.Name, c.actor()); err != nil {
			return nil, err
		}
		return a.deployment(ctx, in.Name)
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-deployment-changes", Method: http.MethodGet, Path: "/v1/deployments/{name}/changes", Tags: tags,
		Summary: "List what happened to a deployment, newest first", Description: "Its breaker, its learned limit, pauses that its provider asked for. The newest 10,000 of all deployments are kept.",
	}, func(ctx context.Context, _ *call, in *changesInput) (*answer[forebay.Page[forebay.DeploymentChange]], error) {
		return pageAnswer(a.deployments.Changes(ctx, in.Name, in.Limit, in.Cursor))
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "get-sim-faults", Method: http.MethodGet, Path: "/v1/deployments/{name}/sim", Tags: tags,
		Summary: "Get the faults of a simulated deployment",
	}, func(_ context.Context, _ *call, in *DeploymentPath) (*faultsOutput, error) {
		return a.simFaults(in.Name)
	})
	set := conditions.Take(huma.Operation{
		OperationID: "set-sim-faults", Method: http.MethodPut, Path: "/v1/deployments/{name}/sim", Tags: tags,
		Summary: "Set the faults of a simulated deployment", Description: "They hold from the next call on, until the server stops. A reload keeps them, unless it changes what is configured of the simulation.",
	}, false)
	route(a, forebay.ScopeAdmin, set, func(ctx context.Context, c *call, in *DeploymentPath) (*faultsOutput, error) {
		data, release, err := a.readBody(c, maxFaultsBytes)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := decode.CheckObject(data); err != nil {
			return nil, err
		}
		return a.setSimFaults(ctx, in.Name, data, c.actor())
	})
	a.documentBody(set, transfer.JSON[0], &huma.Schema{Type: huma.TypeObject})
}

// faultsOutput are the faults of a simulated deployment, with their entity tag.
type faultsOutput struct {
	ETag string `header:"ETag"`
	Body json.RawMessage
}

type changesInput struct {
	DeploymentPath
	PageInput
}

func (a *API) deployment(ctx context.Context, name string) (*answer[forebay.Deployment], error) {
	return answerOf(a.deployments.Get(ctx, name))
}

// setSimFaults sets the faults and records them in the audit log. If that fails, it restores the
// old faults.
func (a *API) setSimFaults(ctx context.Context, name string, data json.RawMessage, actor string) (*faultsOutput, error) {
	a.simulating.Lock()
	defer a.simulating.Unlock()
	before, err := a.simFaults(name)
	if err == nil {
		err = forebay.ConditionOf(ctx).Check(before.ETag)
	}
	if err == nil {
		err = a.deployments.SetSimFaults(name, data)
	}
	if err != nil {
		return nil, err
	}
	after, err := a.simFaults(name)
	if err == nil {
		err = a.audit.Record(ctx, audit.Act{Actor: actor, Action: "set-sim-faults", Target: name, Detail: string(after.Body)})
	}
	if err != nil {
		return nil, errors.Join(err, a.deployments.SetSimFaults(name, before.Body))
	}
	return after, nil
}

func (a *API) simFaults(name string) (*faultsOutput, error) {
	faults, err := a.deployments.SimFaults(name)
	if err != nil {
		return nil, err
	}
	return &faultsOutput{forebay.ETagOf(faults), faults}, nil
}
