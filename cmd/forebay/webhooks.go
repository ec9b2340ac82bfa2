package main

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// webhookCommands are the commands about webhooks.
type webhookCommands struct{ *command.App }

func (a webhookCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "webhooks", Short: "Have the events of jobs delivered to HTTP endpoints",
		Long: `A webhook gets the events of its tenant's jobs as signed POST requests (Standard Webhooks). A
delivery that fails is tried ten times over three days. Then it stands among the webhook's dead
letters.

The types of events: accepted, started, attempt_failed, throttled, retry_scheduled, succeeded,
failed, dead_lettered, quarantined, cancelled, expired, redriven.`,
	},
		command.List(a.App, &cobra.Command{Use: "list", Short: "List webhooks"},
			command.OfServer((*client.Client).Webhooks), webhookColumns),
		command.Show(a.App, &cobra.Command{Use: "show WEBHOOK", Short: "Show a webhook"},
			command.OfArgument((*client.Client).Webhook), a.fields),
		a.create(), a.update(),
		command.Conditional(a.APICommand(&cobra.Command{Use: "delete WEBHOOK", Short: "Delete a webhook, with every event that waits for it"},
			func(c *command.Call) error { return c.API.DeleteWebhook(c.Ctx, c.Args[0]) }), false),
		a.test(), a.rotate(), a.tries(), a.deadLetters(), a.redeliver())
}

func webhookColumns(w forebay.Webhook) []command.Field {
	return []command.Field{
		{"WEBHOOK", w.Name}, {"STATE", webhookState(w)}, {"PENDING", command.Count(w.Pending)},
		{"DEAD-LETTER", command.Count(w.DeadLetters)}, {"LAST TRY", command.IfSet(w.LastTry, tryResult)},
		{"EVENTS", orAll(w)}, {"URL", command.Shorten(w.URL, 60)},
	}
}

func (a webhookCommands) fields(w forebay.Webhook) []command.Field {
	return []command.Field{
		{"webhook", w.Name},
		{"url", w.URL},
		{"secret", w.Secret},
		{"state", webhookState(w)},
		{"events", orAll(w)},
		{"concurrency", strconv.Itoa(w.Concurrency)},
		{"secrets", strconv.Itoa(w.Secrets)},
		{"pending", command.Count(w.Pending)},
		{"dead-letter", command.Count(w.DeadLetters)},
		{"delivered", a.WhenPtr(w.DeliveredAt)},
		{"failing since", a.WhenPtr(w.FailingSince)},
		{"paused until", a.WhenPtr(w.PausedUntil)},
		{"last try", command.IfSet(w.LastTry, tryResult)},
		{"created", a.When(w.CreatedAt)},
	}
}

func webhookState(w forebay.Webhook) string {
	switch w.DisabledReason {
	case "":
		return "active"
	case forebay.WebhookDisabled:
		return "disabled"
	}
	return "disabled: " + strings.ReplaceAll(w.DisabledReason, "_", " ")
}

func orAll(w forebay.Webhook) string {
	if len(w.EventTypes) == 0 {
		return "all"
	}
	return command.Joined(w.EventTypes)
}

// tryResult writes how a delivery attempt ended, such as "retry: status 503".
func tryResult(t forebay.WebhookTry) string {
	result := strings.ReplaceAll(t.Outcome, "_", "-")
	if t.Detail != "" {
		return result + ": " + t.Detail
	}
	return result + ": status " + strconv.Itoa(t.Status)
}

// webhookFlags are the settings of a webhook.
type webhookFlags struct {
	settings forebay.WebhookSettings
	events   []string
}

func (f *webhookFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.events, "events", nil, "only events of these types (default: all)")
	flags.IntVar(&f.settings.Concurrency, "concurrency", 0,
		fmt.Sprintf("deliveries at once, from all processes together (default %d)", forebay.DefaultWebhookConcurrency))
	flags.BoolVar(&f.settings.Disabled, "disabled", false, "gets no events")
}

func (f *webhookFlags) get() forebay.WebhookSettings {
	for _, name := range f.events {
		f.settings.EventTypes = append(f.settings.EventTypes, forebay.EventType(name))
	}
	return f.settings
}

// secretCommand is a command that prints a webhook with its secret, which is shown only once.
func (a webhookCommands) secretCommand(c *cobra.Command, ask func(*command.Call) (forebay.Webhook, error)) *cobra.Command {
	return command.Show(a.App, c, func(c *command.Call) (forebay.Webhook, error) {
		w, err := ask(c)
		if err == nil {
			c.Note("This is the only time the secret is shown.")
		}
		return w, err
	}, a.fields)
}

func secretFlag(flags *pflag.FlagSet, to *string) {
	flags.StringVar(to, "secret", "", "sign with this secret, whsec_… (default: a new one)")
}

func (a webhookCommands) create() *cobra.Command {
	var wanted forebay.NewWebhook
	var f webhookFlags
	c := a.secretCommand(&cobra.Command{
		Use: "create WEBHOOK URL", Short: "Make a webhook and print its secret, once",
		Example: "  forebay webhooks create billing https://billing.example.com/forebay --events succeeded,failed",
	}, func(c *command.Call) (forebay.Webhook, error) {
		wanted.Name, wanted.WebhookSettings = c.Args[0], f.get()
		wanted.URL = c.Args[1]
		return c.API.CreateWebhook(c.Ctx, wanted)
	})
	f.add(c.Flags())
	secretFlag(c.Flags(), &wanted.Secret)
	return c
}

func (a webhookCommands) update() *cobra.Command {
	var f webhookFlags
	c := command.Show(a.App, &cobra.Command{
		Use: "update WEBHOOK", Short: "Change a webhook, enable or disable it",
		Long: `Change a webhook. What no flag names stays as it is, with one exception: a disabled webhook is
enabled, unless --disabled is given.`,
		Example: `  forebay webhooks update billing --events succeeded
  forebay webhooks update billing --disabled
  forebay webhooks update billing                     # enables it again`,
	}, func(c *command.Call) (forebay.Webhook, error) {
		before, err := c.API.Webhook(c.Ctx, c.Args[0])
		if err != nil {
			return before, err
		}
		settings := f.get()
		if !c.Flags.Changed("url") {
			settings.URL = before.URL
		}
		if !c.Flags.Changed("events") {
			settings.EventTypes = before.EventTypes
		}
		if !c.Flags.Changed("concurrency") {
			settings.Concurrency = before.Concurrency
		}
		if forebay.ConditionOf(c.Ctx).Empty() { // what was read above is what is kept
			c.Ctx = forebay.WithCondition(c.Ctx, forebay.IfMatch(before.ETag))
		}
		return c.API.UpdateWebhook(c.Ctx, c.Args[0], settings)
	}, a.fields)
	f.add(c.Flags())
	c.Flags().StringVar(&f.settings.URL, "url", "", "where events go")
	return command.Conditional(c, false)
}

func (a webhookCommands) test() *cobra.Command {
	test := &cobra.Command{Use: "test WEBHOOK", Short: "Send a webhook a test event and say how that went"}
	return a.APICommand(test, func(c *command.Call) error {
		try, err := c.API.TestWebhook(c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		delivered := try.Outcome == forebay.WebhookDelivered
		result := "delivered: status " + strconv.Itoa(try.Status)
		if !delivered {
			result = "failed: " + try.Detail
		}
		if err := c.PrintOne(try, []command.Field{{"test", result}, {"message id", try.MessageID}, {"took", tryTime(try)}}); err != nil {
			return err
		}
		if !delivered {
			return command.ExitError(command.ExitFailed)
		}
		return nil
	})
}

func tryTime(t forebay.WebhookTry) string { return fmt.Sprintf("%.3fs", t.DurationSeconds) }

func (a webhookCommands) rotate() *cobra.Command {
	var req forebay.RotateSecretRequest
	c := a.secretCommand(&cobra.Command{
		Use: "rotate WEBHOOK", Short: "Give a webhook another secret and print it, once",
		Long: `Give a webhook another secret. Deliveries are signed with both until the old one ends, so that
receivers can change over.`,
		Example: "  forebay webhooks rotate billing --overlap-hours 48",
	}, func(c *command.Call) (forebay.Webhook, error) {
		return c.API.RotateWebhookSecret(c.Ctx, c.Args[0], req)
	})
	command.OptionalFlag(c.Flags(), &req.OverlapHours, "overlap-hours", command.Number,
		fmt.Sprintf("how long the old secret goes on signing too: 0 to 168 (default %g)", forebay.DefaultSecretOverlap.Hours()))
	secretFlag(c.Flags(), &req.Secret)
	return command.Conditional(c, false)
}

func (a webhookCommands) tries() *cobra.Command {
	return command.List(a.App, &cobra.Command{Use: "tries WEBHOOK", Short: "List the latest hundred tries to deliver, newest first"},
		command.OfArgument((*client.Client).WebhookTries),
		func(t forebay.WebhookTry) []command.Field {
			return []command.Field{
				{"AT", a.Instant(t.At)}, {"MESSAGE", t.MessageID}, {"EVENT", t.EventType},
				{"TRY", strconv.Itoa(t.Number)}, {"TOOK", tryTime(t)}, {"NEXT", a.AgePtr(t.NextTryAt)},
				{"RESULT", tryResult(t)},
			}
		})
}

func (a webhookCommands) deadLetters() *cobra.Command {
	return command.Page(a.App, &cobra.Command{Use: "dead-letters WEBHOOK", Short: "List the events that were given up, oldest first"},
		func(c *command.Call, pageSize int) iter.Seq2[forebay.WebhookDeadLetter, error] {
			return c.API.WebhookDeadLetters(c.Ctx, c.Args[0], pageSize)
		},
		func(d forebay.WebhookDeadLetter) []command.Field {
			return []command.Field{
				{"NUMBER", command.Count(d.SequenceNumber)}, {"MESSAGE", d.MessageID}, {"EVENT", d.EventType},
				{"SINCE", a.Age(d.EnqueuedAt)}, {"TRIES", strconv.Itoa(d.Tries)}, {"REASON", d.Reason},
				{"DESCRIPTION", command.Shorten(d.Description, 60)},
			}
		})
}

func (a webhookCommands) redeliver() *cobra.Command {
	var req forebay.RedeliverRequest
	c := command.Show(a.App, &cobra.Command{
		Use: "redeliver WEBHOOK [SEQUENCE_NUMBER...]", Aliases: []string{"redrive"}, Short: "Try events again that were given up",
		Example: "  forebay webhooks redeliver billing --all\n  forebay webhooks redeliver billing 4711",
	}, func(c *command.Call) (report forebay.RedeliverReport, err error) {
		numbers, err := sequenceNumbers(c.Args[1:])
		if err != nil {
			return report, err
		}
		req.SequenceNumbers = append(req.SequenceNumbers, numbers...)
		if err := command.ExactlyOne("name dead letters by their sequence numbers, or say --all",
			"sequence numbers and --all exclude each other", len(req.SequenceNumbers) > 0, req.All); err != nil {
			return report, err
		}
		return c.API.Redeliver(c.Ctx, c.Args[0], req)
	}, func(r forebay.RedeliverReport) []command.Field {
		return []command.Field{{"redelivered", strconv.Itoa(r.Redelivered)}}
	})
	c.Flags().Int64SliceVar(&req.SequenceNumbers, "number", nil, "only the dead letters with these sequence numbers")
	allFlag(c.Flags(), &req.All, "dead letters")
	return c
}
