package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) orchestrations() *cobra.Command {
	c := a.group("orchestrations", "Start orchestrations, look at them, send them events, end and purge them",
		`An orchestration is a function whose steps are recorded: it survives crashes, and may wait for months. The functions are
those of a program that embeds the server, or of workers that connect to orchestrations.grpc.address.`,
		a.orchestrationsStart(), a.orchestrationsList(), a.orchestrationsGet(), a.orchestrationsHistory(), a.orchestrationsAttempts(), a.orchestrationsRaise(),
		a.instanceVerb("suspend", "Keep an instance from going on until it is resumed", "suspended", (*client.Client).SuspendOrchestration),
		a.instanceVerb("resume", "Let a suspended instance go on", "resumed", (*client.Client).ResumeOrchestration),
		a.instanceVerb("terminate", "End an instance, and those that it has called", "terminated", (*client.Client).TerminateOrchestration),
		a.orchestrationsRestart(),
		a.instanceVerb("rewind", "Let an instance that has failed go on: what failed in it is done again", "rewound", (*client.Client).RewindOrchestration),
		a.orchestrationsPurge())
	c.Aliases = []string{"orchestration"}
	return c
}

// payloadFlags are the JSON that an instance or an event is given, which may be left out.
type payloadFlags struct {
	input, file string
	text        bool
}

func (f *payloadFlags) add(c *cobra.Command, what string) {
	c.Flags().StringVar(&f.input, "input", "", what+": JSON")
	c.Flags().StringVar(&f.file, "file", "", "file with it; - is standard input")
	c.Flags().BoolVar(&f.text, "text", false, "it is text, not JSON")
}

func (f *payloadFlags) read(a *app, c *cobra.Command) (json.RawMessage, error) {
	var data []byte
	switch {
	case c.Flags().Changed("input") && f.file != "":
		return nil, usagef("give it once: by --input or by --file")
	case c.Flags().Changed("input"):
		data = []byte(f.input)
	case f.file != "":
		var err error
		if data, err = a.readFile(c.Context(), f.file, maxInputBytes); err != nil {
			return nil, err
		}
	default:
		if f.text {
			return nil, usagef("--text says that there is a text; give it by --input or --file")
		}
		return nil, nil
	}
	value, err := asInput(data, !f.text)
	if err != nil && !f.text {
		if !json.Valid(bytes.TrimSpace(data)) {
			return nil, usagef("that is not valid JSON; say --text to send it as a text")
		}
		return nil, err
	}
	return value, err
}

func (a *app) orchestrationsStart() *cobra.Command {
	var payload payloadFlags
	var id string
	var wait bool
	c := &cobra.Command{
		Use: "start ORCHESTRATOR", Short: "Start an instance of an orchestrator", Args: arguments(1, "ORCHESTRATOR"),
		Long: "Start an instance of an orchestrator and print its id. It is on disk when the command returns; with --wait the command\n" +
			"stays until the instance is over and prints its output.",
		Example: `  forebay orchestrations start order --input '{"number":4711}' --id order-4711
  forebay orchestrations start greet --text --input world --wait
  forebay orchestrations start report --file request.json`,
		RunE: func(c *cobra.Command, args []string) error {
			input, err := payload.read(a, c)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			started, err := api.StartOrchestration(c.Context(), args[0], id, input)
			if err != nil {
				return err
			}
			return a.printStarted(c.Context(), api, started, wait)
		},
	}
	payload.add(c, "the input")
	c.Flags().StringVar(&id, "id", "", "id of the instance (default: a new one)")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over and print its output")
	return c
}

// printStarted prints an instance that has just been started: its id, or how it ended.
func (a *app) printStarted(ctx context.Context, api *client.Client, id string, wait bool) error {
	switch {
	case !wait && a.output == outputTable:
		_, err := fmt.Fprintln(a.out, clean(id))
		return err
	case !wait:
		o, err := api.Orchestration(ctx, id)
		if err != nil {
			return a.advise(ctx, err, "the instance is on disk: "+id)
		}
		return a.printInstance(o)
	}
	o, err := a.awaitInstance(ctx, id)
	switch {
	case err != nil:
		return err
	case a.output != outputTable:
		err = a.printInstance(o)
	case o.Status == forebay.OrchestrationCompleted:
		_, err = fmt.Fprintf(plainJSON(a.out), "%s\n", orNull(o.Output))
	}
	if err != nil {
		return err
	}
	return endedInstance(o)
}

func (a *app) awaitInstance(ctx context.Context, id string) (forebay.Orchestration, error) {
	api, err := a.patient()
	if err != nil {
		return forebay.Orchestration{}, err
	}
	o, err := api.WaitOrchestration(ctx, id)
	switch {
	case err == nil:
		return o, nil
	case ctx.Err() != nil:
		return o, &failure{exitInterrupted, "interrupted; the instance goes on: forebay orchestrations get " + id}
	}
	return o, a.advise(ctx, err, "the instance is on disk: forebay orchestrations get "+id)
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// endedInstance is the error of an instance that did not complete.
func endedInstance(o forebay.Orchestration) error {
	switch {
	case o.Status == forebay.OrchestrationCompleted:
		return nil
	case o.Failure != nil:
		return failf("%s %s: %s", o.ID, o.Status, failureText(o.Failure))
	case len(o.Output) > 0 && string(o.Output) != "null":
		return failf("%s %s: %s", o.ID, o.Status, o.Output)
	}
	return failf("%s %s", o.ID, o.Status)
}

// instanceFlags select instances.
type instanceFlags struct {
	filter        client.OrchestrationFilter
	statuses      []string
	after, before string
}

func (f *instanceFlags) add(c *cobra.Command, statuses []forebay.OrchestrationStatus) {
	c.Flags().StringSliceVar(&f.statuses, "status", nil, "only these: "+joined(statuses))
	c.Flags().StringVar(&f.filter.Prefix, "prefix", "", "only ids that begin so")
	c.Flags().StringVar(&f.after, "created-after", "", "only instances made after this time, or less long ago than this")
	c.Flags().StringVar(&f.before, "created-before", "", "only instances made before this time, or longer ago than this")
}

func (f *instanceFlags) get(a *app, statuses []forebay.OrchestrationStatus) (client.OrchestrationFilter, error) {
	for _, s := range f.statuses {
		status, ok := findFold(statuses, s)
		if !ok {
			return f.filter, usagef("--status takes no %q here; there are %s", s, joined(statuses))
		}
		f.filter.Statuses = append(f.filter.Statuses, status)
	}
	for _, bound := range []struct {
		flag, value string
		to          *time.Time
	}{{"created-after", f.after, &f.filter.From}, {"created-before", f.before, &f.filter.Until}} {
		at, err := a.parseTime(bound.flag, bound.value, true)
		if err != nil {
			return f.filter, err
		}
		if at != nil {
			*bound.to = *at
		}
	}
	return f.filter, nil
}

func (a *app) orchestrationsList() *cobra.Command {
	var f instanceFlags
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List instances, newest first", Args: arguments(0),
		Example: `  forebay orchestrations list --status running,suspended
  forebay orchestrations list --name order --created-after 24h --limit 0 -o jsonl`,
		RunE: func(c *cobra.Command, _ []string) error {
			filter, err := f.get(a, forebay.OrchestrationStatuses)
			if err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			filter.Limit = pageSize(limit)
			api, err := a.client()
			if err != nil {
				return err
			}
			return printList(a, api.Orchestrations(c.Context(), filter), limit, []column[forebay.Orchestration]{
				{"INSTANCE", func(o forebay.Orchestration) string { return o.ID }},
				{"STATUS", func(o forebay.Orchestration) string { return string(o.Status) }},
				{"ORCHESTRATOR", func(o forebay.Orchestration) string { return o.Name }},
				{"CREATED", func(o forebay.Orchestration) string { return a.age(o.CreatedAt) }},
				{"UPDATED", func(o forebay.Orchestration) string { return a.age(o.UpdatedAt) }},
				{"CUSTOM STATUS", func(o forebay.Orchestration) string { return shortJSON(o.CustomStatus, 40) }},
				{"ERROR", func(o forebay.Orchestration) string { return shorten(failureText(o.Failure), 60) }},
			})
		},
	}
	f.add(c, forebay.OrchestrationStatuses)
	c.Flags().StringVar(&f.filter.Name, "name", "", "only of this orchestrator")
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return c
}

// shortJSON is a value in few characters; nothing is "".
func shortJSON(v json.RawMessage, n int) string {
	if string(v) == "null" {
		return ""
	}
	return shorten(string(v), n)
}

// failureText says why something failed. A type that is one of Go's tells a user nothing.
func failureText(f *forebay.OrchestrationFailure) string {
	switch {
	case f == nil:
		return ""
	case f.Type == "" || strings.HasPrefix(f.Type, "*"):
		return f.Message
	}
	return f.Type + ": " + f.Message
}

func (a *app) orchestrationsGet() *cobra.Command {
	wait := false
	c := a.about("INSTANCE", "get", "Show an instance", "  forebay orchestrations get order-4711 --wait", func(ctx context.Context, api *client.Client, id string) error {
		o, err := api.Orchestration(ctx, id)
		if err == nil && wait && !o.Status.Terminal() {
			o, err = a.awaitInstance(ctx, id)
		}
		if err != nil {
			return err
		}
		return a.printInstance(o)
	})
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over")
	return c
}

func (a *app) printInstance(o forebay.Orchestration) error {
	output := ""
	if o.Failure == nil {
		output = shortJSON(o.Output, 400)
	}
	return a.printOne(o, [][2]string{
		{"instance", o.ID},
		{"status", string(o.Status)},
		{"orchestrator", o.Name},
		{"version", o.Version},
		{"called by", o.ParentID},
		{"created", a.when(o.CreatedAt)},
		{"started", a.whenPtr(o.StartedAt)},
		{"updated", a.when(o.UpdatedAt)},
		{"completed", a.whenPtr(o.CompletedAt)},
		{"input", shortJSON(o.Input, 400)},
		{"custom status", shortJSON(o.CustomStatus, 400)},
		{"error", shorten(failureText(o.Failure), 400)},
		{"output", output},
	})
}

func (a *app) orchestrationsHistory() *cobra.Command {
	c := a.about("INSTANCE", "history", "Show what has happened in an instance", "  forebay orchestrations history order-4711", func(ctx context.Context, api *client.Client, id string) error {
		events, err := api.OrchestrationHistory(ctx, id)
		if err != nil {
			return err
		}
		return printList(a, all(events), 0, []column[forebay.OrchestrationEvent]{
			{"AT", func(e forebay.OrchestrationEvent) string {
				return e.Timestamp.In(a.zone).Format("2006-01-02 15:04:05.000")
			}},
			{"EVENT", func(e forebay.OrchestrationEvent) string { return e.Type }},
			{"ID", func(e forebay.OrchestrationEvent) string {
				if e.EventID < 0 {
					return ""
				}
				return strconv.Itoa(e.EventID)
			}},
			{"NAME", func(e forebay.OrchestrationEvent) string { return e.Function + e.Name }},
			{"TOOK", func(e forebay.OrchestrationEvent) string {
				if e.ScheduledAt == nil {
					return ""
				}
				return e.Timestamp.Sub(*e.ScheduledAt).Round(time.Millisecond).String()
			}},
			{"DETAIL", func(e forebay.OrchestrationEvent) string { return a.eventDetail(e) }},
		})
	})
	c.Long = "Show what has happened in an instance's current execution: a call, a timer or a sub-orchestration stands where it ended, or\n" +
		"where it was asked for while it has not."
	return c
}

// eventDetail is what an event brought, or where it leads.
func (a *app) eventDetail(e forebay.OrchestrationEvent) string {
	const width = 60
	switch {
	case e.Failure != nil:
		return shorten(failureText(e.Failure), width)
	case e.Reason != "":
		return shorten(e.Reason, width)
	case e.Type == "TimerCreated" && e.FireAt != nil:
		return a.age(*e.FireAt)
	case len(e.Result) > 0:
		return shortJSON(e.Result, width)
	case e.InstanceID != "":
		return shorten(e.InstanceID, width)
	}
	return shortJSON(e.Input, width)
}

func (a *app) orchestrationsAttempts() *cobra.Command {
	c := a.about("INSTANCE", "attempts", "List the attempts of an instance's activities", "", func(ctx context.Context, api *client.Client, id string) error {
		attempts, err := api.ActivityAttempts(ctx, id)
		if err != nil {
			return err
		}
		return printList(a, all(attempts), 0, []column[forebay.ActivityAttempt]{
			{"RUN", func(t forebay.ActivityAttempt) string { return strconv.Itoa(t.Run) }},
			{"ID", func(t forebay.ActivityAttempt) string { return strconv.Itoa(t.EventID) }},
			{"ACTIVITY", func(t forebay.ActivityAttempt) string { return t.Name }},
			{"ATTEMPT", func(t forebay.ActivityAttempt) string { return strconv.Itoa(t.Number) }},
			{"OUTCOME", func(t forebay.ActivityAttempt) string { return t.Outcome }},
			{"STARTED", func(t forebay.ActivityAttempt) string { return a.age(t.StartedAt) }},
			{"TOOK", func(t forebay.ActivityAttempt) string {
				return t.FinishedAt.Sub(t.StartedAt).Round(time.Millisecond).String()
			}},
			{"NEXT", func(t forebay.ActivityAttempt) string { return seconds(t.RetryDelaySeconds) }},
			{"ERROR", func(t forebay.ActivityAttempt) string {
				return shorten(failureText(&forebay.OrchestrationFailure{Type: t.ErrorType, Message: t.ErrorMessage}), 60)
			}},
		})
	})
	c.Long = `List the attempts of an instance's activities. The ID is that of the activity in the history of its run:
another begins whenever the instance continues as new or is rewound. When it continues as new about a
thousand attempts are kept, the newest. cut_off: the instance ended, or continued as new, before the attempt.`
	return c
}
