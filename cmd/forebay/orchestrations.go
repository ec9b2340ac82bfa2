package main

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/shell"
)

// orchestrationCommands are the commands about instances of orchestrations.
type orchestrationCommands struct{ *command.App }

func (a orchestrationCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "orchestrations", Short: "Start orchestrations, see them, send them events, end and purge them",
		Long: `An orchestration is a function whose steps are recorded. It survives crashes, and may wait for
months. The functions are those of a program that embeds the server, or of workers that connect
to orchestrations.grpc.address.`,
	},
		a.list(), a.show(), a.start(), a.raise(),
		a.history(), a.attempts(),
		a.verb(&cobra.Command{
			Use: "suspend INSTANCE", Aliases: []string{"pause"}, Short: "Keep an instance from going on until it is resumed",
		}, "suspended", (*client.Client).SuspendOrchestration),
		a.verb(&cobra.Command{Use: "resume INSTANCE", Short: "Let a suspended instance go on"},
			"resumed", (*client.Client).ResumeOrchestration),
		a.verb(&cobra.Command{Use: "terminate INSTANCE", Short: "End an instance, and those that it has called"},
			"terminated", (*client.Client).TerminateOrchestration),
		a.verb(&cobra.Command{Use: "rewind INSTANCE", Short: "Let a failed instance go on: what failed in it is done again"},
			"rewound", (*client.Client).RewindOrchestration),
		a.restart(), a.purge())
}

// instanceFlags select instances.
type instanceFlags struct {
	filter        client.OrchestrationFilter
	before, after *time.Time
}

func (f *instanceFlags) add(a *command.App, flags *pflag.FlagSet, statuses []forebay.OrchestrationStatus) {
	command.StatusFlag(flags, &f.filter.Statuses, statuses)
	flags.StringVar(&f.filter.Prefix, "prefix", "", "only ids that begin so")
	periodFlags(a, flags, &f.before, &f.after, "created")
}

// selection returns the filter that the flags make.
func (f *instanceFlags) selection() client.OrchestrationFilter {
	filter := f.filter
	if f.after != nil {
		filter.From = *f.after
	}
	if f.before != nil {
		filter.Until = *f.before
	}
	return filter
}

func (a orchestrationCommands) list() *cobra.Command {
	var f instanceFlags
	c := command.Page(a.App, &cobra.Command{
		Use: "list", Short: "List instances, newest first",
		Example: `  forebay orchestrations list --status running,suspended
  forebay orchestrations list --name order --after 24h --limit 0 -o jsonl`,
	}, func(c *command.Call, pageSize int) iter.Seq2[forebay.Orchestration, error] {
		filter := f.selection()
		filter.Limit = pageSize
		return c.API.Orchestrations(c.Ctx, filter)
	}, func(o forebay.Orchestration) []command.Field {
		return []command.Field{
			{"INSTANCE", o.ID}, {"STATUS", string(o.Status)}, {"ORCHESTRATOR", o.Name},
			{"CREATED", a.Age(o.CreatedAt)}, {"UPDATED", a.Age(o.UpdatedAt)},
			{"CUSTOM STATUS", command.ShortJSON(o.CustomStatus, 40)},
			{"ERROR", command.Shorten(failureText(o.Failure), 60)},
		}
	})
	f.add(a.App, c.Flags(), forebay.OrchestrationStatuses)
	c.Flags().StringVar(&f.filter.Name, "name", "", "only of this orchestrator")
	return c
}

func (a orchestrationCommands) show() *cobra.Command {
	var wait bool
	c := command.Show(a.App, &cobra.Command{
		Use: "show INSTANCE", Short: "Show an instance", Example: "  forebay orchestrations show order-4711 --wait",
	}, func(c *command.Call) (forebay.Orchestration, error) {
		o, err := c.API.Orchestration(c.Ctx, c.Args[0])
		if err != nil || !wait || o.Status.Terminal() {
			return o, err
		}
		return awaitInstance(c, c.Args[0])
	}, a.fields)
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over")
	return c
}

func (a orchestrationCommands) fields(o forebay.Orchestration) []command.Field {
	output := ""
	if o.Failure == nil {
		output = command.ShortJSON(o.Output, 400)
	}
	return []command.Field{
		{"instance", o.ID},
		{"status", string(o.Status)},
		{"orchestrator", o.Name},
		{"version", o.Version},
		{"called by", o.ParentID},
		{"created", a.When(o.CreatedAt)},
		{"started", a.WhenPtr(o.StartedAt)},
		{"updated", a.When(o.UpdatedAt)},
		{"completed", a.WhenPtr(o.CompletedAt)},
		{"input", command.ShortJSON(o.Input, 400)},
		{"custom status", command.ShortJSON(o.CustomStatus, 400)},
		{"error", command.Shorten(failureText(o.Failure), 400)},
		{"output", output},
	}
}

// failureText says why something failed. It leaves out types of Go, which tell a user nothing.
func failureText(f *forebay.OrchestrationFailure) string {
	switch {
	case f == nil:
		return ""
	case f.Type == "" || strings.HasPrefix(f.Type, "*"):
		return f.Message
	}
	return f.Type + ": " + f.Message
}

// payload is the optional JSON input of an instance or an event.
type payload struct {
	command.Content
	isText bool
}

func (p *payload) add(flags *pflag.FlagSet, what string) {
	p.Add(flags, what, "input", "file", "the "+what+": JSON")
	flags.BoolVar(&p.isText, "text", false, "it is text, not JSON")
}

func (p *payload) read(c *command.Call) (json.RawMessage, error) {
	data, given, err := p.Read(c, maxInputBytes)
	switch {
	case err != nil:
		return nil, err
	case !given && p.isText:
		return nil, command.Usagef("--text says that there is a text; give it by --input or --file")
	case !given:
		return nil, nil
	case !p.isText && !json.Valid(bytes.TrimSpace(data)):
		return nil, command.Usagef("that is not valid JSON; say --text to send it as a text")
	}
	return asInput(data, !p.isText)
}

func (a orchestrationCommands) start() *cobra.Command {
	var input payload
	var id string
	var wait bool
	c := a.APICommand(&cobra.Command{
		Use: "start ORCHESTRATOR", Short: "Start an instance of an orchestrator",
		Long: `Start an instance of an orchestrator and print its id. It is on disk when the command returns.
With --wait the command stays until the instance is over and prints its output.`,
		Example: `  forebay orchestrations start order --input '{"number":4711}' --id order-4711
  forebay orchestrations start greet --text --input world --wait
  forebay orchestrations start report --file request.json`,
	}, func(c *command.Call) error {
		data, err := input.read(c)
		if err != nil {
			return err
		}
		started, err := c.API.StartOrchestration(c.Ctx, c.Args[0], id, data)
		if err != nil {
			return err
		}
		return printStarted(c, started, wait)
	})
	input.add(c.Flags(), "input")
	c.Flags().StringVar(&id, "id", "", "id of the instance (default: a new one)")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over and print its output")
	return c
}

// printStarted prints the id of an instance that has just started. With wait it prints the output.
func printStarted(c *command.Call, id string, wait bool) error {
	switch {
	case !wait && c.Output == command.OutputTable:
		return c.Say("%s", id)
	case !wait:
		o, err := c.API.Orchestration(c.Ctx, id)
		if err != nil {
			return c.Advise(c.Ctx, err, "the instance is on disk: "+id)
		}
		return c.PrintJSON(o)
	}
	o, err := awaitInstance(c, id)
	switch {
	case err != nil:
		return err
	case c.Output != command.OutputTable:
		err = c.PrintJSON(o)
	case o.Status == forebay.OrchestrationCompleted:
		err = command.WriteLine(command.PlainJSON(c.Out), orNull(o.Output))
	}
	if err != nil {
		return err
	}
	return endedInstance(o)
}

// awaitInstance waits until an instance is over.
func awaitInstance(c *command.Call, id string) (forebay.Orchestration, error) {
	o, err := command.Await(c, (*client.Client).WaitOrchestration, id)
	if err != nil {
		err = c.StillThere(c.Ctx, err, "the instance", "forebay orchestrations show "+shell.Args(id))
	}
	return o, err
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// endedInstance returns the error of an instance that did not complete.
func endedInstance(o forebay.Orchestration) error {
	switch {
	case o.Status == forebay.OrchestrationCompleted:
		return nil
	case o.Failure != nil:
		return command.Failf("%s %s: %s", o.ID, o.Status, failureText(o.Failure))
	case len(o.Output) > 0 && string(o.Output) != "null":
		return command.Failf("%s %s: %s", o.ID, o.Status, o.Output)
	}
	return command.Failf("%s %s", o.ID, o.Status)
}

func (a orchestrationCommands) raise() *cobra.Command {
	var event payload
	c := a.APICommand(&cobra.Command{
		Use: "raise INSTANCE EVENT", Short: "Send an instance an event",
		Long:    "Send an instance an event. One that it does not wait for yet is kept until it does.",
		Example: "  forebay orchestrations raise order-4711 approved --input true",
	}, func(c *command.Call) error {
		data, err := event.read(c)
		if err != nil {
			return err
		}
		if err := c.API.RaiseEvent(c.Ctx, c.Args[0], c.Args[1], data); err != nil {
			return err
		}
		return c.Say("%s was sent %s", c.Args[0], c.Args[1])
	})
	event.add(c.Flags(), "event's data")
	return aboutRunning(c)
}

// instanceVerb is a command that requests a change of an instance. The change happens soon after.
func (a orchestrationCommands) verb(c *cobra.Command, done string, do func(*client.Client, context.Context, string, string) error) *cobra.Command {
	var reason string
	a.APICommand(c, func(c *command.Call) error {
		if err := do(c.API, c.Ctx, c.Args[0], reason); err != nil {
			return err
		}
		return c.Say("%s will be %s", c.Args[0], done)
	})
	c.Example = "  forebay orchestrations " + c.Name() + ` order-4711 --reason "as the customer wishes"`
	c.Flags().StringVar(&reason, "reason", "", "why; it is kept in the history")
	return aboutRunning(c)
}

func (a orchestrationCommands) restart() *cobra.Command {
	var sameID, wait bool
	c := a.APICommand(&cobra.Command{
		Use: "restart INSTANCE", Short: "Start an instance anew, with its input",
		Long:    "Start an instance anew, with its input, and print the id: a new one, unless --same-id is given.",
		Example: "  forebay orchestrations restart order-4711 --same-id",
	}, func(c *command.Call) error {
		started, err := c.API.RestartOrchestration(c.Ctx, c.Args[0], !sameID)
		if err != nil {
			return err
		}
		return printStarted(c, started, wait)
	})
	c.Flags().BoolVar(&sameID, "same-id", false, "under its own id: it has to be over, and its history is deleted")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over and print its output")
	return c
}

func (a orchestrationCommands) purge() *cobra.Command {
	var f instanceFlags
	var everything bool
	type purged struct {
		Instances int `json:"instancesDeleted"`
	}
	c := command.Show(a.App, &cobra.Command{
		Use: "purge [INSTANCE]", Short: "Delete instances that are over, with their histories",
		Long: `Delete instances that are over, with their histories: one, or those that flags select. The server
deletes old ones by itself: see retention in its configuration.`,
		Example: `  forebay orchestrations purge order-4711
  forebay orchestrations purge --before 30d --status completed
  forebay orchestrations purge --all`,
	}, func(c *command.Call) (p purged, err error) {
		// An empty value, such as --prefix=, still counts as a selection. Such a mistake must not
		// delete more.
		selected := slices.ContainsFunc([]string{"status", "prefix", "before", "after"}, c.Flags.Changed)
		if err := command.ExactlyOne("name an instance, select some by flags, or say --all",
			"an instance, a selection and --all exclude each other", len(c.Args) > 0, selected, everything); err != nil {
			return p, err
		}
		if len(c.Args) == 1 {
			return purged{1}, c.API.PurgeOrchestration(c.Ctx, c.Args[0])
		}
		p.Instances, err = c.API.PurgeOrchestrations(c.Ctx, f.selection())
		return p, err
	}, func(p purged) []command.Field { return []command.Field{{"purged", strconv.Itoa(p.Instances)}} })
	f.add(a.App, c.Flags(), []forebay.OrchestrationStatus{
		forebay.OrchestrationCompleted, forebay.OrchestrationFailed, forebay.OrchestrationTerminated, forebay.OrchestrationCanceled,
	})
	allFlag(c.Flags(), &everything, "that are over")
	return c
}
