package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) jobs() *cobra.Command {
	return a.group("jobs", "Look at jobs, cancel, redrive and purge them", "",
		a.jobsList(), a.jobsGet(), a.jobsWatch(), a.jobsAttempts(), a.jobsResult(), a.jobsCancel(), a.jobsRedrive(), a.jobsPurge())
}

func (a *app) jobsList() *cobra.Command {
	var f forebay.JobFilter
	var statuses []string
	var limit int
	var before, after string
	c := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Example: `  forebay jobs list --status queued,retrying
  forebay jobs list --task summarize --limit 0 -o jsonl
  forebay jobs list --status failed --after 24h`,
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, s := range statuses {
				if !forebay.Status(s).Valid() {
					return usagef("--status knows no %q; there are %s", s, joined(forebay.Statuses))
				}
				f.Status = append(f.Status, forebay.Status(s))
			}
			var err error
			if f.CreatedBefore, err = a.parseTime("before", before, true); err != nil {
				return err
			}
			if f.CreatedAfter, err = a.parseTime("after", after, true); err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			f.Limit = pageSize(limit)
			api, err := a.client()
			if err != nil {
				return err
			}
			return printList(a, api.List(c.Context(), f), limit, a.jobColumns())
		},
	}
	c.Flags().StringSliceVar(&statuses, "status", nil, "only these: "+joined(forebay.Statuses))
	c.Flags().StringVar(&f.Queue, "queue", "", "only of this queue")
	c.Flags().StringVar(&f.Task, "task", "", "only of this task")
	c.Flags().StringVar(&f.CorrelationID, "correlation-id", "", "only with this correlation id")
	c.Flags().StringVar(&before, "before", "", "only created before this time, or longer ago than this")
	c.Flags().StringVar(&after, "after", "", "only created since this time, or in the last so much time")
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return c
}

func (a *app) jobColumns() []column[forebay.Job] {
	return []column[forebay.Job]{
		{"ID", func(j forebay.Job) string { return j.ID }},
		{"STATUS", func(j forebay.Job) string { return string(j.Status) }},
		{"WAITING FOR", func(j forebay.Job) string { return orEmpty(j.WaitingFor) }},
		{"TASK", func(j forebay.Job) string { return j.Task }},
		{"QUEUE", func(j forebay.Job) string { return j.Queue }},
		{"ATTEMPT", func(j forebay.Job) string { return fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts) }},
		{"CREATED", func(j forebay.Job) string { return a.age(j.CreatedAt) }},
		{"ERROR", func(j forebay.Job) string {
			if j.Error == nil {
				return ""
			}
			return j.Error.Code
		}},
	}
}

func (a *app) jobsGet() *cobra.Command {
	wait := false
	c := a.about("JOB_ID", "get", "Show a job", "  forebay jobs get job_0123456789abcdefghjkmnpqrs --wait", func(ctx context.Context, api *client.Client, id string) error {
		job, err := api.Get(ctx, id)
		if err == nil && wait && !job.Status.Terminal() {
			if api, err = a.patient(); err == nil {
				job, err = api.Wait(ctx, id)
			}
		}
		if err != nil {
			return err
		}
		return a.printJob(job)
	})
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	return c
}

func (a *app) printJob(j forebay.Job) error {
	rows := [][2]string{
		{"id", j.ID},
		{"status", string(j.Status)},
		{"waiting for", orEmpty(j.WaitingFor)},
		{"position", position(j)},
		{"expected start", a.whenPtr(j.ExpectedStartAt)},
		{"task", j.Task},
		{"queue", j.Queue},
		{"tenant", j.Tenant},
		{"priority", strconv.Itoa(j.Priority)},
		{"session", orEmpty(j.SessionID)},
		{"correlation id", j.CorrelationID},
		{"generation", strconv.Itoa(j.Generation)},
		{"attempt", fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts)},
		{"created", a.when(j.CreatedAt)},
		{"scheduled", a.whenPtr(j.ScheduledAt)},
		{"deadline", a.whenPtr(j.Deadline)},
		{"started", a.whenPtr(j.StartedAt)},
		{"completed", a.whenPtr(j.CompletedAt)},
		{"tokens", fmt.Sprintf("%d in, %d out", j.Usage.InputTokens, j.Usage.OutputTokens)},
		{"cost", "$" + j.Usage.CostUSD.String()},
	}
	if j.MaxCostUSD != nil {
		rows = append(rows, [2]string{"cost limit", "$" + j.MaxCostUSD.String()})
	}
	if j.MaxTotalTokens != nil {
		rows = append(rows, [2]string{"token limit", strconv.FormatInt(*j.MaxTotalTokens, 10)})
	}
	for _, name := range slices.Sorted(maps.Keys(j.Metadata)) {
		rows = append(rows, [2]string{"metadata " + name, shorten(j.Metadata[name], 200)})
	}
	if j.Error != nil {
		rows = append(rows, [2]string{"error", fmt.Sprintf("%s (%s): %s", j.Error.Code, j.Error.Class, shorten(j.Error.Message, 400))})
	}
	if j.Status == forebay.StatusSucceeded {
		result := "over the inline limit; forebay jobs result " + j.ID
		if len(j.Result) > 0 && string(j.Result) != "null" {
			result = shorten(string(j.Result), 400)
		}
		rows = append(rows, [2]string{"result", result})
	}
	return a.printOne(j, rows)
}

func (a *app) jobsWatch() *cobra.Command {
	var after int64
	c := a.about("JOB_ID", "watch", "Follow a job's events until it has ended",
		"  forebay jobs watch job_0123456789abcdefghjkmnpqrs", func(ctx context.Context, api *client.Client, id string) error {
			if _, err := api.Get(ctx, id); err != nil {
				return err
			}
			patient, err := a.patient()
			if err != nil {
				return err
			}
			for e, err := range patient.Events(ctx, id, after) {
				if err != nil {
					return err
				}
				if err := a.printEvent(e); err != nil {
					return err
				}
			}
			job, err := api.Get(ctx, id)
			if err != nil {
				return err
			}
			return ended(job)
		})
	c.Long = "Follow a job's events until it has ended. The exit code is 0 only if it succeeded."
	c.Flags().Int64Var(&after, "after", 0, "begin after the event with this number")
	return c
}

func (a *app) printEvent(e forebay.Event) error {
	if a.output != outputTable {
		return writeJSON(a.out, e, "")
	}
	line := fmt.Sprintf("%s  %-16s", e.At.In(a.zone).Format("15:04:05.000"), e.Type)
	if e.Attempt > 0 {
		line += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	if e.ErrorCode != "" {
		line += " " + e.ErrorCode
	}
	if e.RetryDelaySeconds != nil {
		line += " again in " + seconds(e.RetryDelaySeconds)
	}
	_, err := fmt.Fprintln(a.out, clean(strings.TrimRight(line, " ")))
	return err
}

func (a *app) jobsAttempts() *cobra.Command {
	return a.about("JOB_ID", "attempts", "List the calls made for a job, oldest first", "", func(ctx context.Context, api *client.Client, id string) error {
		attempts, err := api.Attempts(ctx, id)
		if err != nil {
			return err
		}
		return printList(a, all(attempts), 0, []column[forebay.Attempt]{
			{"GENERATION", func(t forebay.Attempt) string { return strconv.Itoa(t.Generation) }},
			{"ATTEMPT", func(t forebay.Attempt) string { return strconv.Itoa(t.Number) }},
			{"OUTCOME", func(t forebay.Attempt) string { return string(t.Outcome) }},
			{"DEPLOYMENT", func(t forebay.Attempt) string { return t.Deployment }},
			{"STARTED", func(t forebay.Attempt) string { return a.age(t.StartedAt) }},
			{"TOOK", func(t forebay.Attempt) string { return t.FinishedAt.Sub(t.StartedAt).Round(time.Millisecond).String() }},
			{"TOKENS", func(t forebay.Attempt) string { return fmt.Sprintf("%d+%d", t.Usage.InputTokens, t.Usage.OutputTokens) }},
			{"COST", func(t forebay.Attempt) string { return "$" + t.CostUSD.String() }},
			{"NEXT", func(t forebay.Attempt) string { return seconds(t.RetryDelaySeconds) }},
			{"ERROR", func(t forebay.Attempt) string {
				if t.ErrorCode == nil {
					return ""
				}
				return *t.ErrorCode + ": " + shorten(orEmpty(t.ErrorMessage), 60)
			}},
		})
	})
}

func (a *app) jobsResult() *cobra.Command {
	c := a.about("JOB_ID", "result", "Print a job's result, of whatever size, as JSON", "  forebay jobs result job_0123456789abcdefghjkmnpqrs | jq -r .summary",
		func(ctx context.Context, api *client.Client, id string) error { return a.copyResult(ctx, api, id) })
	return c
}

func (a *app) jobsCancel() *cobra.Command {
	return a.about("JOB_ID", "cancel", "Cancel a job and abort its call", "", func(ctx context.Context, api *client.Client, id string) error {
		job, err := api.Cancel(ctx, id)
		if err != nil {
			return err
		}
		return a.printChanged(job)
	})
}

func (a *app) jobsRedrive() *cobra.Command {
	return a.about("JOB_ID", "redrive", "Start the next generation of a failed job", "", func(ctx context.Context, api *client.Client, id string) error {
		job, err := api.Redrive(ctx, id)
		if err != nil {
			return err
		}
		return a.printChanged(job)
	})
}

func (a *app) jobsPurge() *cobra.Command {
	var req forebay.PurgeJobsRequest
	var before string
	var statuses []string
	c := &cobra.Command{
		Use:   "purge --before TIME",
		Short: "Delete jobs that are over for good",
		Long: "Delete jobs that are over for good, with their results, attempts and events. Jobs that are set aside stay until\n" +
			"they are purged from their subqueue. The server deletes old jobs by itself: see retention in its configuration.",
		Example: `  forebay jobs purge --before 30d --dry-run
  forebay jobs purge --before 2030-01-01T00:00:00Z --status failed,cancelled`,
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := a.parseTime("before", before, true)
			if err != nil {
				return err
			}
			if at == nil {
				return usagef("--before is missing: a time, or how long ago")
			}
			req.Before = *at
			for _, s := range statuses {
				if !forebay.Status(s).Terminal() {
					return usagef("--status takes what is over: succeeded, failed, cancelled, expired; not %q", s)
				}
				req.Status = append(req.Status, forebay.Status(s))
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			report, err := api.Purge(c.Context(), req)
			if err != nil {
				return err
			}
			name := "purged"
			if req.DryRun {
				name = "would be purged"
			}
			return a.printOne(report, [][2]string{{name, strconv.Itoa(report.Purged)}})
		},
	}
	c.Flags().StringVar(&before, "before", "", "only jobs that ended before this time, or longer ago than this")
	c.Flags().StringSliceVar(&statuses, "status", nil, "only these: succeeded, failed, cancelled, expired; default all")
	c.Flags().BoolVar(&req.DryRun, "dry-run", false, "count them only")
	return c
}

func (a *app) printChanged(job forebay.Job) error {
	if a.output != outputTable {
		return a.printJob(job)
	}
	_, err := fmt.Fprintf(a.out, "%s %s (generation %d)\n", job.ID, job.Status, job.Generation)
	return err
}

func checkLimit(limit int) error {
	if limit < 0 {
		return usagef("--limit must not be negative")
	}
	return nil
}

// pageSize is how many items to ask for at once to print at most limit.
func pageSize(limit int) int {
	if limit == 0 {
		return forebay.MaxPageSize
	}
	return min(limit, forebay.MaxPageSize)
}

func joined[S ~string](values []S) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

// position is where a job stands among those that are ready.
func position(j forebay.Job) string {
	switch {
	case j.QueuePosition == nil:
		return ""
	case j.QueuePositionAtLeast != nil:
		return fmt.Sprintf("about %s, at least %s", count(*j.QueuePosition), count(*j.QueuePositionAtLeast))
	}
	return count(*j.QueuePosition)
}
