package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
)

// settlements are the commands about a message that was received under a lock.
func (a *app) settlements() []*cobra.Command {
	return []*cobra.Command{
		a.settlement("complete", "Remove a message that has been dealt with", nil,
			func(c *call, token string, _ forebay.Settlement) error { return c.messages().Complete(c.ctx, token) }),
		a.settlement("abandon", "Give a message back at once", changeFlags,
			func(c *call, token string, how forebay.Settlement) error {
				return c.messages().Abandon(c.ctx, token, how)
			}),
		a.settlement("release", "Give a message back at once, as if it had not been delivered", nil,
			func(c *call, token string, _ forebay.Settlement) error { return c.messages().Release(c.ctx, token) }),
		a.settlement("defer", "Keep a message for receiving by its sequence number only", changeFlags,
			func(c *call, token string, how forebay.Settlement) error {
				return c.messages().Defer(c.ctx, token, how)
			}),
		a.settlement("dead-letter", "Move a message to the dead-letter subqueue", deadLetterFlags,
			func(c *call, token string, how forebay.Settlement) error {
				return c.messages().DeadLetter(c.ctx, token, how)
			}),
		a.renewCommand("renew QUEUE LOCK_TOKEN", "Hold a message for another lock duration",
			func(c *call) (time.Time, error) { return c.messages().Renew(c.ctx, c.args[1]) }),
	}
}

func (a *app) settlement(
	verb, short string, add func(*pflag.FlagSet, *forebay.Settlement), settle func(*call, string, forebay.Settlement) error,
) *cobra.Command {
	var how forebay.Settlement
	c := a.apiCommand(&cobra.Command{Use: verb + " QUEUE LOCK_TOKEN", Short: short}, func(c *call) error {
		return settle(c, c.args[1], how)
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
func (a *app) renewCommand(use, short string, renew func(*call) (time.Time, error)) *cobra.Command {
	type renewed struct {
		LockedUntil time.Time `json:"locked_until"`
	}
	return aboutQueue(showCommand(a, &cobra.Command{Use: use, Short: short}, func(c *call) (r renewed, err error) {
		r.LockedUntil, err = renew(c)
		return r, err
	}, func(r renewed) []field { return []field{{"locked until", a.when(r.LockedUntil)}} }))
}
