package servicebus

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/forebayhq/forebay"
)

// readAzure reads the entities of a namespace.
func readAzure(ctx context.Context, client *admin.Client, host string) (list []*entity, err error) {
	queues := client.NewListQueuesPager(nil)
	for queues.More() {
		page, err := queues.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		for _, q := range page.Queues {
			list = append(list, queueOf(q, host))
		}
	}
	topics := client.NewListTopicsPager(nil)
	for topics.More() {
		page, err := topics.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for _, t := range page.Topics {
			list = append(list, topicOf(t))
			subscriptions, err := readSubscriptions(ctx, client, t.TopicName, host)
			if err != nil {
				return nil, err
			}
			list = append(list, subscriptions...)
		}
	}
	return list, nil
}

func readSubscriptions(ctx context.Context, client *admin.Client, topic, host string) (list []*entity, err error) {
	pages := client.NewListSubscriptionsPager(topic, nil)
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list subscriptions of %s: %w", topic, err)
		}
		for _, s := range page.Subscriptions {
			e := subscriptionOf(s, host)
			if err := e.readRules(ctx, client); err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}

func (e *entity) readRules(ctx context.Context, client *admin.Client) error {
	e.settings.Rules = []forebay.NewRule{} // none: it selects nothing
	pages := client.NewListRulesPager(e.topic, e.name, nil)
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list rules of %s: %w", e.path(), err)
		}
		for _, r := range page.Rules {
			if rule, known := e.ruleOf(r); known {
				e.settings.Rules = append(e.settings.Rules, rule)
			}
		}
	}
	return nil
}

// or is what a pointer points to, or the zero value.
func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

var statuses = map[admin.EntityStatus]forebay.EntityStatus{
	admin.EntityStatusActive: forebay.EntityActive, admin.EntityStatusDisabled: forebay.EntityDisabled,
	admin.EntityStatusSendDisabled: forebay.EntitySendDisabled, admin.EntityStatusReceiveDisabled: forebay.EntityReceiveDisabled,
}

func (e *entity) status(status *admin.EntityStatus) {
	known := status == nil
	if !known {
		e.settings.Status, known = statuses[*status]
	}
	if !known {
		e.note("status %s is not kept", *status)
	}
}

// largest notes messages that may be larger than a server takes by default.
func (e *entity) largest(kilobytes *int64) {
	if or(kilobytes)<<10 > forebay.DefaultMaxMessageBytes {
		e.note("messages of up to %d KB need a server that takes them", *kilobytes)
	}
}

// notKept notes what only the service has.
func (e *entity) notKept(partitioned *bool, rules []admin.AuthorizationRule) {
	if or(partitioned) {
		e.note("it is not partitioned here")
	}
	for _, r := range rules {
		e.note("shared access key %s is not kept: make an API key with forebay keys create", or(r.KeyName))
	}
}

func queueOf(q admin.QueueItem, host string) *entity {
	e := &entity{kind: queue, name: q.QueueName}
	s := &e.settings
	s.LockSeconds = e.duration("LockDuration", or(q.LockDuration))
	s.DefaultTTLSeconds = e.duration("DefaultMessageTimeToLive", or(q.DefaultMessageTimeToLive))
	s.AutoDeleteOnIdleSeconds = e.duration("AutoDeleteOnIdle", or(q.AutoDeleteOnIdle))
	s.MaxDeliveryCount, s.DeadLetterOnExpiration = int(or(q.MaxDeliveryCount)), or(q.DeadLetteringOnMessageExpiration)
	s.RequiresSession, s.DetectsDuplicates, s.UserMetadata = q.RequiresSession, q.RequiresDuplicateDetection, q.UserMetadata
	s.ForwardTo = e.target("ForwardTo", or(q.ForwardTo), host)
	s.ForwardDeadLettersTo = e.target("ForwardDeadLetteredMessagesTo", or(q.ForwardDeadLetteredMessagesTo), host)
	e.window(or(q.DuplicateDetectionHistoryTimeWindow))
	e.status(q.Status)
	e.largest(q.MaxMessageSizeInKilobytes)
	e.notKept(q.EnablePartitioning, q.AuthorizationRules)
	return e
}

func topicOf(t admin.TopicItem) *entity {
	e := &entity{kind: topic, name: t.TopicName}
	s := &e.settings
	s.DefaultTTLSeconds = e.duration("DefaultMessageTimeToLive", or(t.DefaultMessageTimeToLive))
	s.AutoDeleteOnIdleSeconds = e.duration("AutoDeleteOnIdle", or(t.AutoDeleteOnIdle))
	s.DetectsDuplicates, s.UserMetadata = t.RequiresDuplicateDetection, t.UserMetadata
	e.window(or(t.DuplicateDetectionHistoryTimeWindow))
	e.status(t.Status)
	e.largest(t.MaxMessageSizeInKilobytes)
	e.notKept(t.EnablePartitioning, t.AuthorizationRules)
	return e
}

func subscriptionOf(in admin.SubscriptionPropertiesItem, host string) *entity {
	e := &entity{kind: subscription, topic: in.TopicName, name: in.SubscriptionName}
	s := &e.settings
	s.LockSeconds = e.duration("LockDuration", or(in.LockDuration))
	s.DefaultTTLSeconds = e.duration("DefaultMessageTimeToLive", or(in.DefaultMessageTimeToLive))
	s.AutoDeleteOnIdleSeconds = e.duration("AutoDeleteOnIdle", or(in.AutoDeleteOnIdle))
	s.MaxDeliveryCount, s.DeadLetterOnExpiration = int(or(in.MaxDeliveryCount)), or(in.DeadLetteringOnMessageExpiration)
	s.RequiresSession, s.UserMetadata, s.DeadLetterOnFilterError = in.RequiresSession, in.UserMetadata, in.EnableDeadLetteringOnFilterEvaluationExceptions
	s.ForwardTo = e.target("ForwardTo", or(in.ForwardTo), host)
	s.ForwardDeadLettersTo = e.target("ForwardDeadLetteredMessagesTo", or(in.ForwardDeadLetteredMessagesTo), host)
	e.status(in.Status)
	return e
}

// ruleOf translates a rule. What Forebay has no form for is noted.
func (e *entity) ruleOf(r admin.RuleProperties) (rule forebay.NewRule, known bool) {
	rule.Name = r.Name
	switch f := r.Filter.(type) {
	case *admin.TrueFilter:
		rule.BooleanFilter = new(true)
	case *admin.FalseFilter:
		rule.BooleanFilter = new(false)
	case *admin.SQLFilter:
		rule.SQLFilter, rule.SQLFilterParameters = f.Expression, e.values(r.Name, f.Parameters)
	case *admin.CorrelationFilter:
		rule.CorrelationFilter = &forebay.CorrelationFilter{CorrelationID: or(f.CorrelationID), MessageID: or(f.MessageID), SessionID: or(f.SessionID), Subject: or(f.Subject),
			To: or(f.To), ReplyTo: or(f.ReplyTo), ReplyToSessionID: or(f.ReplyToSessionID), ContentType: or(f.ContentType), Properties: e.values(r.Name, f.ApplicationProperties)}
	default:
		e.note("rule %s is not kept: its filter has a type of its own", r.Name)
		return rule, false
	}
	switch a := r.Action.(type) {
	case nil:
	case *admin.SQLAction:
		rule.SQLAction, rule.SQLActionParameters = a.Expression, e.values(r.Name, a.Parameters)
	default:
		e.note("rule %s is not kept: its action has a type of its own", r.Name)
		return rule, false
	}
	return rule, true
}

// values translates parameters and properties of a rule.
func (e *entity) values(rule string, in map[string]any) forebay.Properties {
	if len(in) == 0 {
		return nil
	}
	out := forebay.Properties{}
	for name, v := range in {
		switch v := v.(type) {
		case string, bool, int64, float64, time.Time:
			out[name] = v
		default:
			e.note("rule %s: %s has a type that is not kept", rule, name)
		}
	}
	return out
}
