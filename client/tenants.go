package client

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
)

// tenants is the part of Client about tenants.
type tenants struct{ *endpoint }

// Tenants returns all tenants, with their budgets.
func (c *tenants) Tenants(ctx context.Context) ([]forebay.Tenant, error) {
	return items[forebay.Tenant](ctx, c.endpoint, path("tenants"))
}

// Tenant returns one tenant with its budget, its usage and the number of jobs that wait for the
// budget.
func (c *tenants) Tenant(ctx context.Context, name string) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodGet, name, nil)
}

// SetBudget replaces the budget of a tenant. A nil field means no limit.
func (c *tenants) SetBudget(ctx context.Context, tenant string, budget forebay.Budget) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodPut, tenant, forebay.TenantSettings{Budget: &budget})
}

// SetConcurrency limits how many jobs of a tenant run at once in all queues and processes. 0 means
// no limit. Running calls finish.
func (c *tenants) SetConcurrency(ctx context.Context, tenant string, most int) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodPut, tenant, forebay.TenantSettings{Concurrency: &most})
}

// SetLimits replaces the limits that are set for a tenant. A nil field means the default, and 0
// means no limit.
func (c *tenants) SetLimits(ctx context.Context, tenant string, limits forebay.TenantLimits) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodPut, tenant, forebay.TenantSettings{Limits: &limits})
}

// PauseTenant stops new jobs of a tenant from starting. Running calls finish.
func (c *tenants) PauseTenant(ctx context.Context, name string) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodPost, name, nil, "pause")
}

// ResumeTenant undoes PauseTenant.
func (c *tenants) ResumeTenant(ctx context.Context, name string) (forebay.Tenant, error) {
	return c.tenant(ctx, http.MethodPost, name, nil, "resume")
}

func (c *tenants) tenant(ctx context.Context, method, name string, body any, verb ...string) (forebay.Tenant, error) {
	var tenant forebay.Tenant
	if err := checkID("tenant", name); err != nil {
		return tenant, err
	}
	err := c.call(ctx, request{method: method, path: path(append([]string{"tenants", name}, verb...)...), body: body}, &tenant)
	return tenant, err
}
