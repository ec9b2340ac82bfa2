package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// tenantCommands are the commands about tenants.
type tenantCommands struct{ *command.App }

func (a tenantCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{Use: "tenants", Short: "See tenants, pause and resume them, set their budgets and limits"},
		command.List(a.App, &cobra.Command{Use: "list", Short: "List tenants, with what they have used of their budgets"},
			command.OfServer((*client.Client).Tenants), tenantColumns),
		a.verb("show", "Show a tenant's budget, those of its keys, its limits, and their use", (*client.Client).Tenant),
		a.verb("pause", "Let no further job of a tenant start; calls in flight finish", (*client.Client).PauseTenant),
		a.verb("resume", "Let a paused tenant's jobs start again", (*client.Client).ResumeTenant),
		a.setBudget(), a.setConcurrency(), a.setLimits())
}

func (a tenantCommands) verb(verb, short string, ask command.ByName[forebay.Tenant]) *cobra.Command {
	return command.Show(a.App, &cobra.Command{Use: verb + " TENANT", Short: short}, command.OfArgument(ask), a.fields)
}

func tenantColumns(t forebay.Tenant) []command.Field {
	return []command.Field{
		{"TENANT", t.Name}, {"STATE", tenantState(t)}, {"RUNNING", runningText(t)},
		{"BUDGET", budgetText(t.Budget)}, {"TODAY", usedIn(t.BudgetState, 0)},
		{"MONTH", usedIn(t.BudgetState, 1)}, {"WAIT FOR BUDGET", command.Count(t.Waiting)},
	}
}

func (a tenantCommands) fields(t forebay.Tenant) []command.Field {
	fields := []command.Field{{"tenant", t.Name}, {"state", tenantState(t)}, {"running", runningText(t)}}
	fields = append(fields, budgetFields("", t.BudgetState)...)
	if t.SetBy != "" {
		fields = append(fields, command.Field{"budget set by", t.SetBy + ", " + a.AgePtr(t.UpdatedAt)})
	}
	for _, k := range t.Keys {
		fields = append(fields, budgetFields(k.KeyID+" ", k.BudgetState)...)
	}
	for _, l := range t.Limits {
		fields = append(fields, command.Field{strings.ReplaceAll(string(l.Name), "_", " "), limitText(l)})
	}
	return fields
}

func tenantState(t forebay.Tenant) string {
	if t.Paused {
		return "paused"
	}
	return "active"
}

// runningText writes how many jobs of a tenant run, and their limit if there is one.
func runningText(t forebay.Tenant) string {
	return command.IfSet(t.Running, func(running int64) string { return fmt.Sprintf("%d of %d", running, t.Concurrency) })
}

// limitText writes how much of a limit is used.
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

func (a tenantCommands) setBudget() *cobra.Command {
	c := &cobra.Command{
		Use: "set-budget TENANT", Short: "Set what a tenant may use",
		Long: `Set what a tenant may use in a calendar day and a calendar month of UTC. It replaces the budget
before: a limit that is not given is none. Jobs that wait for it go on if there is room now.`,
		Example: "  forebay tenants set-budget acme --daily-usd 50 --monthly-usd 1000",
	}
	budget := newBudget(c)
	return command.Conditional(command.Show(a.App, c, func(c *command.Call) (forebay.Tenant, error) {
		return setOf(c, func(tenant string) (forebay.Tenant, error) { return c.API.SetBudget(c.Ctx, tenant, *budget) })
	}, a.fields), false)
}

// setOf sets something of the tenant that the call names. It tells if there was no such tenant
// before: the name may be a mistake.
func setOf(c *command.Call, set func(tenant string) (forebay.Tenant, error)) (forebay.Tenant, error) {
	_, missing := c.API.Tenant(c.Ctx, c.Args[0])
	t, err := set(c.Args[0])
	if err == nil && errors.Is(missing, forebay.ErrNotFound) {
		c.Note("There was no tenant " + t.Name + " before.")
	}
	return t, err
}

func (a tenantCommands) setConcurrency() *cobra.Command {
	return command.Conditional(command.Show(a.App, &cobra.Command{
		Use: "set-concurrency TENANT NUMBER", Short: "Set how many of a tenant's jobs run at once",
		Long: `Set how many of a tenant's jobs run at once, over all queues and processes; 0 is no limit. Jobs
beyond it wait; calls in flight finish.`,
		Example: "  forebay tenants set-concurrency acme 8",
	}, func(c *command.Call) (t forebay.Tenant, err error) {
		most, err := strconv.Atoi(c.Args[1])
		if err != nil || most < 0 || most > forebay.MaxTenantConcurrency {
			return t, command.Usagef("NUMBER goes from 0, which is no limit, to %d; %.40q does not",
				forebay.MaxTenantConcurrency, c.Args[1])
		}
		return setOf(c, func(tenant string) (forebay.Tenant, error) { return c.API.SetConcurrency(c.Ctx, tenant, most) })
	}, a.fields), false)
}

func (a tenantCommands) setLimits() *cobra.Command {
	var limits forebay.TenantLimits
	var standard bool
	c := command.Show(a.App, &cobra.Command{
		Use: "set-limits TENANT", Short: "Set what a tenant may have and do",
		Long: `Set what a tenant may have and do. It replaces what was set before: a limit that is not given is
the default, or what limits.tenant in the configuration says. 0 is no limit. What is there
already stays.`,
		Example: "  forebay tenants set-limits acme --waiting-jobs 50000 --key-requests-per-second 100",
	}, func(c *command.Call) (t forebay.Tenant, err error) {
		if err := command.ExactlyOne("say which limits to set, such as --waiting-jobs 50000, or --default for the defaults of all",
			"--default goes with no limit", limits != forebay.TenantLimits{}, standard); err != nil {
			return t, err
		}
		return setOf(c, func(tenant string) (forebay.Tenant, error) { return c.API.SetLimits(c.Ctx, tenant, limits) })
	}, a.fields)
	limit := command.UpTo(forebay.MaxTenantLimit, ", which is no limit,")
	for _, name := range forebay.LimitNames() {
		command.OptionalFlag(c.Flags(), limits.Field(name), strings.ReplaceAll(string(name), "_", "-"), limit,
			fmt.Sprintf("%s (default %d)", name.About(), forebay.TenantLimits{}.Of(name)))
	}
	c.Flags().BoolVar(&standard, "default", false, "the defaults of all limits")
	return command.Conditional(c, false)
}
