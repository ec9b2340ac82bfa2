package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// subqueue is the dead-letter or the quarantine subqueue of jobs, with the commands about it.
type subqueue struct {
	*command.App
	use  string
	name string // such as "dead-letter"
	did  string // such as "dead-lettered"
	of   func(api *client.Client, queue string) client.SetAside

	across func(api *client.Client, ctx context.Context, a forebay.SetAsideAcross, limit int) iter.Seq2[forebay.SetAsideJob, error]
	groups func(api *client.Client, ctx context.Context, a forebay.SetAsideAcross) (forebay.SetAsideGroups, error)
}

func deadLetters(a *command.App) *cobra.Command {
	c := subqueue{a, "dlq", "dead-letter", "dead-lettered", (*client.Client).DeadLetters, (*client.Client).AllDeadLetters, (*client.Client).DeadLetterGroups}.group()
	c.Aliases = []string{"dead-letters"}
	return c
}

func quarantine(a *command.App) *cobra.Command {
	return subqueue{a, "quarantine", "quarantine", "quarantined", (*client.Client).Quarantine, (*client.Client).AllQuarantined, (*client.Client).QuarantineGroups}.group()
}

func (s subqueue) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: s.use, Short: "See, redrive and purge " + s.name + " jobs",
		Long: "Jobs that cannot succeed stand in a queue's " + s.name + ` subqueue until they are redriven or
purged.`,
	}, s.list(), s.count(), s.show(), s.redrive(), s.purge())
}

func (s subqueue) queueFlag(c *cobra.Command) *string {
	return c.Flags().String("queue", forebay.DefaultQueue, "the queue")
}

// jobSelection holds the flags that select jobs of the subqueue.
type jobSelection struct {
	subqueue
	queue  *string
	filter forebay.SetAsideFilter
	all    bool
}

func (s subqueue) selection(c *cobra.Command) *jobSelection {
	f := &jobSelection{subqueue: s, queue: s.queueFlag(c)}
	flags := c.Flags()
	flags.StringSliceVar(&f.filter.JobIDs, "job", nil, "only these job ids")
	f.reasonFlags(flags)
	return f
}

// reasonFlags are those that select jobs by what they are and why they failed.
func (f *jobSelection) reasonFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.filter.Task, "task", "", "only of this task")
	flags.StringVar(&f.filter.Reason, "reason", "", "only with this reason, such as MaxAttemptsExceeded")
	flags.StringVar(&f.filter.CorrelationID, "correlation-id", "", "only with this correlation id")
	flags.StringVar((*string)(&f.filter.ErrorClass), "error-class", "", "only with an error of this class, such as permanent")
	periodFlags(f.App, flags, &f.filter.Before, &f.filter.After, f.did)
}

// get returns the filter that the flags make.
func (f *jobSelection) get() forebay.SetAsideFilter {
	if len(f.filter.JobIDs) == 0 {
		f.filter.JobIDs = nil // an empty list would select nothing
	}
	return f.filter
}

// choose adds the jobs that are named as arguments. It requires a selection or --all.
func (f *jobSelection) choose(c *command.Call) error {
	f.filter.JobIDs = append(f.filter.JobIDs, c.Args...)
	s := f.get()
	selects := len(s.JobIDs) > 0 || s.Task != "" || s.Reason != "" || s.CorrelationID != "" || s.ErrorClass != "" || s.Before != nil || s.After != nil
	return command.ExactlyOne("name jobs, select them by flags, or say --all", "--all and a selection exclude each other", selects, f.all)
}

// found returns an error if jobs were named and none of them was found.
func (f *jobSelection) found(n int) error {
	switch named := f.filter.JobIDs; {
	case n > 0 || len(named) == 0:
		return nil
	default:
		which := named[0] + " is not"
		if len(named) > 1 {
			which = fmt.Sprintf("none of the %d named jobs is", len(named))
		}
		return command.ExitError(command.ExitNotFound, fmt.Sprintf("%s a %s job of queue %s that the selection matches", which, f.name, *f.queue))
	}
}

func (s subqueue) list() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List " + s.name + " jobs, newest first",
		Example: fmt.Sprintf("  forebay %[1]s list --reason MaxAttemptsExceeded --after 24h\n  forebay %[1]s list --all-queues", s.use),
	}
	f := s.selection(c)
	var allQueues, allTenants bool
	c.Flags().BoolVar(&allQueues, "all-queues", false, "of every queue")
	command.AllTenantsFlag(c.Flags(), &allTenants)
	return aboutQueue(command.Page(s.App, c, func(c *command.Call, pageSize int) iter.Seq2[forebay.SetAsideJob, error] {
		a := forebay.SetAsideAcross{Queue: *f.queue, AllTenants: allTenants, Filter: f.get()}
		if allQueues {
			a.Queue = ""
		}
		if allQueues || allTenants {
			return s.across(c.API, c.Ctx, a, pageSize)
		}
		return s.of(c.API, *f.queue).List(c.Ctx, f.get(), pageSize)
	}, func(j forebay.SetAsideJob) []command.Field {
		return []command.Field{
			{"JOB", j.JobID}, {"QUEUE", j.Queue}, {"TASK", j.Task}, {"REASON", j.Reason},
			{"ATTEMPTS", strconv.Itoa(j.Attempt)}, {"DELIVERIES", strconv.Itoa(j.DeliveryCount)},
			{"SINCE", s.Age(j.SetAsideAt)}, {"DESCRIPTION", command.Shorten(j.Description, 60)},
		}
	}))
}

func (s subqueue) count() *cobra.Command {
	var a forebay.SetAsideAcross
	f := &jobSelection{subqueue: s}
	c := &cobra.Command{
		Use: "groups", Short: "Count " + s.name + " jobs of all queues by reason and task",
		Example: "  forebay " + s.use + " groups --after 24h",
	}
	f.reasonFlags(c.Flags())
	c.Flags().StringVar(&a.Queue, "queue", "", "only of this queue")
	command.AllTenantsFlag(c.Flags(), &a.AllTenants)
	return command.List(s.App, c, func(c *command.Call) ([]forebay.SetAsideGroup, error) {
		a.Filter = f.filter
		groups, err := s.groups(c.API, c.Ctx, a)
		if err == nil && !groups.Complete {
			c.Note("Only the newest jobs were counted, those made since " + s.WhenPtr(groups.SearchedTo) + ".")
		}
		return groups.Groups, err
	}, func(g forebay.SetAsideGroup) []command.Field {
		return []command.Field{
			{"JOBS", strconv.Itoa(g.Count)}, {"REASON", g.Reason}, {"TASK", g.Task},
			{"NEWEST", s.Age(g.Newest)}, {"OLDEST", s.Age(g.Oldest)}, {"EXAMPLE", g.ExampleJobID},
		}
	})
}

func (s subqueue) show() *cobra.Command {
	c := &cobra.Command{
		Use: "show JOB_ID", Aliases: []string{"peek"}, Short: "Show a " + s.name + " job with its input",
		Example: "  forebay " + s.use + " show job_0123456789abcdefghjkmnpqrs -o json",
	}
	queue := s.queueFlag(c)
	return aboutQueue(command.Show(s.App, c, func(c *command.Call) (forebay.SetAsideJob, error) {
		return s.of(c.API, *queue).Peek(c.Ctx, c.Args[0])
	}, s.fields))
}

func (s subqueue) fields(j forebay.SetAsideJob) []command.Field {
	return slices.Concat([]command.Field{
		{"job", j.JobID},
		{"task", j.Task},
		{"queue", j.Queue},
		{"reason", j.Reason},
		{"description", command.Shorten(j.Description, 400)},
		{"error class", string(j.ErrorClass)},
		{"generation", strconv.Itoa(j.Generation)},
		{"attempts", strconv.Itoa(j.Attempt)},
		{"deliveries", strconv.Itoa(j.DeliveryCount)},
		{"correlation id", j.CorrelationID},
		{"created", s.When(j.CreatedAt)},
		{"set aside", s.When(j.SetAsideAt)},
		{"input bytes", command.Count(j.InputBytes)},
	}, command.MapFields("metadata", j.Metadata), command.MapFields("property", j.Properties), []command.Field{{"input", inputText(j)}})
}

func inputText(j forebay.SetAsideJob) string {
	if j.InputWithheld {
		return "withheld: the key may not open it"
	}
	return command.Shorten(string(j.Input), 400)
}

func (s subqueue) redrive() *cobra.Command {
	var req forebay.RedriveRequest
	var edit forebay.RedriveEdit
	var input command.Content
	var isJSON bool
	c := &cobra.Command{
		Use:   "redrive [JOB_ID...]",
		Short: "Send " + s.name + " jobs back as their next generation",
		Long: `Send ` + s.name + ` jobs back to their queue as their next generation. Name the jobs, select
them by flags, or say --all. The input, the task or the attempts of exactly one job may be changed.
A new input is JSON with --json, or if its file's name ends in .json.`,
		Example: fmt.Sprintf(`  forebay %[1]s redrive --reason MaxAttemptsExceeded --dry-run
  forebay %[1]s redrive --all --rate 5
  forebay %[1]s redrive job_0123456789abcdefghjkmnpqrs --set-input-file corrected.txt`, s.use),
	}
	f := s.selection(c)
	flags := c.Flags()
	allFlag(flags, &f.all, "jobs of the subqueue")
	dryRunFlag(flags, &req.DryRun)
	maxFlag(flags, &req.Max)
	flags.Float64Var(&req.RatePerSecond, "rate", 0, "new starts a second; 0: at once")
	input.Add(flags, "new input", "set-input", "set-input-file", "one job: replace the input")
	flags.BoolVar(&isJSON, "json", false, "the new input is JSON, not text")
	flags.StringVar(&edit.Task, "set-task", "", "one job: replace the task")
	command.OptionalFlag(flags, &edit.MaxAttempts, "set-max-attempts", command.WholeNumber, "one job: replace the number of attempts")
	return command.Conditional(aboutQueue(command.Show(s.App, c, func(c *command.Call) (report forebay.RedriveReport, err error) {
		if err := f.choose(c); err != nil {
			return report, err
		}
		data, given, err := input.Read(c, maxInputBytes)
		if err != nil {
			return report, err
		}
		if given {
			if edit.Input, err = asInput(data, isJSON || namesJSON(input.File)); err != nil {
				return report, err
			}
		}
		req.Filter, req.All = f.filter, f.all
		if given || edit.Task != "" || edit.MaxAttempts != nil {
			req.Edit = &edit
		}
		if req.Edit != nil && len(req.Filter.JobIDs) != 1 {
			return report, command.Usagef("only exactly one job can be changed")
		}
		if report, err = s.of(c.API, *f.queue).Redrive(c.Ctx, req); err != nil {
			return report, err
		}
		return report, f.found(report.Matched)
	}, redriveFields)), false)
}

func redriveFields(r forebay.RedriveReport) []command.Field {
	fields := []command.Field{{"matched", strconv.Itoa(r.Matched)}}
	if r.DryRun {
		fields = append(fields, command.Field{"redriven", "0 (dry run)"})
	} else {
		fields = append(fields, command.Field{"redriven", strconv.Itoa(r.Redriven)}, command.Field{"skipped", strconv.Itoa(r.Skipped)})
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		fields = append(fields, command.Field{"  " + reason, strconv.Itoa(r.Reasons[reason])})
	}
	return fields
}

func (s subqueue) purge() *cobra.Command {
	c := &cobra.Command{
		Use: "purge [JOB_ID...]", Short: "Remove " + s.name + " jobs for good",
		Long: "Remove " + s.name + ` jobs from their subqueue for good. Name the jobs, select them by flags,
or say --all. The job records stay.`,
		Example: fmt.Sprintf("  forebay %[1]s purge --before 30d\n  forebay %[1]s purge --queue slow --all", s.use),
	}
	f := s.selection(c)
	allFlag(c.Flags(), &f.all, "jobs of the subqueue")
	return aboutQueue(command.Show(s.App, c, func(c *command.Call) (report forebay.PurgeReport, err error) {
		if err := f.choose(c); err != nil {
			return report, err
		}
		if report, err = s.of(c.API, *f.queue).Purge(c.Ctx, f.filter); err != nil {
			return report, err
		}
		return report, f.found(report.Purged)
	}, func(r forebay.PurgeReport) []command.Field {
		return []command.Field{{"purged", strconv.Itoa(r.Purged)}}
	}))
}
