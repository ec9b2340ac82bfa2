// Package live has the commands that show what happens now: processes, calls, the backlog, and the
// feed of changes.
package live

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// commands are the commands about what happens now.
type commands struct{ *command.App }

// Commands returns the commands.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.processes(), a.calls(), a.backlog(), a.events()}
}

// allTenants adds the flag that asks for all tenants.
func allTenants(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "all-tenants", false, "of all tenants; the key needs the scope view")
}

func (a commands) processes() *cobra.Command {
	return command.List(a.App, &cobra.Command{
		Use: "processes", Short: "List the processes that share the database",
		Long: "List the processes that share the database. The key needs the scope view. One that was killed\nis listed as gone for an hour.",
	}, command.OfServer((*client.Client).Processes), func(p forebay.Process) []command.Field {
		var calls, places int
		for _, q := range p.Queues {
			calls, places = calls+q.Calls+q.RetryCalls, places+q.Concurrency+q.RetryConcurrency
		}
		return []command.Field{
			{"PROCESS", p.ID}, {"STATE", string(p.State)}, {"HOST", p.Host}, {"PID", strconv.Itoa(p.PID)}, {"VERSION", p.Version}, {"ROLE", p.Role},
			{"STARTED", a.Age(p.StartedAt)}, {"SEEN", a.Age(p.SeenAt)}, {"CALLS", fmt.Sprintf("%d of %d", calls, places)},
		}
	})
}

func (a commands) calls() *cobra.Command {
	f := forebay.CallFilter{Limit: forebay.MaxPageSize}
	c := a.APICommand(&cobra.Command{
		Use: "calls", Short: "List the calls under way, the longest first",
		Example: "  forebay calls --deployment azure-west\n  forebay calls --all-tenants -o jsonl",
	}, func(c *command.Call) error {
		calls, err := c.API.Calls(c.Ctx, f)
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return command.PrintList(c.App, calls.Items, a.callColumns)
		}
		if err := command.PrintList(c.App, calls.Items, a.callColumns); err != nil || calls.Total == int64(len(calls.Items)) && !calls.TotalCapped {
			return err
		}
		return c.Say("%d of %s calls", len(calls.Items), command.Counted(calls.Total, calls.TotalCapped))
	})
	flags := c.Flags()
	allTenants(c, &f.AllTenants)
	flags.StringVar(&f.Deployment, "deployment", "", "only to this deployment")
	flags.StringVar(&f.Task, "task", "", "only of this task")
	return c
}

func (a commands) callColumns(r forebay.RunningCall) []command.Field {
	return []command.Field{
		{"JOB", r.JobID}, {"TENANT", r.Tenant}, {"TASK", r.Task}, {"QUEUE", r.Queue}, {"DEPLOYMENT", r.Deployment}, {"ATTEMPT", strconv.Itoa(r.Attempt)},
		{"STARTED", a.Age(r.StartedAt)}, {"TOKENS", command.IfSet(r.ReservedTokens, command.Count)}, {"PROCESS", r.Process},
		{"CLIENT", command.IfTrue(r.Synchronous, "waits")},
	}
}

func (a commands) backlog() *cobra.Command {
	var all bool
	c := a.APICommand(&cobra.Command{
		Use: "backlog", Short: "Show what waits, what it waits for, and when it is done",
		Long: "Show what waits in the queues, which limit holds it back, and when it is expected to be done.\nA time that nobody can tell is left out.",
	}, func(c *command.Call) error {
		backlog, err := c.API.Backlog(c.Ctx, all)
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return c.PrintJSON(backlog)
		}
		if err := command.PrintList(c.App, backlog.Lines, a.lineColumns); err != nil {
			return err
		}
		if backlog.ExpectedEndAt == nil {
			return c.Say("the end is not known: %s", backlog.Unknown)
		}
		return c.Say("all of it is expected to be done at %s", c.When(*backlog.ExpectedEndAt))
	})
	allTenants(c, &all)
	return c
}

func (a commands) lineColumns(l forebay.BacklogLine) []command.Field {
	limit := string(l.Limit.Kind)
	if l.Limit.Object != "" {
		limit += " of " + l.Limit.Object
	}
	return []command.Field{
		{"QUEUE", l.Queue}, {"LANE", l.Lane}, {"PRIORITY", strconv.Itoa(l.Priority)}, {"WAITING", command.Counted(l.Waiting, l.WaitingCapped)},
		{"LATER", command.Counted(l.Scheduled, l.ScheduledCapped)}, {"OLDEST", a.AgePtr(l.OldestReadyAt)}, {"EXPECTED END", a.WhenPtr(l.ExpectedEndAt)},
		{"LIMIT", limit}, {"DETAIL", command.Shorten(l.Limit.Detail, 80)},
	}
}

func (a commands) events() *cobra.Command {
	var f forebay.FeedFilter
	var kinds, types []string
	c := a.APICommand(&cobra.Command{
		Use: "events [JOB_ID...]", Short: "Follow what happens to many jobs, and more, until interrupted",
		Long: `Follow what happens to jobs, batches, responses and orchestrations from now on, until interrupted.
It is a live feed. What comes too fast is dropped; a line "lost" says how much. With thousands of
jobs a second use --sums, which counts by queue and type.`,
		Example: "  forebay events --queue batches --types failed,dead_lettered\n  forebay events --all-tenants --sums",
	}, func(c *command.Call) error {
		f.Jobs = c.Args
		f.Kinds, f.Types = of[forebay.FeedKind](kinds), of[forebay.EventType](types)
		patient, err := c.Patient()
		if err != nil {
			return err
		}
		for item, err := range patient.Follow(c.Ctx, f) {
			if err != nil {
				return err
			}
			if err := a.print(c, &item); err != nil {
				return err
			}
		}
		return nil
	})
	flags := c.Flags()
	allTenants(c, &f.AllTenants)
	flags.BoolVar(&f.Sums, "sums", false, "only count events of jobs, by queue and type, twice a second")
	flags.StringSliceVar(&kinds, "kinds", nil, "only job, deployment, batch, response or orchestration")
	flags.StringVar(&f.Queue, "queue", "", "only of this queue")
	flags.StringVar(&f.Task, "task", "", "only of this task")
	flags.StringSliceVar(&types, "types", nil, "only these types of events of jobs, such as failed")
	command.StatusFlag(flags, &f.Statuses, forebay.Statuses)
	flags.StringVar(&f.CorrelationID, "correlation-id", "", "only with this correlation id")
	return c
}

func of[S ~string](texts []string) (list []S) {
	for _, text := range texts {
		list = append(list, S(text))
	}
	return list
}

// line is an item of the feed in JSON.
type line struct {
	Kind forebay.FeedKind `json:"kind"`
	Data any              `json:"data"`
}

// print writes an item in a line.
func (a commands) print(c *command.Call, item *forebay.FeedItem) error {
	var data any = item.Object
	var text string
	switch item.Kind {
	case forebay.FeedJob:
		e := item.Job
		data = e
		text = strings.Join([]string{a.clock(e.At), e.JobID, string(e.Type), string(e.Status), e.Tenant, e.Queue, e.Task, e.ErrorCode}, "  ")
	case forebay.FeedSums:
		data = item.Sums
		parts := []string{a.clock(item.Sums.At)}
		for _, n := range item.Sums.Counts {
			parts = append(parts, fmt.Sprintf("%s %s %d", n.Queue, n.Type, n.Count))
		}
		text = strings.Join(parts, "  ")
	case forebay.FeedLost:
		data = item.Lost
		text = "lost: some events are missing"
		if item.Lost.Count > 0 {
			text = fmt.Sprintf("lost: at least %d events are missing", item.Lost.Count)
		}
	default:
		o := item.Object
		text = strings.Join([]string{a.clock(o.At), o.ID, string(o.Kind), o.Type, o.Tenant, o.Reason}, "  ")
	}
	if c.Output != command.OutputTable {
		return command.WriteJSON(c.Out, line{item.Kind, data}, "")
	}
	_, err := fmt.Fprintln(c.Out, command.Clean(strings.TrimRight(text, " ")))
	return err
}

// clock writes the time of an event.
func (a commands) clock(at time.Time) string { return at.In(a.Zone).Format("15:04:05.000") }
