package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/forebayhq/forebay"
)

// topics is the part of Client about topics, their subscriptions and rules.
type topics struct{ *endpoint }

// PutTopic creates a topic or replaces its settings.
func (c *topics) PutTopic(ctx context.Context, name string, settings forebay.TopicSettings) (forebay.Topic, error) {
	return one[forebay.Topic](ctx, c.endpoint, http.MethodPut, settings, "topics", name)
}

// Topics returns the topics.
func (c *topics) Topics(ctx context.Context) ([]forebay.Topic, error) {
	return items[forebay.Topic](ctx, c.endpoint, path("topics"))
}

// Topic returns one topic.
func (c *topics) Topic(ctx context.Context, name string) (forebay.Topic, error) {
	return one[forebay.Topic](ctx, c.endpoint, http.MethodGet, nil, "topics", name)
}

// ChangeTopic changes the status and the metadata of a topic. What the change leaves out stays.
func (c *topics) ChangeTopic(ctx context.Context, name string, change forebay.EntityChange) (forebay.Topic, error) {
	return one[forebay.Topic](ctx, c.endpoint, http.MethodPut, change, "topics", name, "status")
}

// DeleteTopic removes a topic with its subscriptions and their messages.
func (c *topics) DeleteTopic(ctx context.Context, name string) error {
	return c.remove(ctx, "topics", name)
}

// Publish sends all of the messages to a topic, or none of them. The client does not repeat it
// when the answer is lost. If the topic detects duplicates and each message has an id, repeat it
// yourself.
func (c *topics) Publish(ctx context.Context, topic string, messages ...forebay.NewMessage) ([]forebay.SentMessage, error) {
	if err := checkID("topic", topic); err != nil {
		return nil, err
	}
	body := struct {
		Messages []forebay.NewMessage `json:"messages"`
	}{messages}
	var answer struct {
		Messages []forebay.SentMessage `json:"messages"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: path("topics", topic, "messages"), body: body, once: true}, &answer)
	return answer.Messages, err
}

// PutSubscription creates a subscription or replaces its settings, but not its rules. Receive its
// messages from the queue that [forebay.SubscriptionPath] names.
func (c *topics) PutSubscription(ctx context.Context, topic, name string, settings forebay.SubscriptionSettings) (forebay.Subscription, error) {
	return one[forebay.Subscription](ctx, c.endpoint, http.MethodPut, settings, "topics", topic, "subscriptions", name)
}

// Subscriptions returns the subscriptions of a topic with the numbers of their messages.
func (c *topics) Subscriptions(ctx context.Context, topic string) ([]forebay.Subscription, error) {
	if err := checkID("topic", topic); err != nil {
		return nil, err
	}
	return items[forebay.Subscription](ctx, c.endpoint, path("topics", topic, "subscriptions"))
}

// Subscription returns one subscription.
func (c *topics) Subscription(ctx context.Context, topic, name string) (forebay.Subscription, error) {
	return one[forebay.Subscription](ctx, c.endpoint, http.MethodGet, nil, "topics", topic, "subscriptions", name)
}

// ChangeSubscription changes the status and the metadata of a subscription. What the change leaves
// out stays.
func (c *topics) ChangeSubscription(ctx context.Context, topic, name string, change forebay.EntityChange) (forebay.Subscription, error) {
	return one[forebay.Subscription](ctx, c.endpoint, http.MethodPut, change, "topics", topic, "subscriptions", name, "status")
}

// DeleteSubscription removes a subscription with its rules and messages.
func (c *topics) DeleteSubscription(ctx context.Context, topic, name string) error {
	return c.remove(ctx, "topics", topic, "subscriptions", name)
}

// PutRule adds a rule to a subscription, or replaces the one of that name.
func (c *topics) PutRule(ctx context.Context, topic, subscription, name string, settings forebay.RuleSettings) (forebay.Rule, error) {
	return one[forebay.Rule](ctx, c.endpoint, http.MethodPut, settings, "topics", topic, "subscriptions", subscription, "rules", name)
}

// Rules returns a subscription's rules.
func (c *topics) Rules(ctx context.Context, topic, subscription string) ([]forebay.Rule, error) {
	if err := errors.Join(checkID("topic", topic), checkID("subscription", subscription)); err != nil {
		return nil, err
	}
	return items[forebay.Rule](ctx, c.endpoint, path("topics", topic, "subscriptions", subscription, "rules"))
}

// TestRules returns which rules of a topic select a message, and why. Nothing is sent.
func (c *topics) TestRules(ctx context.Context, topic string, req forebay.RuleTestRequest) (test forebay.RuleTest, err error) {
	if err := checkID("topic", topic); err != nil {
		return test, err
	}
	return test, c.call(ctx, request{method: http.MethodPost, path: path("topics", topic, "test"), body: req}, &test)
}

// DeleteRule removes a rule.
func (c *topics) DeleteRule(ctx context.Context, topic, subscription, name string) error {
	return c.remove(ctx, "topics", topic, "subscriptions", subscription, "rules", name)
}

// one sends a request about the entity that the segments name. Segments alternate between kinds
// and names.
func one[T any](ctx context.Context, e *endpoint, method string, body any, segments ...string) (T, error) {
	var v T
	if err := checkSegments(segments); err != nil {
		return v, err
	}
	err := e.call(ctx, request{method: method, path: path(segments...), body: body}, &v)
	return v, err
}

func (c *topics) remove(ctx context.Context, segments ...string) error {
	if err := checkSegments(segments); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path(segments...), once: true}, nil)
}

func checkSegments(segments []string) error {
	for i := 1; i < len(segments); i += 2 {
		if err := checkID(segments[i-1][:len(segments[i-1])-1], segments[i]); err != nil {
			return err
		}
	}
	return nil
}
