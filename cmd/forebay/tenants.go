package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) tenants() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List tenants, with what they have used of their budgets", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			tenants, err := api.Tenants(c.Context())
			if err != nil {
				return err
			}
			return printList(a, all(tenants), 0, []column[forebay.Tenant]{
				{"TENANT", func(t forebay.Tenant) string { return t.Name }},
				{"STATE", tenantState},
				{"RUNNING", runningText},
				{"BUDGET", func(t forebay.Tenant) string { return budgetText(t.Budget) }},
				{"TODAY", func(t forebay.Tenant) string { return useText(t.Usage[0]) }},
				{"MONTH", func(t forebay.Tenant) string { return useText(t.Usage[1]) }},
				{"WAIT FOR BUDGET", func(t forebay.Tenant) string { return count(t.Waiting) }},
			})
		},
	}
	return a.group("tenants", "Look at tenants, pause and resume them, set their budgets, concurrency and limits", "", list,
		a.tenantCommand("show", "Show a tenant's budget, those of its keys, its limits, and what is used of them", (*client.Client).Tenant), a.tenantsSetBudget(), a.tenantsSetConcurrency(), a.tenantsSetLimits(),
		a.tenantCommand("pause", "Let no further job of a tenant start; calls in flight finish", (*client.Client).PauseTenant),
		a.tenantCommand("resume", "Let a paused tenant's jobs start again", (*client.Client).ResumeTenant))
}

func (a *app) tenantCommand(verb, short string, do func(*client.Client, context.Context, string) (forebay.Tenant, error)) *cobra.Command {
	return a.about("TENANT", verb, short, "  forebay tenants "+verb+" acme", func(ctx context.Context, api *client.Client, name string) error {
		tenant, err := do(api, ctx, name)
		if err != nil {
			return err
		}
		return a.printTenant(tenant)
	})
}

func (a *app) tenantsSetBudget() *cobra.Command {
	var budget budgetFlags
	c := &cobra.Command{
		Use: "set-budget TENANT", Short: "Set what a tenant may use", Args: arguments(1, "TENANT"),
		Long: `Set what a tenant may use in a calendar day and a calendar month of UTC. It replaces the budget before:
a limit that is not given is none. Jobs that wait for it go on if there is room now.`,
		Example: "  forebay tenants set-budget acme --daily-usd 50 --monthly-usd 1000",
		RunE: func(c *cobra.Command, args []string) error {
			limits, err := budget.replace(c.Flags())
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			tenant, err := api.SetBudget(c.Context(), args[0], limits)
			if err != nil {
				return err
			}
			return a.printTenant(tenant)
		},
	}
	budget.registerReplacing(c.Flags())
	return c
}

func (a *app) tenantsSetConcurrency() *cobra.Command {
	return &cobra.Command{
		Use: "set-concurrency TENANT NUMBER", Short: "Set how many of a tenant's jobs run at once", Args: arguments(2, "TENANT", "NUMBER"),
		Long: `Set how many of a tenant's jobs run at once, over all queues and processes; 0 is no limit. Jobs beyond it wait;
calls in flight finish.`,
		Example: "  forebay tenants set-concurrency acme 8",
		RunE: func(c *cobra.Command, args []string) error {
			most, err := strconv.Atoi(args[1])
			if err != nil || most < 0 || most > forebay.MaxTenantConcurrency {
				return usagef("NUMBER goes from 0, which is no limit, to %d; %.40q does not", forebay.MaxTenantConcurrency, args[1])
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			tenant, err := api.SetConcurrency(c.Context(), args[0], most)
			if err != nil {
				return err
			}
			return a.printTenant(tenant)
		},
	}
}

func (a *app) tenantsSetLimits() *cobra.Command {
	var limits forebay.TenantLimits
	values := map[forebay.LimitName]*int64{}
	var standard bool
	c := &cobra.Command{
		Use: "set-limits TENANT", Short: "Set what a tenant may have and do", Args: arguments(1, "TENANT"),
		Long: `Set what a tenant may have and do. It replaces what was set before: a limit that is not given is the default,
or what limits.tenant in the configuration says. 0 is no limit. What is there already stays.`,
		Example: "  forebay tenants set-limits acme --waiting-jobs 50000 --key-requests-per-second 100",
		RunE: func(c *cobra.Command, args []string) error {
			given := false
			for _, name := range forebay.LimitNames() {
				if !c.Flags().Changed(limitFlag(name)) {
					continue
				}
				if n := *values[name]; n < 0 || n > forebay.MaxTenantLimit {
					return usagef("--%s goes from 0, which is no limit, to %d", limitFlag(name), int64(forebay.MaxTenantLimit))
				}
				*limits.Field(name), given = values[name], true
			}
			switch {
			case given && standard:
				return usagef("--default goes with no limit")
			case !given && !standard:
				return usagef("say which limits to set, such as --waiting-jobs 50000, or --default for the defaults of all")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			tenant, err := api.SetLimits(c.Context(), args[0], limits)
			if err != nil {
				return err
			}
			return a.printTenant(tenant)
		},
	}
	for _, name := range forebay.LimitNames() {
		values[name] = c.Flags().Int64(limitFlag(name), 0, fmt.Sprintf("%s (default %d)", name.About(), forebay.TenantLimits{}.Of(name)))
	}
	c.Flags().BoolVar(&standard, "default", false, "the defaults of all limits")
	return c
}

func limitFlag(name forebay.LimitName) string { return strings.ReplaceAll(string(name), "_", "-") }

// limitText is what is used of a limit.
func limitText(l forebay.LimitUse) string {
	switch {
	case l.Limit == 0 && l.Used == nil:
		return "no limit"
	case l.Limit == 0:
		return fmt.Sprintf("%d, no limit", *l.Used)
	case l.Used == nil:
		return strconv.FormatInt(l.Limit, 10)
	}
	return fmt.Sprintf("%d of %d", *l.Used, l.Limit)
}

func tenantState(t forebay.Tenant) string {
	if t.Paused {
		return "paused"
	}
	return "active"
}

// runningText is how many of a tenant's jobs run, and how many may, where that is limited.
func runningText(t forebay.Tenant) string {
	if t.Running == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d", *t.Running, t.Concurrency)
}

func (a *app) printTenant(t forebay.Tenant) error {
	rows := [][2]string{{"tenant", t.Name}, {"state", tenantState(t)}}
	if t.Running != nil {
		rows = append(rows, [2]string{"running", runningText(t)})
	}
	rows = append(rows, budgetRows("", t.BudgetState)...)
	if t.SetBy != "" {
		rows = append(rows, [2]string{"budget set by", t.SetBy + ", " + a.agePtr(t.UpdatedAt)})
	}
	for _, k := range t.Keys {
		rows = append(rows, budgetRows(k.KeyID+" ", k.BudgetState)...)
	}
	for _, l := range t.Limits {
		rows = append(rows, [2]string{strings.ReplaceAll(string(l.Name), "_", " "), limitText(l)})
	}
	return a.printOne(t, rows)
}

func budgetRows(prefix string, s forebay.BudgetState) [][2]string {
	return [][2]string{
		{prefix + "budget", budgetText(s.Budget)},
		{prefix + "today", useText(s.Usage[0])},
		{prefix + "month", useText(s.Usage[1])},
		{prefix + "waiting for it", count(s.Waiting)},
	}
}

// useText is what was used in a period, and what is held.
func useText(u forebay.BudgetUse) string {
	text := fmt.Sprintf("%s USD, %d tokens", u.CostUSD, u.Tokens)
	if u.HeldTokens != 0 || u.HeldUSD != 0 {
		text += fmt.Sprintf(" (held: %s USD, %d tokens)", u.HeldUSD, u.HeldTokens)
	}
	return text
}

// budgetText is a budget in a line.
func budgetText(b forebay.Budget) string {
	var parts []string
	for _, usd := range []struct {
		amount *forebay.Money
		per    string
	}{{b.DailyUSD, "day"}, {b.MonthlyUSD, "month"}} {
		if usd.amount != nil {
			parts = append(parts, fmt.Sprintf("%s USD/%s", *usd.amount, usd.per))
		}
	}
	for _, tokens := range []struct {
		amount *int64
		per    string
	}{{b.DailyTokens, "day"}, {b.MonthlyTokens, "month"}} {
		if tokens.amount != nil {
			parts = append(parts, fmt.Sprintf("%d tokens/%s", *tokens.amount, tokens.per))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func keyBudget(k forebay.APIKey) string {
	if k.Budget == nil {
		return ""
	}
	return budgetText(*k.Budget)
}

// budgetFlags are the limits of a budget.
type budgetFlags struct {
	dailyUSD, monthlyUSD       float64
	dailyTokens, monthlyTokens int64
	none                       bool
}

func (b *budgetFlags) register(flags *pflag.FlagSet) {
	flags.Float64Var(&b.dailyUSD, "daily-usd", 0, "US dollars a day (default: no limit)")
	flags.Float64Var(&b.monthlyUSD, "monthly-usd", 0, "US dollars a month (default: no limit)")
	flags.Int64Var(&b.dailyTokens, "daily-tokens", 0, "tokens a day, input and output together (default: no limit)")
	flags.Int64Var(&b.monthlyTokens, "monthly-tokens", 0, "tokens a month (default: no limit)")
}

// registerReplacing is register for a command that replaces a budget: an empty one must be meant.
func (b *budgetFlags) registerReplacing(flags *pflag.FlagSet) {
	b.register(flags)
	flags.BoolVar(&b.none, "none", false, "no limit at all")
}

// replace returns the limits that were given, or none if that was said.
func (b *budgetFlags) replace(flags *pflag.FlagSet) (limits forebay.Budget, err error) {
	limits, err = b.read(flags)
	switch {
	case err != nil:
		return limits, err
	case limits.Empty() && !b.none:
		return limits, usagef("say what the budget is, such as --daily-usd 50, or --none for no limit")
	case !limits.Empty() && b.none:
		return limits, usagef("--none goes with no limit")
	}
	return limits, nil
}

// read returns the limits that were given: 0 is one.
func (b *budgetFlags) read(flags *pflag.FlagSet) (limits forebay.Budget, err error) {
	const most = float64(forebay.MaxBudgetUSD) / float64(forebay.Dollar)
	for name, usd := range map[string]struct {
		given float64
		limit **forebay.Money
	}{"daily-usd": {b.dailyUSD, &limits.DailyUSD}, "monthly-usd": {b.monthlyUSD, &limits.MonthlyUSD}} {
		if !flags.Changed(name) {
			continue
		}
		if !(usd.given >= 0 && usd.given <= most) {
			return limits, usagef("--%s goes from 0 to a billion US dollars", name)
		}
		m := forebay.USD(usd.given)
		*usd.limit = &m
	}
	for name, tokens := range map[string]struct {
		given int64
		limit **int64
	}{"daily-tokens": {b.dailyTokens, &limits.DailyTokens}, "monthly-tokens": {b.monthlyTokens, &limits.MonthlyTokens}} {
		if !flags.Changed(name) {
			continue
		}
		if tokens.given < 0 || tokens.given > forebay.MaxBudgetTokens {
			return limits, usagef("--%s goes from 0 to %d", name, int64(forebay.MaxBudgetTokens))
		}
		given := tokens.given
		*tokens.limit = &given
	}
	return limits, nil
}
