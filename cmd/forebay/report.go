package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

func (a *app) reports() *cobra.Command {
	return group(&cobra.Command{Use: "report", Short: "Reports over many jobs"}, a.reportRetries())
}

func (a *app) reportRetries() *cobra.Command {
	var since, until *time.Time
	c := a.apiCommand(&cobra.Command{
		Use: "retries", Short: "How often are jobs retried, does it help, and where do calls fail",
		Example: `  forebay report retries --since 7d
  forebay report retries --since 2030-01-02T00:00:00Z --until 2030-01-03T00:00:00Z -o json`,
	}, func(c *call) error {
		from, to := c.now().Add(-24*time.Hour).UTC(), time.Time{}
		if since != nil {
			from = *since
		} else if c.flags.Changed("since") {
			return usagef("--since must be a duration such as 7d, or a time")
		}
		if until != nil {
			to = *until
		}
		report, err := c.api.RetryReport(c.ctx, from, to)
		if err != nil {
			return err
		}
		if a.output != outputTable {
			return a.printJSON(report)
		}
		return a.printRetries(report)
	})
	a.pastFlag(c.Flags(), &since, "since", "begin so long ago, or at this time (default 24h)")
	a.pastFlag(c.Flags(), &until, "until", "end so long ago, or at this time (default: now)")
	return c
}

func (a *app) printRetries(r forebay.RetryReport) error {
	attempts := func(name string, n int64) field { return field{name, count(n) + share(n, r.Attempts)} }
	jobs := func(name string, n int64) field { return field{name, count(n) + share(n, r.JobsRetried)} }
	if err := a.printOne(r, []field{
		{"since", a.when(r.Since)},
		{"until", a.when(r.Until)},
		{"attempts", count(r.Attempts)},
		attempts("  succeeded", r.Succeeded),
		attempts("  retried", r.Retried),
		attempts("  failed", r.Failed),
		attempts("  throttled", r.Throttled),
		attempts("  lost", r.Lost),
		attempts("  cancelled", r.Cancelled),
		{"jobs retried", count(r.JobsRetried)},
		jobs("  then succeeded", r.JobsRetriedSucceeded),
		jobs("  then failed", r.JobsRetriedFailed),
	}); err != nil {
		return err
	}
	if err := printSection(a, r.ByAttempt, func(n forebay.AttemptCount) []field {
		return []field{{"ATTEMPT", strconv.Itoa(n.Number)}, {"SUCCEEDED", count(n.Succeeded)}, {"FAILED", count(n.Failed)}}
	}); err != nil {
		return err
	}
	if err := printSection(a, r.ByDeployment, errorColumns("DEPLOYMENT")); err != nil {
		return err
	}
	if err := printSection(a, r.ByTask, errorColumns("TASK")); err != nil {
		return err
	}
	return printSection(a, r.ByHour, func(h forebay.HourCount) []field {
		return []field{
			{"HOUR", h.Hour.In(a.zone).Format("2006-01-02 15:04")}, {"ATTEMPTS", count(h.Attempts)},
			{"FAILED", count(h.Failed)}, {"THROTTLED", count(h.Throttled)},
		}
	})
}

func errorColumns(by string) func(forebay.ErrorCount) []field {
	return func(e forebay.ErrorCount) []field {
		return []field{{by, e.Name}, {"ERROR", e.Code}, {"CLASS", string(e.Class)}, {"COUNT", count(e.Count)}}
	}
}
