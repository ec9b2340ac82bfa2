package server

import (
	"context"
	"log/slog"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/telemetry"
)

// check also refuses values that cannot become an amount of money.
func (b Budget) check(field string) error {
	const most = float64(forebay.MaxBudgetUSD) / float64(forebay.Dollar)
	for name, usd := range map[string]*float64{"daily_usd": b.DailyUSD, "monthly_usd": b.MonthlyUSD} {
		if usd != nil && !(*usd >= 0 && *usd <= most) {
			return forebay.Invalid(field+name, "goes from 0 to a billion US dollars")
		}
	}
	return b.stated().Check(field)
}

func (b Budget) stated() forebay.Budget {
	usd := func(dollars *float64) *forebay.Money {
		if dollars == nil {
			return nil
		}
		m := forebay.USD(*dollars)
		return &m
	}
	return forebay.Budget{DailyUSD: usd(b.DailyUSD), MonthlyUSD: usd(b.MonthlyUSD), DailyTokens: b.DailyTokens, MonthlyTokens: b.MonthlyTokens}
}

// watchTenants logs events of budgets and applies the configuration of tenants.
func (s *Server) watchTenants(ctx context.Context) error {
	s.store.Admission.OnBudgetEvent(func(e forebay.BudgetEvent) {
		about := []any{slog.String("tenant", e.Tenant), slog.String("key_id", e.KeyID), slog.String("period", string(e.Period)),
			slog.Time("ends_at", e.EndsAt), slog.Int64("tokens", e.Tokens), slog.String("cost_usd", e.CostUSD.String())}
		if e.Type == forebay.EventBudgetExhausted {
			s.log.Warn("a budget is used up; jobs wait for it", about...)
			return
		}
		s.log.Warn("most of a budget is used", about...)
	})
	return s.configureTenants(ctx, s.options.Tenants)
}

// configureTenants applies the configuration of tenants.
func (s *Server) configureTenants(ctx context.Context, tenants map[string]Tenant) error {
	budgets, concurrency, limits := map[string]forebay.Budget{}, map[string]int{}, map[string]forebay.TenantLimits{}
	for name, t := range tenants {
		if b := t.Budget.stated(); !b.Empty() {
			budgets[name] = b
		}
		if t.Concurrency > 0 {
			concurrency[name] = t.Concurrency
		}
		if t.Limits != (forebay.TenantLimits{}) {
			limits[name] = t.Limits
		}
	}
	return s.tenants.Configure(ctx, budgets, concurrency, limits)
}

// budgetUse returns the measurements of the budgets of tenants and their keys.
func (s *Server) budgetUse(ctx context.Context) (all []telemetry.BudgetUse, err error) {
	rows, _, err := s.store.Admission.BudgetRows(ctx, "", true)
	for _, row := range rows {
		money, tokens := []*forebay.Money{row.Budget.DailyUSD, row.Budget.MonthlyUSD}, []*int64{row.Budget.DailyTokens, row.Budget.MonthlyTokens}
		for i, use := range row.Usage {
			one := telemetry.BudgetUse{Tenant: row.Tenant, Key: row.KeyID, Period: string(use.Period)}
			if limit := money[i]; limit != nil {
				one.Limit, one.Used = limit.Dollars(), (use.CostUSD + use.HeldUSD).Dollars()
				all = append(all, one)
			}
			if limit := tokens[i]; limit != nil {
				one.Tokens, one.Limit, one.Used = true, float64(*limit), float64(use.Tokens+use.HeldTokens)
				all = append(all, one)
			}
		}
	}
	return all, err
}
