package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/forebayhq/forebay"
)

// PutTopic creates a topic or replaces its settings.
func (c *Client) PutTopic(ctx context.Context, name string, settings forebay.TopicSettings) (forebay.Topic, error) {
	return one[forebay.Topic](ctx, c, http.MethodPut, settings, "topics", name)
}

// Topics returns the topics.
func (c *Client) Topics(ctx context.Context) ([]forebay.Topic, error) {
	return items[forebay.Topic](ctx, c, path("topics"))
}

// Topic returns one topic.
func (c *Client) Topic(ctx context.Context, name string) (forebay.Topic, error) {
	return one[forebay.Topic](ctx, c, http.MethodGet, nil, "topics", name)
}

// DeleteTopic removes a topic with its subscriptions and their messages.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	return c.remove(ctx, "topics", name)
}

// Publish sends all of the messages to a topic, or none of them. The client does not repeat it
// when the answer is lost. If the topic detects duplicates and each message has an id, repeat it
// yourself.
func (c *Client) Publish(ctx context.Context, topic string, messages ...forebay.NewMessage) ([]forebay.SentMessage, error) {
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
func (c *Client) PutSubscription(ctx context.Context, topic, name string, settings forebay.SubscriptionSettings) (forebay.Subscription, error) {
	return one[forebay.Subscription](ctx, c, http.MethodPut, settings, "topics", topic, "subscriptions", name)
}

// Subscriptions returns the subscriptions of a topic with the numbers of their messages.
func (c *Client) Subscriptions(ctx context.Context, topic string) ([]forebay.Subscription, error) {
	if err := checkID("topic", topic); err != nil {
		return nil, err
	}
	return items[forebay.Subscription](ctx, c, path("topics", topic, "subscriptions"))
}

// Subscription returns one subscription.
func (c *Client) Subscription(ctx context.Context, topic, name string) (forebay.Subscription, error) {
	return one[forebay.Subscription](ctx, c, http.MethodGet, nil, "topics", topic, "subscriptions", name)
}

// DeleteSubscription removes a subscription with its rules and messages.
func (c *Client) DeleteSubscription(ctx context.Context, topic, name string) error {
	return c.remove(ctx, "topics", topic, "subscriptions", name)
}

// PutRule adds a rule to a subscription, or replaces the one of that name.
func (c *Client) PutRule(ctx context.Context, topic, subscription, name string, settings forebay.RuleSettings) (forebay.Rule, error) {
	return one[forebay.Rule](ctx, c, http.MethodPut, settings, "topics", topic, "subscriptions", subscription, "rules", name)
}

// Rules returns a subscription's rules.
func (c *Client) Rules(ctx context.Context, topic, subscription string) ([]forebay.Rule, error) {
	if err := errors.Join(checkID("topic", topic), checkID("subscription", subscription)); err != nil {
		return nil, err
	}
	return items[forebay.Rule](ctx, c, path("topics", topic, "subscriptions", subscription, "rules"))
}

// DeleteRule removes a rule.
func (c *Client) DeleteRule(ctx context.Context, topic, subscription, name string) error {
	return c.remove(ctx, "topics", topic, "subscriptions", subscription, "rules", name)
}

// one sends a request about the entity that the segments name. Segments alternate between kinds
// and names.
func one[T any](ctx context.Context, c *Client, method string, body any, segments ...string) (T, error) {
	var v T
	if err := checkSegments(segments); err != nil {
		return v, err
	}
	err := c.call(ctx, request{method: method, path: path(segments...), body: body}, &v)
	return v, err
}

func (c *Client) remove(ctx context.Context, segments ...string) error {
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
