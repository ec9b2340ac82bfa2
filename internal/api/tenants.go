package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
)

type tenantPath struct {
	Tenant string `path:"tenant" doc:"name of the tenant"`
}

func (a *API) routeTenants() {
	tags := []string{"tenants"}
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-tenants", Method: http.MethodGet, Path: "/v1/tenants", Tags: tags, Summary: "List tenants, with their budgets",
	}, func(ctx context.Context, _ *call, _ *none) (*answer[forebay.Page[forebay.Tenant]], error) {
		tenants, err := a.tenants.List(ctx)
		return pageAnswer(page(tenants), err)
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "get-tenant", Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Tags: tags,
		Summary: "Get a tenant: its budget, its limits, and what is used of them",
	}, func(ctx context.Context, _ *call, in *tenantPath) (*answer[forebay.Tenant], error) {
		return answerOf(a.tenants.Get(ctx, in.Tenant))
	})
	routeBody(a, forebay.ScopeAdmin, conditions.Take(huma.Operation{
		OperationID: "set-tenant", Method: http.MethodPut, Path: "/v1/tenants/{tenant}", Tags: tags, Summary: "Set the budget of a tenant, its concurrency, or its limits",
		Description: "What is left out stays as it is. A budget replaces the one before: a limit that is left out is none. Jobs that wait for what has room now go on.",
	}, false), smallBody, func(ctx context.Context, c *call, in *tenantPath, req forebay.TenantSettings) (*answer[forebay.Tenant], error) {
		return answerOf(a.tenants.Set(ctx, in.Tenant, req, c.actor()))
	})
	routeNoBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "pause-tenant", Method: http.MethodPost, Path: "/v1/tenants/{tenant}/pause", Tags: tags, Summary: "Pause a tenant",
		Description: "None of its jobs starts in any queue; calls in flight finish, and jobs are still taken in. A pause outlives a restart.",
	}, func(ctx context.Context, c *call, in *tenantPath) (*answer[forebay.Tenant], error) {
		return answerOf(a.tenants.Pause(ctx, in.Tenant, true, c.actor()))
	})
	routeNoBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "resume-tenant", Method: http.MethodPost, Path: "/v1/tenants/{tenant}/resume", Tags: tags, Summary: "Resume a tenant",
	}, func(ctx context.Context, c *call, in *tenantPath) (*answer[forebay.Tenant], error) {
		return answerOf(a.tenants.Pause(ctx, in.Tenant, false, c.actor()))
	})
	routeBody(a, forebay.ScopeAdmin, conditions.Take(huma.Operation{
		OperationID: "set-key-budget", Method: http.MethodPut, Path: "/v1/keys/{id}/budget", Tags: []string{"keys"}, Summary: "Set the budget of an API key",
		Description: "It replaces the one before, and counts jobs that are submitted with the key from then on.",
	}, false), smallBody, func(ctx context.Context, c *call, in *keyPath, req forebay.Budget) (*answer[forebay.APIKey], error) {
		return answerOf(a.keys.SetBudget(ctx, in.ID, req, c.actor()))
	})
}
