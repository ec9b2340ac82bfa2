package main

import (
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// jobCommands are the commands about submitted jobs.
type jobCommands struct{ *command.App }

func (a jobCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{Use: "jobs", Short: "See jobs, cancel, redrive and purge them"},
		a.list(), a.show(),
		a.APICommand(&cobra.Command{
			Use: "result JOB_ID", Short: "Print a job's result, of whatever size, as JSON",
			Example: "  forebay jobs result job_0123456789abcdefghjkmnpqrs | jq -r .summary",
		}, func(c *command.Call) error { return copyResult(c, c.API, c.Args[0]) }),
		a.input(),
		a.watch(), a.attempts(), a.sessions(),
		a.verb(&cobra.Command{Use: "cancel JOB_ID", Short: "Cancel a job and abort its call"}, (*client.Client).Cancel),
		a.verb(&cobra.Command{Use: "redrive JOB_ID", Short: "Start the next generation of a failed job"},
			(*client.Client).Redrive),
		a.purge())
}

func (a jobCommands) sessions() *cobra.Command {
	var f forebay.JobSessionFilter
	c := command.Page(a.App, &cobra.Command{
		Use: "sessions", Short: "List the sessions of jobs that have jobs to run",
		Long: `List the sessions that have jobs that are not over. Jobs of a session run one after the other. FIRST
is the job whose turn it is, and HELD UP BY what it waits for.`,
		Example: "  forebay jobs sessions --queue slow\n  forebay jobs sessions --session-id order-7 -o json",
	}, func(c *command.Call, pageSize int) iter.Seq2[forebay.JobSession, error] {
		f.Limit = pageSize
		return c.API.JobSessions(c.Ctx, f)
	}, func(s forebay.JobSession) []command.Field {
		first := forebay.JobSessionFirst{}
		if s.First != nil {
			first = *s.First
		}
		holds := ""
		if first.WaitingFor != nil {
			holds = string(*first.WaitingFor)
		}
		return []command.Field{
			{"SESSION", s.SessionID}, {"TENANT", s.Tenant}, {"QUEUE", s.Queue}, {"WAITING", command.Counted(int64(s.Waiting), s.More)}, {"RUNNING", strconv.Itoa(s.Running)},
			{"SET ASIDE", command.Counted(int64(s.SetAside), s.SetAsideCapped)}, {"FIRST", first.JobID}, {"STATUS", string(first.Status)}, {"HELD UP BY", holds},
		}
	})
	c.Flags().StringVar(&f.Queue, "queue", "", "only of this queue")
	c.Flags().StringVar(&f.SessionID, "session-id", "", "only sessions of this id")
	command.AllTenantsFlag(c.Flags(), &f.AllTenants)
	return aboutQueue(c)
}

func (a jobCommands) list() *cobra.Command {
	var f forebay.JobFilter
	c := command.Page(a.App, &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Example: `  forebay jobs list --status queued,retrying
  forebay jobs list --task summarize --limit 0 -o jsonl
  forebay jobs list --status failed --after 24h`,
	}, func(c *command.Call, pageSize int) iter.Seq2[forebay.Job, error] {
		f.Limit = pageSize
		return c.API.List(c.Ctx, f)
	}, a.columns)
	flags := c.Flags()
	command.StatusFlag(flags, &f.Status, forebay.Statuses)
	flags.StringVar(&f.Queue, "queue", "", "only of this queue")
	flags.StringVar(&f.Task, "task", "", "only of this task")
	flags.StringVar(&f.CorrelationID, "correlation-id", "", "only with this correlation id")
	flags.StringVar(&f.SessionID, "session-id", "", "only of this session")
	command.OptionalFlag(flags, &f.Priority, "priority", command.WholeNumber, "only of this priority")
	flags.StringVar((*string)(&f.WaitingFor), "waiting-for", "", "only those that wait for this: "+command.Joined(forebay.WaitReasons))
	command.MetadataFlag(flags, &f.Metadata, " that the jobs have")
	command.AllTenantsFlag(flags, &f.AllTenants)
	periodFlags(a.App, flags, &f.CreatedBefore, &f.CreatedAfter, "created")
	return c
}

func (a jobCommands) input() *cobra.Command {
	var limit int64
	c := a.APICommand(&cobra.Command{
		Use: "input JOB_ID", Short: "Print a job's input, of whatever size, as JSON",
		Long: `Print a job's input, of whatever size, as JSON. It needs a key with the scope payload. The audit
log tells who has opened it.`,
		Example: "  forebay jobs input job_0123456789abcdefghjkmnpqrs --first 4096",
	}, func(c *command.Call) error {
		input, err := c.API.Input(c.Ctx, c.Args[0], limit)
		if err != nil {
			return err
		}
		return copyPayload(c, input, "input")
	})
	c.Flags().Int64Var(&limit, "first", 0, "only about so many bytes, as text (default: all, as JSON)")
	return c
}

func (a jobCommands) columns(j forebay.Job) []command.Field {
	return []command.Field{
		{"ID", j.ID}, {"STATUS", string(j.Status)}, {"WAITING FOR", command.OrEmpty(j.WaitingFor)},
		{"TASK", j.Task}, {"QUEUE", j.Queue},
		{"ATTEMPT", fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts)}, {"CREATED", a.Age(j.CreatedAt)},
		{"ERROR", command.IfSet(j.Error, func(e forebay.JobError) string { return e.Code })},
	}
}

func (a jobCommands) show() *cobra.Command {
	var wait bool
	c := command.Show(a.App, &cobra.Command{
		Use: "show JOB_ID", Short: "Show a job", Example: "  forebay jobs show job_0123456789abcdefghjkmnpqrs --wait",
	}, func(c *command.Call) (forebay.Job, error) {
		job, err := c.API.Get(c.Ctx, c.Args[0])
		if err != nil || !wait || job.Status.Terminal() {
			return job, err
		}
		return command.Await(c, (*client.Client).Wait, c.Args[0])
	}, a.fields)
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	return c
}

// heldBy names what a job waits for.
func heldBy(causes []forebay.WaitCause) string {
	names := make([]string, len(causes))
	for i, c := range causes {
		names[i] = fmt.Sprintf("%s %s (%s)", c.Kind, c.Name, c.Reason)
	}
	return strings.Join(names, ", ")
}

func (a jobCommands) fields(j forebay.Job) []command.Field {
	fields := []command.Field{
		{"id", j.ID},
		{"status", string(j.Status)},
		{"waiting for", command.OrEmpty(j.WaitingFor)},
		{"held by", heldBy(j.WaitingOn)},
		{"position", position(j)},
		{"expected start", a.WhenPtr(j.ExpectedStartAt)},
		{"task", j.Task},
		{"queue", j.Queue},
		{"tenant", j.Tenant},
		{"priority", strconv.Itoa(j.Priority)},
		{"session", command.OrEmpty(j.SessionID)},
		{"correlation id", j.CorrelationID},
		{"generation", strconv.Itoa(j.Generation)},
		{"attempt", fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts)},
		{"created", a.When(j.CreatedAt)},
		{"scheduled", a.WhenPtr(j.ScheduledAt)},
		{"deadline", a.WhenPtr(j.Deadline)},
		{"started", a.WhenPtr(j.StartedAt)},
		{"calls", command.IfSet(j.RunningAttempt, func(r forebay.RunningAttempt) string { return r.Deployment + " since " + a.When(r.StartedAt) })},
		{"completed", a.WhenPtr(j.CompletedAt)},
		{"tokens", fmt.Sprintf("%d in, %d out", j.Usage.InputTokens, j.Usage.OutputTokens)},
		{"cost", "$" + j.Usage.CostUSD.String()},
		{"cost limit", command.IfSet(j.MaxCostUSD, func(m forebay.Money) string { return "$" + m.String() })},
		{"token limit", command.IfSet(j.MaxTotalTokens, command.Count)},
	}
	fields = append(fields, command.MapFields("metadata", j.Metadata)...)
	if j.Error != nil {
		text := fmt.Sprintf("%s (%s): %s", j.Error.Code, j.Error.Class, command.Shorten(j.Error.Message, 400))
		fields = append(fields, command.Field{"error", text})
	}
	if j.Status == forebay.StatusSucceeded {
		result := "over the inline limit; forebay jobs result " + j.ID
		switch {
		case j.ResultWithheld:
			result = "withheld: the key may not open it"
		case hasResult(j):
			result = command.Shorten(string(j.Result), 400)
		}
		fields = append(fields, command.Field{"result", result})
	}
	return fields
}

// position writes the queue position of a job that is ready.
func position(j forebay.Job) string {
	switch {
	case j.QueuePosition == nil:
		return ""
	case j.QueuePositionAtLeast != nil:
		return fmt.Sprintf("about %s, at least %s", command.Count(*j.QueuePosition), command.Count(*j.QueuePositionAtLeast))
	}
	return command.Count(*j.QueuePosition)
}

func (a jobCommands) attempts() *cobra.Command {
	return command.List(a.App, &cobra.Command{Use: "attempts JOB_ID", Short: "List the calls made for a job, oldest first"},
		command.OfArgument((*client.Client).Attempts),
		func(t forebay.Attempt) []command.Field {
			return []command.Field{
				{"GENERATION", strconv.Itoa(t.Generation)}, {"ATTEMPT", strconv.Itoa(t.Number)},
				{"OUTCOME", string(t.Outcome)}, {"DEPLOYMENT", t.Deployment},
				{"STARTED", a.Age(t.StartedAt)}, {"TOOK", took(t)},
				{"TOKENS", fmt.Sprintf("%d+%d", t.Usage.InputTokens, t.Usage.OutputTokens)},
				{"COST", "$" + t.CostUSD.String()}, {"NEXT", command.Seconds(t.RetryDelaySeconds)},
				{"ERROR", command.IfSet(t.ErrorCode, func(code string) string { return code + ": " + command.Shorten(command.OrEmpty(t.ErrorMessage), 60) })},
			}
		})
}

// took writes how long an attempt took; "": it runs.
func took(t forebay.Attempt) string {
	if t.FinishedAt.IsZero() {
		return ""
	}
	return command.Took(t.StartedAt, t.FinishedAt)
}

// jobChange is a command that changes a job and prints its new status.
func (a jobCommands) verb(c *cobra.Command, change command.ByName[forebay.Job]) *cobra.Command {
	return a.APICommand(c, func(c *command.Call) error {
		job, err := change(c.API, c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		return c.PrintLine(job, "%s %s (generation %d)", job.ID, job.Status, job.Generation)
	})
}

func (a jobCommands) purge() *cobra.Command {
	var req forebay.PurgeJobsRequest
	var before *time.Time
	c := command.Show(a.App, &cobra.Command{
		Use:   "purge --before TIME",
		Short: "Delete jobs that are over for good",
		Long: `Delete jobs that are over for good, with their results, attempts and events. Dead-lettered and
quarantined jobs stay until they are purged from their subqueue. The server deletes old jobs by
itself: see retention in its configuration.`,
		Example: `  forebay jobs purge --before 30d --dry-run
  forebay jobs purge --before 2030-01-01T00:00:00Z --status failed,cancelled`,
	}, func(c *command.Call) (report forebay.PurgeJobsReport, err error) {
		if before == nil {
			return report, command.Usagef("--before is missing: a time, or how long ago")
		}
		req.Before = *before
		return c.API.Purge(c.Ctx, req)
	}, func(r forebay.PurgeJobsReport) []command.Field {
		return []command.Field{done("purged", req.DryRun, strconv.Itoa(r.Purged))}
	})
	beforeFlag(a.App, c.Flags(), &before, "jobs that ended")
	command.StatusFlag(c.Flags(), &req.Status, []forebay.Status{
		forebay.StatusSucceeded, forebay.StatusFailed, forebay.StatusCancelled, forebay.StatusExpired,
	})
	dryRunFlag(c.Flags(), &req.DryRun)
	return c
}

// done writes how many things were changed, or would be in a dry run.
func done(verb string, dryRun bool, number string) command.Field {
	if dryRun {
		verb = "would be " + verb
	}
	return command.Field{verb, number}
}

// hasResult reports whether a job carries its result. A large result must be fetched separately.
func hasResult(j forebay.Job) bool { return len(j.Result) > 0 && string(j.Result) != "null" }

// printResult writes a succeeded job's result and a line end.
func printResult(c *command.Call, api *client.Client, job forebay.Job) error {
	if hasResult(job) {
		return command.WriteLine(command.PlainJSON(c.Out), job.Result)
	}
	return copyResult(c, api, job.ID)
}

func copyResult(c *command.Call, api *client.Client, id string) error {
	result, err := api.Result(c.Ctx, id)
	if err != nil {
		return err
	}
	return copyPayload(c, result, "result")
}

// copyPayload prints a payload and closes it.
func copyPayload(c *command.Call, payload io.ReadCloser, what string) error {
	defer payload.Close()
	if _, err := io.Copy(command.PlainJSON(c.Out), payload); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	_, err := fmt.Fprintln(c.Out)
	return err
}
