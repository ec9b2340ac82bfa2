package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// maxFaultsBytes is far more than a simulated deployment has settings.
const maxFaultsBytes = 16 << 10

type deploymentPath struct {
	Name string `path:"name" doc:"name of the deployment"`
}

func (a *API) routeDeployments() {
	tags := []string{"deployments"}
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-deployments", Method: http.MethodGet, Path: "/v1/deployments", Tags: tags, Summary: "List model deployments",
	}, func(context.Context, *call, *none) (*answer[forebay.Page[Deployment]], error) {
		return pageAnswer(page(a.deployments.List()), nil)
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "get-sim-faults", Method: http.MethodGet, Path: "/v1/deployments/{name}/sim", Tags: tags,
		Summary: "Get the faults of a simulated deployment",
	}, func(_ context.Context, _ *call, in *deploymentPath) (*answer[json.RawMessage], error) {
		return a.simFaults(in.Name)
	})
	set := huma.Operation{
		OperationID: "set-sim-faults", Method: http.MethodPut, Path: "/v1/deployments/{name}/sim", Tags: tags,
		Summary: "Set the faults of a simulated deployment", Description: "They hold from the next call on, until the server stops.",
	}
	route(a, forebay.ScopeAdmin, set, func(ctx context.Context, c *call, in *deploymentPath) (*answer[json.RawMessage], error) {
		data, release, err := a.readBody(c, maxFaultsBytes)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := checkBody(data); err != nil {
			return nil, err
		}
		if data[skipSpace(data, 0)] != '{' {
			return nil, errNotObject
		}
		if err := checkRepeats("", data[skipSpace(data, 0):]); err != nil {
			return nil, err
		}
		return a.setSimFaults(ctx, in.Name, data, c.actor())
	})
	a.documentBody(set, jsonTypes[0], &huma.Schema{Type: huma.TypeObject})
}

// setSimFaults sets faults that are then in the audit log, or none.
func (a *API) setSimFaults(ctx context.Context, name string, data json.RawMessage, actor string) (*answer[json.RawMessage], error) {
	before, err := a.deployments.SimFaults(name)
	if err == nil {
		err = a.deployments.SetSimFaults(name, data)
	}
	if err != nil {
		return nil, err
	}
	after, err := a.simFaults(name)
	if err == nil {
		err = a.service.RecordSimFaults(ctx, name, after.Body, actor)
	}
	if err != nil {
		return nil, errors.Join(err, a.deployments.SetSimFaults(name, before))
	}
	return after, nil
}

func (a *API) simFaults(name string) (*answer[json.RawMessage], error) {
	faults, err := a.deployments.SimFaults(name)
	if err != nil {
		return nil, err
	}
	return &answer[json.RawMessage]{faults}, nil
}
