package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// deadMessagesOf returns the client of the dead-letter subqueue of the queue that the command
// names. The command may name the subqueue itself.
func deadMessagesOf(c *command.Call) client.Messages {
	name, subscription, subqueue := forebay.CutEntityPath(c.Args[0])
	if subqueue != "" {
		return messagesOf(c)
	}
	if subscription != "" {
		name += "/subscriptions/" + subscription
	}
	return c.API.Messages(name + "/" + forebay.SubqueueDeadLetter)
}

// deadFlags select dead-lettered messages.
type deadFlags struct {
	filter forebay.DeadMessageFilter
	max    int
	more   bool // a dry run stopped counting early
}

func (f *deadFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.filter.Reason, "reason", "", "only with this reason, such as MaxDeliveryCountExceeded")
	allFlag(flags, &f.filter.All, "dead letters")
	dryRunFlag(flags, &f.filter.DryRun)
	maxFlag(flags, &f.max)
	flags.Int64Var(&f.filter.UpTo, "up-to", 0, "only those with at most this sequence number")
}

// choose adds the sequence numbers given as arguments. It requires exactly one way to select
// messages.
func (f *deadFlags) choose(c *command.Call) (err error) {
	if f.filter.SequenceNumbers, err = sequenceNumbers(c.Args[1:]); err != nil {
		return err
	}
	if f.max < 0 {
		return command.Usagef("--max must be at least 1")
	}
	return command.ExactlyOne("name messages by their sequence numbers, select them by --reason, or say --all",
		"sequence numbers, --reason and --all exclude each other",
		len(f.filter.SequenceNumbers) > 0, f.filter.Reason != "", f.filter.All)
}

// each repeats a call that handles a limited number of messages. If the call returns upTo, there
// may be more. A message that was redriven and dead-lettered again has a higher number, so it is
// not handled twice.
func (f *deadFlags) each(c *command.Call, do func(forebay.DeadMessageFilter) (n int, upTo int64, err error)) (total int, err error) {
	upTo := f.filter.UpTo
	for {
		filter := f.filter
		filter.UpTo = upTo
		filter.MaxMessages = forebay.MaxDeadMessagesPerCall
		if f.max > 0 {
			filter.MaxMessages = min(filter.MaxMessages, f.max-total)
		}
		n, next, err := do(filter)
		total, upTo = total+n, next
		f.more = filter.DryRun && upTo > 0 && f.max == 0
		if err != nil {
			return total, err
		}
		if upTo == 0 || n == 0 || filter.DryRun || f.max > 0 && total >= f.max {
			break
		}
	}
	if total == 0 && len(f.filter.SequenceNumbers) > 0 {
		err = command.ExitError(command.ExitNotFound, "none of the named messages is a dead letter of "+c.Args[0]+" that is not locked")
	}
	return total, err
}

// done writes how many messages were handled.
func (f *deadFlags) done(verb string, n int) []command.Field {
	number := strconv.Itoa(n)
	if f.more {
		number += " or more"
	}
	return []command.Field{done(verb, f.filter.DryRun, number)}
}

func (a messageCommands) redrive() *cobra.Command {
	var f deadFlags
	var body command.Content
	var properties forebay.Properties
	var rate float64
	c := command.Show(a.App, &cobra.Command{
		Use: "redrive QUEUE [SEQUENCE_NUMBER...]", Short: "Send dead-lettered messages back to their queue",
		Long: `Send dead-lettered messages back to their queue, or to their subscription, as new messages. Name
them by their sequence numbers, select them by --reason, or say --all. With --rate they become
active one after the other; until then they are scheduled messages of the queue. The body or the
properties of exactly one may be changed. With --dry-run the change is checked only.`,
		Example: `  forebay messages redrive mail --reason MaxDeliveryCountExceeded --dry-run
  forebay messages redrive mail --all --rate 5
  forebay messages redrive mail 4711 --set-body-file corrected.json
  forebay messages redrive orders/subscriptions/eu 4711 --set-property region=eu`,
	}, func(c *command.Call) (report forebay.RedrivenMessages, err error) {
		if err := f.choose(c); err != nil {
			return report, err
		}
		edit := &forebay.MessageEdit{Properties: properties}
		if edit.Body, edit.BodyBase64, err = readBody(&body, c); err != nil {
			return report, err
		}
		if edit.Body == nil && edit.BodyBase64 == nil && edit.Properties == nil {
			edit = nil
		}
		if edit != nil && len(f.filter.SequenceNumbers) != 1 {
			return report, command.Usagef("only one message at a time can be changed: name it by its sequence number")
		}
		if rate < 0 {
			return report, command.Usagef("--rate must not be negative")
		}
		var next *time.Time
		report.Redriven, err = f.each(c, func(filter forebay.DeadMessageFilter) (int, int64, error) {
			r, err := deadMessagesOf(c).Redrive(c.Ctx, forebay.RedriveMessagesRequest{DeadMessageFilter: filter, Edit: edit, RatePerSecond: rate, FirstAt: next})
			next = r.NextAt
			return r.Redriven, r.UpTo, err
		})
		report.More = f.more
		return report, err
	}, func(r forebay.RedrivenMessages) []command.Field { return f.done("redriven", r.Redriven) })
	f.add(c.Flags())
	c.Flags().Float64Var(&rate, "rate", 0, "how many become active a second; 0: all at once")
	body.Add(c.Flags(), "new body", "set-body", "set-body-file", "one message: replace the body by this text")
	command.PairsFlag(c.Flags(), "set-property", "name=value", ", a text; all given ones replace the message's properties",
		func(name, value string) error {
			if properties == nil {
				properties = forebay.Properties{}
			}
			properties[name] = value
			return nil
		})
	return aboutQueue(c)
}

func (a messageCommands) groups() *cobra.Command {
	return aboutQueue(command.List(a.App, &cobra.Command{
		Use: "groups [QUEUE]", Short: "Count the dead letters of a queue or subscription, or of all, by reason",
		Example: "  forebay messages groups\n  forebay messages groups mail\n  forebay messages groups orders/subscriptions/eu -o json",
	}, func(c *command.Call) (list []forebay.DeadMessageGroup, err error) {
		var groups forebay.DeadMessageGroups
		if len(c.Args) == 0 {
			groups, err = c.API.DeadMessageGroups(c.Ctx)
		} else {
			groups, err = deadMessagesOf(c).DeadGroups(c.Ctx)
			for i := range groups.Groups {
				groups.Groups[i].Queue = c.Args[0]
			}
		}
		if err == nil && !groups.Complete {
			c.Note("Only the newest " + command.Count(int64(groups.Counted)) + " dead letters were counted.")
		}
		return groups.Groups, err
	}, func(g forebay.DeadMessageGroup) []command.Field {
		return []command.Field{
			{"MESSAGES", strconv.Itoa(g.Count)}, {"QUEUE", g.Queue}, {"REASON", command.Shorten(g.Reason, 80)},
			{"NEWEST ENQUEUED", a.Age(g.NewestEnqueued)}, {"OLDEST ENQUEUED", a.Age(g.OldestEnqueued)}, {"EXAMPLE", strconv.FormatInt(g.Example, 10)},
		}
	}))
}

func (a messageCommands) purge() *cobra.Command {
	var f deadFlags
	c := command.Show(a.App, &cobra.Command{
		Use: "purge QUEUE [SEQUENCE_NUMBER...]", Short: "Remove dead-lettered messages for good",
		Long: `Remove dead-lettered messages of a queue or a subscription for good. Name them by their sequence
numbers, select them by --reason, or say --all.`,
		Example: `  forebay messages purge mail 4711 4712
  forebay messages purge mail --reason TTLExpiredException
  forebay messages purge orders/subscriptions/eu --all`,
	}, func(c *command.Call) (report forebay.PurgedMessages, err error) {
		if err := f.choose(c); err != nil {
			return report, err
		}
		report.Purged, err = f.each(c, func(filter forebay.DeadMessageFilter) (int, int64, error) {
			r, err := deadMessagesOf(c).PurgeDead(c.Ctx, filter)
			return r.Purged, r.UpTo, err
		})
		report.More = f.more
		return report, err
	}, func(r forebay.PurgedMessages) []command.Field { return f.done("purged", r.Purged) })
	f.add(c.Flags())
	return aboutQueue(c)
}
