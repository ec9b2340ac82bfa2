package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) webhooks() *cobra.Command {
	return a.group("webhooks", "Have the events of jobs delivered to HTTP endpoints",
		`A webhook gets the events of its tenant's jobs as signed POST requests (Standard Webhooks). A delivery that
fails is tried ten times over three days and then stands among the webhook's dead letters.

The types of events: accepted, started, attempt_failed, throttled, retry_scheduled, succeeded, failed,
dead_lettered, quarantined, cancelled, expired, redriven.`,
		a.webhooksCreate(), a.webhooksList(), a.webhooksShow(), a.webhooksUpdate(), a.webhooksDelete(),
		a.webhooksTest(), a.webhooksRotate(), a.webhooksTries(), a.webhooksDeadLetters(), a.webhooksRedeliver())
}

// webhookCommand is a command about one webhook.
func (a *app) webhookCommand(verb, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return a.about("WEBHOOK", verb, short, "  forebay webhooks "+verb+" billing", do)
}

// webhookFlags are the settings of a webhook.
type webhookFlags struct {
	settings forebay.WebhookSettings
	events   []string
}

func (f *webhookFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.events, "events", nil, "only events of these types (default: all)")
	c.Flags().IntVar(&f.settings.Concurrency, "concurrency", 0, fmt.Sprintf("deliveries at once, from all processes together (default %d)", forebay.DefaultWebhookConcurrency))
	c.Flags().BoolVar(&f.settings.Disabled, "disabled", false, "gets no events")
}

func (f *webhookFlags) get() forebay.WebhookSettings {
	for _, name := range f.events {
		f.settings.EventTypes = append(f.settings.EventTypes, forebay.EventType(name))
	}
	return f.settings
}

func (a *app) webhooksCreate() *cobra.Command {
	var wanted forebay.NewWebhook
	var f webhookFlags
	c := &cobra.Command{
		Use: "create WEBHOOK URL", Short: "Make a webhook and print its secret, once", Args: arguments(2, "WEBHOOK", "URL"),
		Example: "  forebay webhooks create billing https://billing.example.com/forebay --events succeeded,failed",
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			wanted.Name, wanted.WebhookSettings = args[0], f.get()
			wanted.URL = args[1]
			w, err := api.CreateWebhook(c.Context(), wanted)
			if err != nil {
				return err
			}
			return a.printSecret(w)
		},
	}
	f.add(c)
	c.Flags().StringVar(&wanted.Secret, "secret", "", "sign with this secret, whsec_… (default: a new one)")
	return c
}

// printSecret prints a webhook whose secret is shown this one time.
func (a *app) printSecret(w forebay.Webhook) error {
	if a.output == outputTable {
		fmt.Fprintln(a.err, "This is the only time the secret is shown.")
	}
	return a.printWebhook(w)
}

func (a *app) printWebhook(w forebay.Webhook) error {
	return a.printOne(w, [][2]string{
		{"webhook", w.Name},
		{"url", w.URL},
		{"secret", w.Secret},
		{"state", webhookState(w)},
		{"events", orAll(w)},
		{"concurrency", strconv.Itoa(w.Concurrency)},
		{"secrets", strconv.Itoa(w.Secrets)},
		{"pending", count(w.Pending)},
		{"dead-letter", count(w.DeadLetters)},
		{"delivered", a.whenPtr(w.DeliveredAt)},
		{"failing since", a.whenPtr(w.FailingSince)},
		{"paused until", a.whenPtr(w.PausedUntil)},
		{"last try", lastTry(w)},
		{"created", a.when(w.CreatedAt)},
	})
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
	return joined(w.EventTypes)
}

func lastTry(w forebay.Webhook) string {
	if w.LastTry == nil {
		return ""
	}
	return tryResult(*w.LastTry)
}

// tryResult is how a try ended, such as "retry: status 503".
func tryResult(t forebay.WebhookTry) string {
	result := strings.ReplaceAll(t.Outcome, "_", "-")
	if t.Detail != "" {
		return result + ": " + t.Detail
	}
	return result + ": status " + strconv.Itoa(t.Status)
}

func (a *app) webhooksList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List webhooks", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			list, err := api.Webhooks(c.Context())
			if err != nil {
				return err
			}
			return printList(a, all(list), 0, []column[forebay.Webhook]{
				{"WEBHOOK", func(w forebay.Webhook) string { return w.Name }},
				{"STATE", webhookState},
				{"PENDING", func(w forebay.Webhook) string { return count(w.Pending) }},
				{"DEAD-LETTER", func(w forebay.Webhook) string { return count(w.DeadLetters) }},
				{"LAST TRY", lastTry},
				{"EVENTS", orAll},
				{"URL", func(w forebay.Webhook) string { return shorten(w.URL, 60) }},
			})
		},
	}
}

func (a *app) webhooksShow() *cobra.Command {
	return a.webhookCommand("show", "Show a webhook", func(ctx context.Context, api *client.Client, name string) error {
		w, err := api.Webhook(ctx, name)
		if err != nil {
			return err
		}
		return a.printWebhook(w)
	})
}

func (a *app) webhooksUpdate() *cobra.Command {
	var f webhookFlags
	c := &cobra.Command{
		Use: "update WEBHOOK", Short: "Change a webhook, enable or disable it", Args: arguments(1, "WEBHOOK"),
		Long: "Change a webhook. What no flag names stays as it is, except that a webhook that was disabled is enabled, unless\n--disabled is given.",
		Example: `  forebay webhooks update billing --events succeeded
  forebay webhooks update billing --disabled
  forebay webhooks update billing                     # enables it again`,
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			before, err := api.Webhook(c.Context(), args[0])
			if err != nil {
				return err
			}
			settings := f.get()
			if !c.Flags().Changed("url") {
				settings.URL = before.URL
			}
			if !c.Flags().Changed("events") {
				settings.EventTypes = before.EventTypes
			}
			if !c.Flags().Changed("concurrency") {
				settings.Concurrency = before.Concurrency
			}
			w, err := api.UpdateWebhook(c.Context(), args[0], settings)
			if err != nil {
				return err
			}
			return a.printWebhook(w)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.settings.URL, "url", "", "where events go")
	return c
}

func (a *app) webhooksDelete() *cobra.Command {
	return a.webhookCommand("delete", "Delete a webhook, with every event that waits for it", func(ctx context.Context, api *client.Client, name string) error {
		return api.DeleteWebhook(ctx, name)
	})
}

func (a *app) webhooksTest() *cobra.Command {
	return a.webhookCommand("test", "Send a webhook a test event and say how that went", func(ctx context.Context, api *client.Client, name string) error {
		try, err := api.TestWebhook(ctx, name)
		if err != nil {
			return err
		}
		delivered := try.Outcome == forebay.WebhookDelivered
		result := "delivered: status " + strconv.Itoa(try.Status)
		if !delivered {
			result = "failed: " + try.Detail
		}
		if err := a.printOne(try, [][2]string{{"test", result}, {"message id", try.MessageID}, {"took", fmt.Sprintf("%.3fs", try.DurationSeconds)}}); err != nil {
			return err
		}
		if !delivered {
			return &failure{code: exitFailed}
		}
		return nil
	})
}

func (a *app) webhooksRotate() *cobra.Command {
	var req forebay.RotateSecretRequest
	var overlap float64
	c := &cobra.Command{
		Use: "rotate WEBHOOK", Short: "Give a webhook another secret and print it, once", Args: arguments(1, "WEBHOOK"),
		Long:    "Give a webhook another secret. Deliveries are signed with both until the old one ends, so that receivers can change over.",
		Example: "  forebay webhooks rotate billing --overlap-hours 48",
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if c.Flags().Changed("overlap-hours") {
				req.OverlapHours = &overlap
			}
			w, err := api.RotateWebhookSecret(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			return a.printSecret(w)
		},
	}
	c.Flags().Float64Var(&overlap, "overlap-hours", forebay.DefaultSecretOverlap.Hours(), "how long the old secret goes on signing too: 0 to 168")
	c.Flags().StringVar(&req.Secret, "secret", "", "sign with this secret, whsec_… (default: a new one)")
	return c
}

func (a *app) webhooksTries() *cobra.Command {
	return a.webhookCommand("tries", "List the latest hundred tries to deliver, newest first", func(ctx context.Context, api *client.Client, name string) error {
		tries, err := api.WebhookTries(ctx, name)
		if err != nil {
			return err
		}
		return printList(a, all(tries), 0, []column[forebay.WebhookTry]{
			{"AT", func(t forebay.WebhookTry) string { return t.At.In(a.zone).Format("2006-01-02 15:04:05") }},
			{"MESSAGE", func(t forebay.WebhookTry) string { return t.MessageID }},
			{"EVENT", func(t forebay.WebhookTry) string { return t.EventType }},
			{"TRY", func(t forebay.WebhookTry) string { return strconv.Itoa(t.Number) }},
			{"TOOK", func(t forebay.WebhookTry) string { return fmt.Sprintf("%.3fs", t.DurationSeconds) }},
			{"NEXT", func(t forebay.WebhookTry) string { return a.agePtr(t.NextTryAt) }},
			{"RESULT", tryResult},
		})
	})
}

func (a *app) webhooksDeadLetters() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "dead-letters WEBHOOK", Short: "List the events that were given up, oldest first", Args: arguments(1, "WEBHOOK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return printList(a, api.WebhookDeadLetters(c.Context(), args[0], pageSize(limit)), limit, []column[forebay.WebhookDeadLetter]{
				{"NUMBER", func(d forebay.WebhookDeadLetter) string { return count(d.SequenceNumber) }},
				{"MESSAGE", func(d forebay.WebhookDeadLetter) string { return d.MessageID }},
				{"EVENT", func(d forebay.WebhookDeadLetter) string { return d.EventType }},
				{"SINCE", func(d forebay.WebhookDeadLetter) string { return a.age(d.EnqueuedAt) }},
				{"TRIES", func(d forebay.WebhookDeadLetter) string { return strconv.Itoa(d.Tries) }},
				{"REASON", func(d forebay.WebhookDeadLetter) string { return d.Reason }},
				{"DESCRIPTION", func(d forebay.WebhookDeadLetter) string { return shorten(d.Description, 60) }},
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return c
}

func (a *app) webhooksRedeliver() *cobra.Command {
	var req forebay.RedeliverRequest
	c := &cobra.Command{
		Use: "redeliver WEBHOOK", Short: "Try events again that were given up", Args: arguments(1, "WEBHOOK"),
		Example: "  forebay webhooks redeliver billing --all\n  forebay webhooks redeliver billing --number 4711",
		RunE: func(c *cobra.Command, args []string) error {
			if req.All == (len(req.SequenceNumbers) > 0) {
				return usagef("name dead letters by --number, or say --all")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			report, err := api.Redeliver(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			return a.printOne(report, [][2]string{{"redelivered", strconv.Itoa(report.Redelivered)}})
		},
	}
	c.Flags().Int64SliceVar(&req.SequenceNumbers, "number", nil, "only the dead letters with these sequence numbers")
	c.Flags().BoolVar(&req.All, "all", false, "all dead letters")
	return c
}
