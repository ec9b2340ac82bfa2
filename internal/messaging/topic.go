package messaging

import (
	"context"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

var (
	errOurTopic = &forebay.Error{Code: forebay.CodeNotSupported, Field: "topic", Message: "this topic cannot be sent to; only Forebay publishes to it"}
)

// Put creates a topic, or changes its settings.
func (s Topics) Put(ctx context.Context, tenant, name string, settings forebay.TopicSettings) (topic forebay.Topic, created bool, err error) {
	stored, created, err := s.put(ctx, tenant, name, entity.TopicSettings(settings), putting{})
	if err != nil {
		return topic, false, err
	}
	topic, err = s.info(ctx, name, stored, entity.CountLimit)
	return topic, created, err
}

func (s Topics) put(ctx context.Context, tenant, name string, settings forebay.MessageQueueSettings, opts putting) (q bus.MessageQueue, created bool, err error) {
	if err := entity.CheckName("topic", name); err != nil {
		return q, false, err
	}
	if s.taken(ctx, tenant, name) {
		return q, false, errJobsQueue
	}
	wanted, keep, err := s.wanted(ctx, tenant, bus.MessageQueue{Name: entity.StoredName(tenant, name), IsTopic: true}, settings, opts)
	if err != nil {
		return q, false, err
	}
	done, err := s.takeNew(ctx, tenant, wanted.Name, want{forebay.LimitTopics, 1})
	if err != nil {
		return q, false, err
	}
	defer done()
	q, created, err = s.store.Entities().Put(ctx, wanted, opts.options(ctx, forebay.MaxTopics, keep))
	s.changed(wanted.Name)
	return q, created, err
}

// topic finds a tenant's topic, for those who publish.
func (s *entities) topic(ctx context.Context, tenant, name string) (bus.MessageQueue, error) {
	return topicBy(ctx, tenant, name, s.stored)
}

// topicNow is topic by what is stored now.
func (s *entities) topicNow(ctx context.Context, tenant, name string) (bus.MessageQueue, error) {
	return topicBy(ctx, tenant, name, s.storedNow)
}

func topicBy(ctx context.Context, tenant, name string, by reading) (bus.MessageQueue, error) {
	if !forebay.ValidEntityName(name) {
		return bus.MessageQueue{}, entity.ErrNoTopic
	}
	q, err := by(ctx, entity.StoredName(tenant, name))
	if err == nil && !q.IsTopic || forebay.CodeOf(err) == forebay.CodeUnknownQueue {
		return q, entity.ErrNoTopic
	}
	return q, err
}

// Get returns a topic.
func (s Topics) Get(ctx context.Context, tenant, name string) (forebay.Topic, error) {
	q, err := s.topicNow(ctx, tenant, name)
	if err != nil {
		return forebay.Topic{}, err
	}
	return s.info(ctx, name, q, entity.CountLimit)
}

// List returns the tenant's topics by name.
func (s Topics) List(ctx context.Context, tenant string) ([]forebay.Topic, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.Topics(ctx, no)
	if err != nil {
		return nil, err
	}
	topics := make([]forebay.Topic, len(stored))
	for i, q := range stored {
		if topics[i], err = s.info(ctx, strings.TrimPrefix(q.Name, entity.StoredName(tenant, "")), q, entity.CountLimitOf(len(stored))); err != nil {
			return nil, err
		}
	}
	return topics, nil
}

func (s Topics) info(ctx context.Context, name string, q bus.MessageQueue, limit int64) (forebay.Topic, error) {
	counts, err := s.store.Entities().TopicCounts(ctx, q, limit)
	return forebay.Topic{
		Name: name, Subscriptions: counts.Subscriptions, Scheduled: counts.Scheduled, CountsCapped: counts.Scheduled >= limit,
		DefaultTTLSeconds: secondsOrNil(q.DefaultTTL), DetectsDuplicates: q.DuplicateWindow > 0, DuplicateWindowSeconds: secondsOrNil(q.DuplicateWindow), AutoDeleteOnIdleSeconds: secondsOrNil(q.Idle),
		MaxMessageBytes: q.MaxMessage, EntityState: stateOf(q, counts.Size),
	}, err
}

// Delete removes a topic with its subscriptions, their rules and their messages.
func (s Topics) Delete(ctx context.Context, tenant, name string) error {
	q, err := s.topicNow(ctx, tenant, name)
	if err != nil {
		return err
	}
	defer s.changedBelow(q.Name)
	return s.drop(ctx, q, entity.ErrNoTopic)
}

// drop removes a topic or a subscription, and returns missing if it was gone.
func (s *entities) drop(ctx context.Context, q bus.MessageQueue, missing error) error {
	dropped, err := s.store.DropMessageQueue(ctx, q)
	s.changed(q.Name)
	if err != nil {
		return err
	}
	if !dropped {
		return missing
	}
	return s.store.PurgeDropped(context.WithoutCancel(ctx))
}

// Publish sends messages to a topic, all or none, and returns once the subscriptions' copies are
// on disk. Each message's number is the enqueued sequence number of its copies.
func (s Messages) Publish(ctx context.Context, tenant, name string, messages []forebay.NewMessage) (sent []forebay.SentMessage, err error) {
	if entity.OnlyForebayPublishes(entity.StoredName(tenant, name)) {
		return nil, errOurTopic
	}
	err = s.again(tenant, func() error {
		q, err := s.topic(ctx, tenant, name)
		if err == nil {
			sent, err = s.sendTo(ctx, tenant, q, messages)
		}
		return err
	})
	return sent, err
}

// CancelPublished deletes a message that is scheduled in a topic under that number and is not
// active yet.
func (s Messages) CancelPublished(ctx context.Context, tenant, topic string, seq int64) error {
	q, err := s.topicNow(ctx, tenant, topic)
	if err != nil {
		return err
	}
	cancelled, err := s.store.CancelScheduled(ctx, q, seq)
	if err == nil && !cancelled {
		return bus.ErrNotScheduled(q)
	}
	return err
}

// Put creates a subscription, or changes its settings and leaves its rules.
func (s Subscriptions) Put(ctx context.Context, tenant, topic, name string, settings forebay.SubscriptionSettings) (sub forebay.Subscription, created bool, err error) {
	t, err := s.topicNow(ctx, tenant, topic)
	if err != nil {
		return sub, false, err
	}
	stored, created, err := s.put(ctx, tenant, t, name, settings, putting{})
	if err != nil {
		return sub, false, err
	}
	sub, err = s.info(ctx, topic, stored, entity.CountLimit)
	return sub, created, err
}

func (s Subscriptions) put(ctx context.Context, tenant string, t bus.MessageQueue, name string, settings forebay.SubscriptionSettings, opts putting) (sub bus.MessageQueue, created bool, err error) {
	if err := rules.CheckName("subscription", name); err != nil {
		return sub, false, err
	}
	if err := entity.CheckSubscriptionSettings(settings); err != nil {
		return sub, false, err
	}
	first, err := rules.First(settings.Rules)
	if err != nil {
		return sub, false, err
	}
	wanted, keep, err := s.wanted(ctx, tenant, bus.MessageQueue{Name: entity.SubscriptionName(t.Name, name), Topic: t.No}, settings.MessageQueueSettings, opts)
	if err != nil {
		return sub, false, err
	}
	wanted.DeadLetterFilterErrors = settings.DeadLetterOnFilterError == nil || *settings.DeadLetterOnFilterError
	limit := forebay.MaxSubscriptions
	if entity.OnlyForebayPublishes(t.Name) {
		limit = forebay.MaxEventListeners
	}
	done, err := s.takeNew(ctx, tenant, wanted.Name, want{forebay.LimitSubscriptions, 1}, want{forebay.LimitRules, int64(len(first))})
	if err != nil {
		return sub, false, err
	}
	defer done()
	sub, created, err = s.store.Entities().PutSubscription(ctx, t, wanted, first, opts.options(ctx, limit, keep))
	s.changed(wanted.Name)
	return sub, created, err
}

// subscription finds a subscription of a tenant's topic, by what is stored now.
func (s *entities) subscription(ctx context.Context, tenant, topic, name string) (bus.MessageQueue, error) {
	if !forebay.ValidEntityName(topic) || !entity.ValidSubscription(name) {
		return bus.MessageQueue{}, entity.ErrNoSubscription
	}
	q, err := s.storedNow(ctx, entity.SubscriptionName(entity.StoredName(tenant, topic), name))
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue {
		return q, entity.ErrNoSubscription
	}
	return q, err
}

// Get returns a subscription with counts of its messages.
func (s Subscriptions) Get(ctx context.Context, tenant, topic, name string) (forebay.Subscription, error) {
	q, err := s.subscription(ctx, tenant, topic, name)
	if err != nil {
		return forebay.Subscription{}, err
	}
	return s.info(ctx, topic, q, entity.CountLimit)
}

// List returns the topic's subscriptions by name.
func (s Subscriptions) List(ctx context.Context, tenant, topic string) ([]forebay.Subscription, error) {
	t, err := s.topicNow(ctx, tenant, topic)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.Subscriptions(ctx, t)
	if err != nil {
		return nil, err
	}
	subs := make([]forebay.Subscription, len(stored))
	for i, q := range stored {
		if subs[i], err = s.info(ctx, topic, q, entity.CountLimitOf(len(stored))); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

func (s Subscriptions) info(ctx context.Context, topic string, q bus.MessageQueue, limit int64) (forebay.Subscription, error) {
	info, err := s.describe(ctx, entity.SubscriptionOf(q.Name), q, limit)
	return forebay.Subscription{Topic: topic, MessageQueue: info, DeadLetterOnFilterError: q.DeadLetterFilterErrors}, err
}

// Delete removes a subscription with its rules and messages.
func (s Subscriptions) Delete(ctx context.Context, tenant, topic, name string) error {
	q, err := s.subscription(ctx, tenant, topic, name)
	if err != nil {
		return err
	}
	return s.drop(ctx, q, entity.ErrNoSubscription)
}
