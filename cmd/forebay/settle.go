package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// settlements are the commands about a message that was received under a lock.
func settlements(a *command.App) []*cobra.Command {
	return []*cobra.Command{
		settlement(a, "complete", "Remove a message that has been dealt with", nil,
			func(c *command.Call, token string, _ forebay.Settlement) error {
				return messagesOf(c).Complete(c.Ctx, token)
			}),
		settlement(a, "abandon", "Give a message back at once", changeFlags,
			func(c *command.Call, token string, how forebay.Settlement) error {
				return messagesOf(c).Abandon(c.Ctx, token, how)
			}),
		settlement(a, "release", "Give a message back at once, as if it had not been delivered", nil,
			func(c *command.Call, token string, _ forebay.Settlement) error {
				return messagesOf(c).Release(c.Ctx, token)
			}),
		settlement(a, "defer", "Keep a message for receiving by its sequence number only", changeFlags,
			func(c *command.Call, token string, how forebay.Settlement) error {
				return messagesOf(c).Defer(c.Ctx, token, how)
			}),
		settlement(a, "dead-letter", "Move a message to the dead-letter subqueue", deadLetterFlags,
			func(c *command.Call, token string, how forebay.Settlement) error {
				return messagesOf(c).DeadLetter(c.Ctx, token, how)
			}),
		renewCommand(a, "renew QUEUE LOCK_TOKEN", "Hold a message for another lock duration",
			func(c *command.Call) (time.Time, error) { return messagesOf(c).Renew(c.Ctx, c.Args[1]) }),
	}
}

func settlement(
	a *command.App, verb, short string, add func(*pflag.FlagSet, *forebay.Settlement), settle func(*command.Call, string, forebay.Settlement) error,
) *cobra.Command {
	var how forebay.Settlement
	c := a.APICommand(&cobra.Command{Use: verb + " QUEUE LOCK_TOKEN", Short: short}, func(c *command.Call) error {
		return settle(c, c.Args[1], how)
	})
	if add != nil {
		add(c.Flags(), &how)
	}
	return aboutQueue(c)
}

func changeFlags(flags *pflag.FlagSet, how *forebay.Settlement) {
	propertyFlag(flags, &how.Properties, ", an application property to change")
}

func deadLetterFlags(flags *pflag.FlagSet, how *forebay.Settlement) {
	changeFlags(flags, how)
	flags.StringVar(&how.Reason, "reason", "", "why")
	flags.StringVar(&how.Description, "description", "", "more about why")
}

// renewCommand renews a lock and prints its new end.
func renewCommand(a *command.App, use, short string, renew func(*command.Call) (time.Time, error)) *cobra.Command {
	type renewed struct {
		LockedUntil time.Time `json:"locked_until"`
	}
	return aboutQueue(command.Show(a, &cobra.Command{Use: use, Short: short}, func(c *command.Call) (r renewed, err error) {
		r.LockedUntil, err = renew(c)
		return r, err
	}, func(r renewed) []command.Field { return []command.Field{{"locked until", a.When(r.LockedUntil)}} }))
}
