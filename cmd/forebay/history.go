package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

func (a orchestrationCommands) history() *cobra.Command {
	return command.List(a.App, &cobra.Command{
		Use: "history INSTANCE", Short: "Show what has happened in an instance",
		Long: `Show what has happened in an instance's current execution. A call, a timer or a sub-orchestration
stands where it ended, or where it was asked for while it has not.`,
	}, func(c *command.Call) ([]forebay.OrchestrationEvent, error) {
		return c.API.OrchestrationHistory(c.Ctx, c.Args[0])
	},
		func(e forebay.OrchestrationEvent) []command.Field {
			id, duration := "", ""
			if e.EventID >= 0 {
				id = strconv.Itoa(e.EventID)
			}
			if e.ScheduledAt != nil {
				duration = command.Took(*e.ScheduledAt, e.Timestamp)
			}
			return []command.Field{
				{"AT", e.Timestamp.In(a.Zone).Format("2006-01-02 15:04:05.000")}, {"EVENT", e.Type},
				{"ID", id}, {"NAME", e.Function + e.Name}, {"TOOK", duration},
				{"DETAIL", a.eventDetail(e)},
			}
		})
}

// eventDetail returns the most telling part of an event: its failure, reason, result, input or the
// like.
func (a orchestrationCommands) eventDetail(e forebay.OrchestrationEvent) string {
	const width = 60
	switch {
	case e.Failure != nil:
		return command.Shorten(failureText(e.Failure), width)
	case e.Reason != "":
		return command.Shorten(e.Reason, width)
	case e.Type == "TimerCreated" && e.FireAt != nil:
		return a.Age(*e.FireAt)
	case len(e.Result) > 0:
		return command.ShortJSON(e.Result, width)
	case e.InstanceID != "":
		return command.Shorten(e.InstanceID, width)
	}
	return command.ShortJSON(e.Input, width)
}

func (a orchestrationCommands) attempts() *cobra.Command {
	return command.List(a.App, &cobra.Command{
		Use: "attempts INSTANCE", Short: "List the attempts of an instance's activities",
		Long: `List the attempts of an instance's activities. The ID is that of the activity in the history of
its run. Another run begins whenever the instance continues as new or is rewound. When it
continues as new, about the newest thousand attempts are kept.

The outcome cut_off says that the instance ended, or continued as new, before the attempt did.`,
	}, command.OfArgument((*client.Client).ActivityAttempts),
		func(t forebay.ActivityAttempt) []command.Field {
			return []command.Field{
				{"RUN", strconv.Itoa(t.Run)}, {"ID", strconv.Itoa(t.EventID)}, {"ACTIVITY", t.Name},
				{"ATTEMPT", strconv.Itoa(t.Number)}, {"OUTCOME", t.Outcome},
				{"STARTED", a.Age(t.StartedAt)}, {"TOOK", command.Took(t.StartedAt, t.FinishedAt)},
				{"NEXT", command.Seconds(t.RetryDelaySeconds)},
				{"ERROR", command.Shorten(failureText(&forebay.OrchestrationFailure{Type: t.ErrorType, Message: t.ErrorMessage}), 60)},
			}
		})
}
