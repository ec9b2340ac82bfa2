package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// topicCommands are the commands about topics.
type topicCommands struct{ *command.App }

func (a topicCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "topics", Short: "Make topics and send to them",
		Long: `A topic gives every message that is sent to it to its subscriptions. Each of them keeps the
copies that its rules select until they are received.`,
	},
		command.List(a.App, &cobra.Command{Use: "list", Short: "List topics"},
			command.OfServer((*client.Client).Topics), a.columns),
		command.Show(a.App, &cobra.Command{Use: "show TOPIC", Short: "Show a topic"},
			command.OfArgument((*client.Client).Topic), a.fields),
		a.create(),
		a.set(),
		command.Conditional(a.APICommand(&cobra.Command{Use: "delete TOPIC", Short: "Delete a topic with its subscriptions and their messages"},
			func(c *command.Call) error { return c.API.DeleteTopic(c.Ctx, c.Args[0]) }), false),
		a.send())
}

func (a topicCommands) columns(t forebay.Topic) []command.Field {
	return []command.Field{
		{"TOPIC", t.Name}, {"SUBSCRIPTIONS", command.Count(t.Subscriptions)},
		{"SCHEDULED", command.Counted(t.Scheduled, t.CountsCapped)}, {"CREATED", a.When(t.CreatedAt)},
	}
}

func (a topicCommands) fields(t forebay.Topic) []command.Field {
	return []command.Field{
		{"topic", t.Name},
		{"subscriptions", command.Count(t.Subscriptions)},
		{"scheduled", command.Counted(t.Scheduled, t.CountsCapped)},
		{"time to live", command.Seconds(t.DefaultTTLSeconds)},
		{"duplicate window", command.Seconds(t.DuplicateWindowSeconds)},
		{"deleted when idle", command.Seconds(t.AutoDeleteOnIdleSeconds)},
		{"largest message", largest(t.MaxMessageBytes)},
		{"size", atLeastBytes(t.SizeBytes, t.CountsCapped)},
		{"status", string(t.Status)},
		{"note", t.UserMetadata},
		{"created", a.When(t.CreatedAt)},
		{"changed", a.When(t.UpdatedAt)},
		{"used", a.WhenPtr(t.AccessedAt)},
	}
}

func (a topicCommands) create() *cobra.Command {
	var s forebay.TopicSettings
	c := command.Show(a.App, &cobra.Command{
		Use: "create TOPIC", Short: "Make a topic, or change its settings",
		Long: `Make a topic, or give one that exists these settings. A setting without a flag gets its
default, but its status and its note stay.`,
		Example: "  forebay topics create orders --ttl 24h --duplicate-window 10m",
	}, func(c *command.Call) (forebay.Topic, error) {
		s.DetectsDuplicates = impliedDuplicates(s.DetectsDuplicates, s.DuplicateWindowSeconds)
		return c.API.PutTopic(c.Ctx, c.Args[0], s)
	}, a.fields)
	ttlFlag(c.Flags(), &s.DefaultTTLSeconds)
	duplicateFlags(c.Flags(), &s.DetectsDuplicates, &s.DuplicateWindowSeconds, "topic")
	idleFlag(c.Flags(), &s.AutoDeleteOnIdleSeconds, "topic")
	largestFlag(c.Flags(), &s.MaxMessageBytes)
	entityFlags(c.Flags(), &s.EntityChange)
	return command.Conditional(c, true)
}

func (a topicCommands) set() *cobra.Command {
	var change forebay.EntityChange
	c := command.Show(a.App, &cobra.Command{
		Use: "set TOPIC", Short: "Change the status or the note of a topic", Long: setLong,
		Example: "  forebay topics set orders --entity-status send_disabled",
	}, func(c *command.Call) (forebay.Topic, error) {
		return c.API.ChangeTopic(c.Ctx, c.Args[0], change)
	}, a.fields)
	entityFlags(c.Flags(), &change)
	return command.Conditional(c, false)
}

func (a topicCommands) send() *cobra.Command {
	var m messageFlags
	c := command.Show(a.App, &cobra.Command{
		Use: "send TOPIC", Short: "Send a message to a topic",
		Long: "Send a message to a topic. The subscriptions' copies are on disk when the command returns.",
		Example: `  forebay topics send orders --body "a dozen" --subject new --property quantity=12
  forebay topics send orders --file order.json --content-type application/json`,
	}, m.send(func(c *command.Call, m forebay.NewMessage) ([]forebay.SentMessage, error) {
		return c.API.Publish(c.Ctx, c.Args[0], m)
	}), sentFields)
	m.add(a.App, c.Flags())
	return aboutQueue(c)
}

// subscriptionCommands are the commands about subscriptions of topics.
type subscriptionCommands struct{ *command.App }

func (a subscriptionCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "subscriptions", Short: "Make subscriptions of topics",
		Long: `A subscription is a queue that its topic fills. Messages are received from it as from the queue
TOPIC/subscriptions/SUBSCRIPTION.`,
	},
		command.List(a.App, &cobra.Command{Use: "list TOPIC", Short: "List a topic's subscriptions with what stands in them"},
			command.OfArgument((*client.Client).Subscriptions), subscriptionColumns),
		command.Show(a.App, &cobra.Command{Use: "show TOPIC SUBSCRIPTION", Short: "Show a subscription"},
			func(c *command.Call) (forebay.Subscription, error) {
				return c.API.Subscription(c.Ctx, c.Args[0], c.Args[1])
			}, a.fields),
		a.create(),
		a.set(),
		command.Conditional(a.APICommand(&cobra.Command{Use: "delete TOPIC SUBSCRIPTION", Short: "Delete a subscription with its messages"},
			func(c *command.Call) error { return c.API.DeleteSubscription(c.Ctx, c.Args[0], c.Args[1]) }), false))
}

func subscriptionColumns(s forebay.Subscription) []command.Field {
	return []command.Field{
		{"SUBSCRIPTION", s.Name}, {"ACTIVE", command.Counted(s.Active, s.CountsCapped)},
		{"LOCKED", command.Counted(s.Locked, s.CountsCapped)},
		{"DEFERRED", command.Counted(s.Deferred, s.CountsCapped)},
		{"DEAD-LETTER", command.Counted(s.DeadLetter, s.CountsCapped)}, {"OLDEST", command.Seconds(s.OldestAgeSeconds)},
	}
}

func (a subscriptionCommands) fields(s forebay.Subscription) []command.Field {
	return []command.Field{
		{"subscription", s.Name},
		{"topic", s.Topic},
		{"active", command.Counted(s.Active, s.CountsCapped)},
		{"locked", command.Counted(s.Locked, s.CountsCapped)},
		{"deferred", command.Counted(s.Deferred, s.CountsCapped)},
		{"dead-letter", command.Counted(s.DeadLetter, s.CountsCapped)},
		{"oldest", command.Seconds(s.OldestAgeSeconds)},
		{"lock", fmt.Sprintf("%gs", s.LockSeconds)},
		{"max deliveries", fmt.Sprint(s.MaxDeliveryCount)},
		{"time to live", command.Seconds(s.DefaultTTLSeconds)},
		{"forward to", s.ForwardTo},
		{"dead letters to", s.ForwardDeadLettersTo},
		{"deleted when idle", command.Seconds(s.AutoDeleteOnIdleSeconds)},
		{"size", atLeastBytes(s.SizeBytes, s.CountsCapped)},
		{"status", string(s.Status)},
		{"note", s.UserMetadata},
		{"created", a.When(s.CreatedAt)},
		{"changed", a.When(s.UpdatedAt)},
		{"used", a.WhenPtr(s.AccessedAt)},
	}
}

func (a subscriptionCommands) set() *cobra.Command {
	var change forebay.EntityChange
	c := command.Show(a.App, &cobra.Command{
		Use: "set TOPIC SUBSCRIPTION", Short: "Change the status or the note of a subscription", Long: setLong,
		Example: "  forebay subscriptions set orders audit --entity-status disabled",
	}, func(c *command.Call) (forebay.Subscription, error) {
		return c.API.ChangeSubscription(c.Ctx, c.Args[0], c.Args[1], change)
	}, a.fields)
	entityFlags(c.Flags(), &change)
	return command.Conditional(c, false)
}

func (a subscriptionCommands) create() *cobra.Command {
	var s forebay.SubscriptionSettings
	var rule ruleFlags
	var dropErrors bool
	c := command.Show(a.App, &cobra.Command{
		Use: "create TOPIC SUBSCRIPTION", Short: "Make a subscription, or change its settings",
		Long: `Make a subscription, or give one that exists these settings. A setting without a flag gets its
default, but its status and its note stay. A new subscription has one rule, $Default, which selects
all messages. --sql, --correlation, --none and --action change it. A subscription that exists keeps
its rules.`,
		Example: `  forebay subscriptions create orders audit
  forebay subscriptions create orders large --sql "quantity > 100 AND color = 'red'" --lock 2m`,
	}, func(c *command.Call) (sub forebay.Subscription, err error) {
		if dropErrors {
			s.DeadLetterOnFilterError = new(bool)
		}
		settings, given, err := rule.settings()
		if err != nil {
			return sub, err
		}
		if given {
			s.Rules = []forebay.NewRule{{Name: forebay.DefaultRule, RuleSettings: settings}}
		}
		return c.API.PutSubscription(c.Ctx, c.Args[0], c.Args[1], s)
	}, a.fields)
	flags := c.Flags()
	receiverFlags(flags, &s.MessageQueueSettings, "subscription")
	flags.BoolVar(&dropErrors, "drop-filter-errors", false, "drop messages that a rule fails on instead of dead-lettering them")
	rule.add(flags)
	return command.Conditional(c, true)
}
