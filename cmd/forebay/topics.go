package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

var (
	ofTopic        = []string{"TOPIC"}
	ofSubscription = []string{"TOPIC", "SUBSCRIPTION"}
	ofRule         = []string{"TOPIC", "SUBSCRIPTION", "RULE"}
)

func (a *app) topics() *cobra.Command {
	list := a.apiCommand("list", "List topics", nil, func(ctx context.Context, api *client.Client, _ []string) error {
		topics, err := api.Topics(ctx)
		if err != nil {
			return err
		}
		return printList(a, all(topics), 0, []column[forebay.Topic]{
			{"TOPIC", func(t forebay.Topic) string { return t.Name }},
			{"SUBSCRIPTIONS", func(t forebay.Topic) string { return count(t.Subscriptions) }},
			{"SCHEDULED", func(t forebay.Topic) string { return counted(t.Scheduled, t.CountsCapped) }},
			{"CREATED", func(t forebay.Topic) string { return a.when(t.CreatedAt) }},
		})
	})
	show := a.apiCommand("show", "Show a topic", ofTopic, func(ctx context.Context, api *client.Client, args []string) error {
		topic, err := api.Topic(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printTopic(topic)
	})
	remove := a.apiCommand("delete", "Delete a topic with its subscriptions and their messages", ofTopic, func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteTopic(ctx, args[0])
	})
	return a.group("topics", "Make topics and send to them", `A topic gives every message that is sent to it to its subscriptions, each of which keeps the copies
that its rules select until they are received.`, a.topicsCreate(), list, show, remove, a.topicsSend())
}

func (a *app) topicsCreate() *cobra.Command {
	var ttl, window, idle time.Duration
	var duplicates bool
	c := &cobra.Command{
		Use: "create TOPIC", Short: "Make a topic, or change its settings", Args: arguments(1, "TOPIC"),
		Example: "  forebay topics create orders --ttl 24h --duplicate-window 10m",
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			settings := forebay.TopicSettings{DefaultTTLSeconds: ttl.Seconds(), DuplicateWindowSeconds: window.Seconds(), AutoDeleteOnIdleSeconds: idle.Seconds()}
			if duplicates = duplicates || window > 0; duplicates {
				settings.DetectsDuplicates = &duplicates
			}
			topic, err := api.PutTopic(c.Context(), args[0], settings)
			if err != nil {
				return err
			}
			return a.printTopic(topic)
		},
	}
	flags := c.Flags()
	flags.DurationVar(&ttl, "ttl", 0, "time to live of messages that ask for none, and the most they may ask for (default: unlimited)")
	flags.BoolVar(&duplicates, "detect-duplicates", false, "drop messages that repeat a message id; only when the topic is made")
	flags.DurationVar(&window, "duplicate-window", 0, "how long message ids are remembered for that (default 10m)")
	flags.DurationVar(&idle, "auto-delete-on-idle", 0, "delete the topic once nobody has sent to it for so long (default: never)")
	return c
}

func (a *app) printTopic(t forebay.Topic) error {
	return a.printOne(t, [][2]string{
		{"topic", t.Name},
		{"subscriptions", count(t.Subscriptions)},
		{"scheduled", counted(t.Scheduled, t.CountsCapped)},
		{"time to live", seconds(t.DefaultTTLSeconds)},
		{"duplicate window", seconds(t.DuplicateWindowSeconds)},
		{"deleted when idle", seconds(t.AutoDeleteOnIdleSeconds)},
		{"created", a.when(t.CreatedAt)},
	})
}

func (a *app) topicsSend() *cobra.Command {
	f := &messageFlags{}
	c := &cobra.Command{
		Use: "send TOPIC", Short: "Send a message to a topic", Args: arguments(1, "TOPIC"),
		Long: "Send a message to a topic. The subscriptions' copies are on disk when the command returns.",
		Example: `  forebay topics send orders --body "a dozen" --subject new --property color=red --property quantity=12
  forebay topics send orders --file order.json --content-type application/json`,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := f.message(c.Context(), a)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.sent(api.Publish(c.Context(), args[0], m))
		},
	}
	f.register(c)
	return c
}

func (a *app) subscriptions() *cobra.Command {
	list := a.apiCommand("list", "List a topic's subscriptions with what stands in them", ofTopic, func(ctx context.Context, api *client.Client, args []string) error {
		subs, err := api.Subscriptions(ctx, args[0])
		if err != nil {
			return err
		}
		return printList(a, all(subs), 0, []column[forebay.Subscription]{
			{"SUBSCRIPTION", func(s forebay.Subscription) string { return s.Name }},
			{"ACTIVE", func(s forebay.Subscription) string { return counted(s.Active, s.CountsCapped) }},
			{"LOCKED", func(s forebay.Subscription) string { return counted(s.Locked, s.CountsCapped) }},
			{"DEFERRED", func(s forebay.Subscription) string { return counted(s.Deferred, s.CountsCapped) }},
			{"DEAD-LETTER", func(s forebay.Subscription) string { return counted(s.DeadLetter, s.CountsCapped) }},
			{"OLDEST", func(s forebay.Subscription) string { return seconds(s.OldestAgeSeconds) }},
		})
	})
	show := a.apiCommand("show", "Show a subscription", ofSubscription, func(ctx context.Context, api *client.Client, args []string) error {
		sub, err := api.Subscription(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.printSubscription(sub)
	})
	remove := a.apiCommand("delete", "Delete a subscription with its messages", ofSubscription, func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteSubscription(ctx, args[0], args[1])
	})
	return a.group("subscriptions", "Make subscriptions of topics", `A subscription is a queue that its topic fills. It is received from as the queue
TOPIC/subscriptions/SUBSCRIPTION.`, a.subscriptionsCreate(), list, show, remove)
}

func (a *app) subscriptionsCreate() *cobra.Command {
	var s forebay.SubscriptionSettings
	var lock, ttl, idle time.Duration
	var session, dropErrors bool
	var rule ruleFlags
	c := &cobra.Command{
		Use: "create TOPIC SUBSCRIPTION", Short: "Make a subscription, or change its settings", Args: arguments(2, ofSubscription...),
		Long: `Make a subscription, or change its settings. A new one has one rule, $Default, which selects all
messages unless --sql, --correlation or --none says otherwise; an existing one keeps its rules.`,
		Example: `  forebay subscriptions create orders audit
  forebay subscriptions create orders large --sql "quantity > 100 AND color IN ('red', 'blue')" --lock 2m`,
		RunE: func(c *cobra.Command, args []string) error {
			s.LockSeconds, s.DefaultTTLSeconds, s.AutoDeleteOnIdleSeconds = lock.Seconds(), ttl.Seconds(), idle.Seconds()
			if c.Flags().Changed("session") {
				s.RequiresSession = &session
			}
			if dropErrors {
				s.DeadLetterOnFilterError = new(bool)
			}
			settings, given, err := rule.settings()
			if err != nil {
				return err
			}
			if given {
				s.Rules = []forebay.NewRule{{Name: forebay.DefaultRule, RuleSettings: settings}}
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			sub, err := api.PutSubscription(c.Context(), args[0], args[1], s)
			if err != nil {
				return err
			}
			return a.printSubscription(sub)
		},
	}
	flags := c.Flags()
	flags.DurationVar(&lock, "lock", 0, "how long a receiver holds a message (default 1m)")
	flags.IntVar(&s.MaxDeliveryCount, "max-deliveries", 0, "deliveries before a message is dead-lettered (default 10)")
	flags.DurationVar(&ttl, "ttl", 0, "time to live of messages that ask for none, and the most they may ask for (default: the topic's)")
	flags.BoolVar(&s.DeadLetterOnExpiration, "dead-letter-expired", false, "dead-letter expired messages instead of dropping them")
	flags.BoolVar(&dropErrors, "drop-filter-errors", false, "leave out messages that a rule cannot be evaluated for instead of dead-lettering them")
	flags.BoolVar(&session, "session", false, "messages are received session by session; only when the subscription is made")
	flags.StringVar(&s.ForwardTo, "forward-to", "", "queue or topic to which everything goes on")
	flags.StringVar(&s.ForwardDeadLettersTo, "forward-dead-letters-to", "", "queue or topic to which dead letters go")
	flags.DurationVar(&idle, "auto-delete-on-idle", 0, "delete the subscription once nobody has used it for so long (default: never)")
	rule.register(c)
	return c
}

func (a *app) printSubscription(s forebay.Subscription) error {
	return a.printOne(s, [][2]string{
		{"subscription", s.Name},
		{"topic", s.Topic},
		{"active", counted(s.Active, s.CountsCapped)},
		{"locked", counted(s.Locked, s.CountsCapped)},
		{"deferred", counted(s.Deferred, s.CountsCapped)},
		{"dead-letter", counted(s.DeadLetter, s.CountsCapped)},
		{"oldest", seconds(s.OldestAgeSeconds)},
		{"lock", fmt.Sprintf("%gs", s.LockSeconds)},
		{"max deliveries", fmt.Sprint(s.MaxDeliveryCount)},
		{"time to live", seconds(s.DefaultTTLSeconds)},
		{"forward to", s.ForwardTo},
		{"dead letters to", s.ForwardDeadLettersTo},
		{"deleted when idle", seconds(s.AutoDeleteOnIdleSeconds)},
		{"created", a.when(s.CreatedAt)},
	})
}
