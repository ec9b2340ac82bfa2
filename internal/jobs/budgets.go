package jobs

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
)

// Tenants returns all tenants by name, each with its budget and those of its keys.
func (s *Service) Tenants(ctx context.Context) ([]forebay.Tenant, error) {
	return s.tenantsNamed(ctx, "")
}

// Tenant returns one; CodeNotFound if nothing was ever done in its name.
func (s *Service) Tenant(ctx context.Context, name string) (forebay.Tenant, error) {
	if name == "" {
		return forebay.Tenant{}, forebay.ErrNotFound
	}
	list, err := s.tenantsNamed(ctx, name)
	if err == nil && len(list) == 0 {
		err = forebay.ErrNotFound
	}
	if err != nil {
		return forebay.Tenant{}, err
	}
	list[0].Limits, err = s.limits.Used(ctx, name)
	return list[0], err
}

// tenantsNamed returns the tenant of that name, or all ("").
func (s *Service) tenantsNamed(ctx context.Context, name string) ([]forebay.Tenant, error) {
	known, err := s.tenants.Tenants(ctx, name)
	if err != nil {
		return nil, err
	}
	rows, now, err := s.store.Admission.BudgetRows(ctx, name, true)
	if err != nil {
		return nil, err
	}
	byTenant := map[string][]admission.BudgetRow{}
	for _, row := range rows {
		byTenant[row.Tenant] = append(byTenant[row.Tenant], row)
	}
	holding, err := s.store.Admission.Holding(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]forebay.Tenant, len(known))
	for i, row := range known {
		t := tenantOf(row.Name, byTenant[row.Name], now)
		if t.Paused, t.Concurrency = row.Paused, int(row.Concurrency); row.Concurrency > 0 {
			running := holding.Slots.OfTenant(row.No)
			t.Running = &running
		}
		list[i] = t
	}
	return list, nil
}

// PauseTenant lets no further job of a tenant start, or lets them start again.
func (s *Service) PauseTenant(ctx context.Context, name string, paused bool, actor string) (forebay.Tenant, error) {
	t, err := s.Tenant(ctx, name)
	if err != nil || t.Paused == paused {
		return t, err
	}
	no, err := s.store.EnsureTenant(ctx, name)
	if err != nil {
		return t, err
	}
	action := "resume-tenant"
	if paused {
		action = "pause-tenant"
	}
	if err := s.store.SetTenantPaused(ctx, no, paused, audit.Act{Tenant: name, Actor: actor, Action: action, Target: "tenant " + name}); err != nil {
		return t, err
	}
	t.Paused = paused
	return t, nil
}

func tenantOf(name string, rows []admission.BudgetRow, now int64) forebay.Tenant {
	t := forebay.Tenant{Name: name, BudgetState: forebay.BudgetState{Usage: admission.NoUse(now)}, Keys: []forebay.KeyBudget{}}
	for _, row := range rows {
		if row.KeyID == "" {
			t.BudgetState = row.BudgetState
		} else {
			t.Keys = append(t.Keys, forebay.KeyBudget{KeyID: row.KeyID, BudgetState: row.BudgetState})
		}
	}
	return t
}

// SetTenant sets what settings says of a tenant, which need not exist before.
func (s *Service) SetTenant(ctx context.Context, name string, settings forebay.TenantSettings, actor string) (forebay.Tenant, error) {
	if !forebay.ValidName(name) {
		return forebay.Tenant{}, forebay.Invalid("tenant", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
	}
	if err := settings.Check(); err != nil {
		return forebay.Tenant{}, err
	}
	no, err := s.store.EnsureTenant(ctx, name)
	if err != nil {
		return forebay.Tenant{}, err
	}
	var entries []audit.Act
	if settings.Budget != nil {
		entries = append(entries, audit.Act{Tenant: name, Actor: actor, Action: "set-budget", Target: "tenant " + name, Detail: budgetDetail(*settings.Budget)})
	}
	if settings.Concurrency != nil {
		entries = append(entries, audit.Act{Tenant: name, Actor: actor, Action: "set-concurrency", Target: "tenant " + name, Detail: strconv.Itoa(*settings.Concurrency)})
	}
	if settings.Limits != nil {
		detail, err := json.Marshal(settings.Limits)
		if err != nil {
			return forebay.Tenant{}, err
		}
		entries = append(entries, audit.Act{Tenant: name, Actor: actor, Action: "set-limits", Target: "tenant " + name, Detail: string(detail)})
	}
	if err := s.tenants.SetTenant(ctx, no, settings, entries...); err != nil {
		return forebay.Tenant{}, err
	}
	s.limits.Forget(name)
	return s.Tenant(ctx, name)
}

// SetKeyBudget replaces the budget of an API key: it counts jobs that are submitted with it from then on.
func (s *Service) SetKeyBudget(ctx context.Context, id string, budget forebay.Budget, actor string) (forebay.APIKey, error) {
	if err := budget.Check(""); err != nil {
		return forebay.APIKey{}, err
	}
	key, err := s.apiKeys.SetKeyBudget(ctx, id, budget, audit.Act{Actor: actor, Action: "set-budget", Target: id, Detail: budgetDetail(budget)})
	s.keys.clear()
	return key, err
}

func budgetDetail(b forebay.Budget) string {
	text, err := json.Marshal(b)
	if err != nil {
		return ""
	}
	return string(text)
}

// ConfigureTenants takes in what the configuration says of tenants' budgets, concurrency and limits.
func (s *Service) ConfigureTenants(ctx context.Context, budgets map[string]forebay.Budget, concurrency map[string]int, limits map[string]forebay.TenantLimits) error {
	byNo, most, limited := map[int64]forebay.Budget{}, map[int64]int64{}, map[int64]forebay.TenantLimits{}
	for name, l := range limits {
		no, err := s.store.EnsureTenant(ctx, name)
		if err != nil {
			return err
		}
		limited[no] = l
	}
	for name, b := range budgets {
		no, err := s.store.EnsureTenant(ctx, name)
		if err != nil {
			return err
		}
		byNo[no] = b
	}
	for name, n := range concurrency {
		no, err := s.store.EnsureTenant(ctx, name)
		if err != nil {
			return err
		}
		most[no] = int64(n)
	}
	if err := s.store.Admission.ConfigureBudgets(ctx, byNo); err != nil {
		return err
	}
	if err := s.store.Admission.ConfigureConcurrency(ctx, most); err != nil {
		return err
	}
	return s.tenants.ConfigureLimits(ctx, limited)
}

// TidyBudgets forgets what nobody asks for any more.
func (s *Service) TidyBudgets(ctx context.Context) error { return s.store.Admission.TidyBudgets(ctx) }
