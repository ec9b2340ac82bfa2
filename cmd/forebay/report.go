package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

func (a *app) reports() *cobra.Command {
	var since, until string
	retries := &cobra.Command{
		Use:     "retries",
		Short:   "How often are jobs retried, does it help, and where do calls fail",
		Example: "  forebay report retries --since 7d\n  forebay report retries --since 2030-01-02T00:00:00Z --until 2030-01-03T00:00:00Z -o json",
		Args:    arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			from, err := a.parseTime("since", since, true)
			if err != nil {
				return err
			}
			if from == nil {
				return usagef("--since must be a duration such as 7d, or a time")
			}
			to, err := a.parseTime("until", until, true)
			if err != nil {
				return err
			}
			if to == nil {
				to = &time.Time{}
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			report, err := api.RetryReport(c.Context(), *from, *to)
			if err != nil {
				return err
			}
			return a.printRetries(report)
		},
	}
	retries.Flags().StringVar(&since, "since", "24h", "begin so long ago, or at this time")
	retries.Flags().StringVar(&until, "until", "", "end so long ago, or at this time (default: now)")
	return a.group("report", "Reports over many jobs", "", retries)
}

func (a *app) printRetries(r forebay.RetryReport) error {
	if a.output != outputTable {
		return a.printOne(r, nil)
	}
	t := newTable(a.out)
	t.row("since", a.when(r.Since))
	t.row("until", a.when(r.Until))
	t.row("attempts", count(r.Attempts))
	for _, line := range []struct {
		name string
		n    int64
	}{{"succeeded", r.Succeeded}, {"retried", r.Retried}, {"failed", r.Failed}, {"throttled", r.Throttled}, {"lost", r.Lost}, {"cancelled", r.Cancelled}} {
		t.row("  "+line.name, count(line.n)+share(line.n, r.Attempts))
	}
	t.row("jobs retried", count(r.JobsRetried))
	t.row("  then succeeded", count(r.JobsRetriedSucceeded)+share(r.JobsRetriedSucceeded, r.JobsRetried))
	t.row("  then failed", count(r.JobsRetriedFailed)+share(r.JobsRetriedFailed, r.JobsRetried))
	if err := t.flush(); err != nil {
		return err
	}
	if len(r.ByAttempt) > 0 {
		if err := a.section([]string{"ATTEMPT", "SUCCEEDED", "FAILED"}, len(r.ByAttempt), func(i int) []string {
			n := r.ByAttempt[i]
			return []string{strconv.Itoa(n.Number), count(n.Succeeded), count(n.Failed)}
		}); err != nil {
			return err
		}
	}
	for _, group := range []struct {
		title  string
		counts []forebay.ErrorCount
	}{{"DEPLOYMENT", r.ByDeployment}, {"TASK", r.ByTask}} {
		if err := a.section([]string{group.title, "ERROR", "CLASS", "COUNT"}, len(group.counts), func(i int) []string {
			e := group.counts[i]
			return []string{e.Name, e.Code, string(e.Class), count(e.Count)}
		}); err != nil {
			return err
		}
	}
	return a.section([]string{"HOUR", "ATTEMPTS", "FAILED", "THROTTLED"}, len(r.ByHour), func(i int) []string {
		h := r.ByHour[i]
		return []string{h.Hour.In(a.zone).Format("2006-01-02 15:04"), count(h.Attempts), count(h.Failed), count(h.Throttled)}
	})
}

// section prints a table with an empty line before it, or nothing when it has no rows.
func (a *app) section(titles []string, n int, row func(int) []string) error {
	if n == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	t := newTable(a.out)
	t.row(titles...)
	for i := range n {
		t.row(row(i)...)
	}
	return t.flush()
}

func share(n, of int64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f%%)", 100*float64(n)/float64(of))
}
