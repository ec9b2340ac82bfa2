// Package reports has the commands that report on many jobs.
package reports

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// Commands returns the group of these commands.
func Commands(a *command.App) *cobra.Command {
	return command.Group(&cobra.Command{Use: "report", Short: "Reports over many jobs"}, usage(a), retries(a))
}

// period are the flags that say what time a report covers.
type period struct{ since, until *time.Time }

func (p *period) flags(a *command.App, c *cobra.Command) {
	a.PastFlag(c.Flags(), &p.since, "since", "begin so long ago, or at this time (default 24h)")
	a.PastFlag(c.Flags(), &p.until, "until", "end so long ago, or at this time (default: now)")
}

// bounds returns the time, whose end is zero if it is now.
func (p *period) bounds(c *command.Call) (from, to time.Time, err error) {
	from = c.Now().Add(-24 * time.Hour).UTC()
	if p.since != nil {
		from = *p.since
	} else if c.Flags.Changed("since") {
		return from, to, command.Usagef("--since must be a duration such as 7d, or a time")
	}
	if p.until != nil {
		to = *p.until
	}
	return from, to, nil
}

func usage(a *command.App) *cobra.Command {
	var when period
	var by []string
	cmd := &cobra.Command{
		Use: "usage", Short: "What was called, how it ended, and what it used and cost",
		Example: `  forebay report usage --since 30d --by task,model --step day
  forebay report usage --since 7d --by tenant --all-tenants`,
	}
	cmd.Flags().StringSliceVar(&by, "by", nil, "tell apart by these: tenant, task, model, deployment")
	step := cmd.Flags().String("step", string(forebay.UsageWhole), "a row for each hour or day, or for the whole time: hour, day, all")
	var all bool
	command.AllTenantsFlag(cmd.Flags(), &all)
	a.APICommand(cmd, func(c *command.Call) error {
		from, to, err := when.bounds(c)
		if err != nil {
			return err
		}
		query := forebay.UsageQuery{Since: from, Until: to, Step: forebay.UsageStep(*step), AllTenants: all}
		for _, dimension := range by {
			query.By = append(query.By, forebay.UsageBy(dimension))
		}
		if err := query.Check(); err != nil {
			return command.Usagef("%v", err)
		}
		report, err := c.API.Usage(c.Ctx, query)
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return c.PrintJSON(report)
		}
		return command.PrintList(c.App, report.Rows, usageColumns(c, query))
	})
	when.flags(a, cmd)
	return cmd
}

func usageColumns(c *command.Call, q forebay.UsageQuery) command.View[forebay.UsageRow] {
	return func(r forebay.UsageRow) (fields []command.Field) {
		switch q.Step {
		case forebay.UsageHourly:
			fields = append(fields, command.Field{"HOUR", r.Time.In(c.Zone).Format("2006-01-02 15:04")})
		case forebay.UsageDaily:
			fields = append(fields, command.Field{"DAY (UTC)", r.Time.UTC().Format("2006-01-02")})
		}
		for _, by := range q.By {
			value := map[forebay.UsageBy]*string{
				forebay.UsageByTenant: r.Tenant, forebay.UsageByTask: r.Task, forebay.UsageByModel: r.Model, forebay.UsageByDeployment: r.Deployment,
			}[by]
			fields = append(fields, command.Field{strings.ToUpper(string(by)), command.OrEmpty(value)})
		}
		return append(fields,
			command.Field{"CALLS", command.Count(r.Attempts)}, command.Field{"SUCCEEDED", command.Count(r.Succeeded)},
			command.Field{"FAILED", command.Count(r.Failed)}, command.Field{"THROTTLED", command.Count(r.Throttled)},
			command.Field{"INPUT", command.Count(r.InputTokens)}, command.Field{"OUTPUT", command.Count(r.OutputTokens)},
			command.Field{"USD", r.CostUSD.String()})
	}
}

func retries(a *command.App) *cobra.Command {
	var when period
	cmd := &cobra.Command{
		Use: "retries", Short: "How often are jobs retried, does it help, and where do calls fail",
		Example: `  forebay report retries --since 7d
  forebay report retries --since 2030-01-02T00:00:00Z --until 2030-01-03T00:00:00Z -o json`,
	}
	var all bool
	command.AllTenantsFlag(cmd.Flags(), &all)
	a.APICommand(cmd, func(c *command.Call) error {
		from, to, err := when.bounds(c)
		if err != nil {
			return err
		}
		ask := c.API.RetryReport
		if all {
			ask = c.API.RetryReportOfAll
		}
		report, err := ask(c.Ctx, from, to)
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return c.PrintJSON(report)
		}
		return printRetries(c, report)
	})
	when.flags(a, cmd)
	return cmd
}

func printRetries(c *command.Call, r forebay.RetryReport) error {
	attempts := func(name string, n int64) command.Field {
		return command.Field{name, command.Count(n) + command.Percent(n, r.Attempts)}
	}
	jobs := func(name string, n int64) command.Field {
		return command.Field{name, command.Count(n) + command.Percent(n, r.JobsRetried)}
	}
	if err := c.PrintOne(r, []command.Field{
		{"since", c.When(r.Since)},
		{"until", c.When(r.Until)},
		{"attempts", command.Count(r.Attempts)},
		attempts("  succeeded", r.Succeeded),
		attempts("  retried", r.Retried),
		attempts("  failed", r.Failed),
		attempts("  throttled", r.Throttled),
		attempts("  lost", r.Lost),
		attempts("  cancelled", r.Cancelled),
		{"jobs retried", command.Count(r.JobsRetried)},
		jobs("  then succeeded", r.JobsRetriedSucceeded),
		jobs("  then failed", r.JobsRetriedFailed),
	}); err != nil {
		return err
	}
	if err := command.PrintSection(c.App, r.ByAttempt, func(n forebay.AttemptCount) []command.Field {
		return []command.Field{{"ATTEMPT", strconv.Itoa(n.Number)}, {"SUCCEEDED", command.Count(n.Succeeded)}, {"FAILED", command.Count(n.Failed)}}
	}); err != nil {
		return err
	}
	if err := command.PrintSection(c.App, r.ByError, func(e forebay.ErrorRetries) []command.Field {
		return []command.Field{{"ERROR", e.Code}, {"CLASS", string(e.Class)}, {"FAILED", command.Count(e.Failed)}, {"RETRIED", command.Count(e.Retried)}}
	}); err != nil {
		return err
	}
	if err := command.PrintSection(c.App, r.ByDeployment, errorColumns("DEPLOYMENT")); err != nil {
		return err
	}
	if err := command.PrintSection(c.App, r.ByTask, errorColumns("TASK")); err != nil {
		return err
	}
	return command.PrintSection(c.App, r.ByHour, func(h forebay.HourCount) []command.Field {
		return []command.Field{
			{"HOUR", h.Hour.In(c.Zone).Format("2006-01-02 15:04")}, {"ATTEMPTS", command.Count(h.Attempts)},
			{"FAILED", command.Count(h.Failed)}, {"THROTTLED", command.Count(h.Throttled)},
		}
	})
}

func errorColumns(by string) func(forebay.ErrorCount) []command.Field {
	return func(e forebay.ErrorCount) []command.Field {
		return []command.Field{{by, e.Name}, {"ERROR", e.Code}, {"CLASS", string(e.Class)}, {"COUNT", command.Count(e.Count)}}
	}
}
