package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type workflowPath struct {
	Workflow string `path:"workflow" maxLength:"64"`
}

// routeWorkflows registers the declared workflows. All tenants may start them.
func (a orchestrationRoutes) routeWorkflows() {
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-workflows", Method: http.MethodGet, Path: "/v1/workflows", Tags: []string{"orchestrations"}, Summary: "List the declared workflows",
		Description: "Those of the configuration, by name. A workflow is started as an orchestration of its name.",
	}, func(context.Context, *call, *none) (*answer[forebay.Page[forebay.Workflow]], error) {
		all := slices.Clone(a.workflows)
		for i := range all {
			all[i].Text = ""
		}
		return pageAnswer(page(all), nil)
	})
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "get-workflow", Method: http.MethodGet, Path: "/v1/workflows/{workflow}", Tags: []string{"orchestrations"},
		Summary: "Get a declared workflow with its text",
	}, func(_ context.Context, _ *call, in *workflowPath) (*answer[forebay.Workflow], error) {
		if i := slices.IndexFunc(a.workflows, func(w forebay.Workflow) bool { return w.Name == in.Workflow }); i >= 0 {
			return answerOf(a.workflows[i], nil)
		}
		return answerOf(forebay.Workflow{}, error(forebay.ErrNotFound))
	})
}
