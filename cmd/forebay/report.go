package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

func reports(a *command.App) *cobra.Command {
	return command.Group(&cobra.Command{Use: "report", Short: "Reports over many jobs"}, reportRetries(a))
}

func reportRetries(a *command.App) *cobra.Command {
	var since, until *time.Time
	c := a.APICommand(&cobra.Command{
		Use: "retries", Short: "How often are jobs retried, does it help, and where do calls fail",
		Example: `  forebay report retries --since 7d
  forebay report retries --since 2030-01-02T00:00:00Z --until 2030-01-03T00:00:00Z -o json`,
	}, func(c *command.Call) error {
		from, to := c.Now().Add(-24*time.Hour).UTC(), time.Time{}
		if since != nil {
			from = *since
		} else if c.Flags.Changed("since") {
			return command.Usagef("--since must be a duration such as 7d, or a time")
		}
		if until != nil {
			to = *until
		}
		report, err := c.API.RetryReport(c.Ctx, from, to)
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return c.PrintJSON(report)
		}
		return printRetries(c, report)
	})
	a.PastFlag(c.Flags(), &since, "since", "begin so long ago, or at this time (default 24h)")
	a.PastFlag(c.Flags(), &until, "until", "end so long ago, or at this time (default: now)")
	return c
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
