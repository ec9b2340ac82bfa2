package tenant

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/limits"
)

// Service shows tenants, changes their settings and pauses them.
type Service struct {
	store     *Store
	admission *admission.Store
	limits    *limits.Meter // nil: no tenant has limits
}

// NewService returns the service of a store. limits may be nil.
func NewService(store *Store, admission *admission.Store, limits *limits.Meter) *Service {
	return &Service{store: store, admission: admission, limits: limits}
}

// List returns all tenants by name, each with its budget and those of its keys.
func (s *Service) List(ctx context.Context) ([]forebay.Tenant, error) {
	return s.named(ctx, "")
}

// Get returns a tenant; CodeNotFound if nothing was ever done in its name.
func (s *Service) Get(ctx context.Context, name string) (forebay.Tenant, error) {
	if name == "" {
		return forebay.Tenant{}, forebay.ErrNotFound
	}
	list, err := s.named(ctx, name)
	if err == nil && len(list) == 0 {
		err = forebay.ErrNotFound
	}
	if err != nil {
		return forebay.Tenant{}, err
	}
	list[0].Limits, err = s.limits.Used(ctx, name)
	return list[0], err
}

// Exists reports whether anything was ever done in the name of a tenant.
func (s *Service) Exists(ctx context.Context, name string) (bool, error) {
	return s.store.KnowsTenant(ctx, name)
}

// named returns the tenant of that name, or all (""). What the entity tag is about is read with it
// or after it, so that nobody is told of the tag of a newer state.
func (s *Service) named(ctx context.Context, name string) ([]forebay.Tenant, error) {
	known, err := s.store.Tenants(ctx, name)
	if err != nil {
		return nil, err
	}
	rows, now, err := s.admission.BudgetRows(ctx, name, true)
	if err != nil {
		return nil, err
	}
	byTenant := map[string][]admission.BudgetRow{}
	for _, row := range rows {
		byTenant[row.Tenant] = append(byTenant[row.Tenant], row)
	}
	holding, err := s.admission.Holding(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]forebay.Tenant, len(known))
	for i, row := range known {
		t := tenantOf(row.Name, byTenant[row.Name], now)
		t.ETag = row.ETag
		if t.Paused, t.Concurrency = row.Paused, int(row.Concurrency); row.Concurrency > 0 {
			running := holding.Concurrency.OfTenant(row.No)
			t.Running = &running
		}
		list[i] = t
	}
	return list, nil
}

// Pause stops new jobs of a tenant from starting, or lets them start again.
func (s *Service) Pause(ctx context.Context, name string, paused bool, actor string) (forebay.Tenant, error) {
	t, err := s.Get(ctx, name)
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

// Set changes a tenant's settings. The tenant need not exist before, unless there is a condition.
func (s *Service) Set(ctx context.Context, name string, settings forebay.TenantSettings, actor string) (forebay.Tenant, error) {
	if !forebay.ValidName(name) {
		return forebay.Tenant{}, forebay.Invalid("tenant", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
	}
	if err := settings.Check(); err != nil {
		return forebay.Tenant{}, err
	}
	if condition := forebay.ConditionOf(ctx); !condition.Empty() {
		known, err := s.store.KnowsTenant(ctx, name)
		if err == nil && !known {
			err = condition.Check("")
		}
		if err != nil {
			return forebay.Tenant{}, err
		}
	}
	no, err := s.store.EnsureTenant(ctx, name)
	if err != nil {
		return forebay.Tenant{}, err
	}
	var entries []audit.Act
	if settings.Budget != nil {
		entries = append(entries, audit.Act{Tenant: name, Actor: actor, Action: "set-budget", Target: "tenant " + name, Detail: admission.BudgetDetail(*settings.Budget)})
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
	if err := s.store.SetTenant(ctx, no, settings, entries...); err != nil {
		return forebay.Tenant{}, err
	}
	s.limits.Forget(name)
	return s.Get(ctx, name)
}

// Configure takes in the configured budgets, concurrency limits and limits of tenants.
func (s *Service) Configure(ctx context.Context, budgets map[string]forebay.Budget, concurrency map[string]int, limits map[string]forebay.TenantLimits) error {
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
	if err := s.admission.ConfigureBudgets(ctx, byNo); err != nil {
		return err
	}
	if err := s.admission.ConfigureConcurrency(ctx, most); err != nil {
		return err
	}
	return s.store.ConfigureLimits(ctx, limited)
}
