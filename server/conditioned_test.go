package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// conditioned is something that is changed on conditions.
type conditioned struct {
	name string
	path string // GET; "": there is none
	// show returns its entity tag and what the changes change.
	show func(context.Context, *client.Client) (etag, state string, err error)
	// change makes a change. Each number is another one, and change returns the state that it makes.
	change func(ctx context.Context, c *client.Client, n int) (state string, err error)
	remove func(context.Context, *client.Client) error // nil: it is not removed on conditions
	isNew  bool                                        // change makes it where it is not there
}

func settingsOfMessageQueue(n int) forebay.MessageQueueSettings {
	return forebay.MessageQueueSettings{MaxDeliveryCount: 10 + n}
}

// conditionedThings are all that is changed or deleted by a condition in the database, but for
// documents and dead letters. key is the id of an API key.
func conditionedThings(key string) []conditioned {
	const topic, sub, hook = "news", "all", "hook"
	number := func(n int, err error) (string, error) { return fmt.Sprint(n), err }
	return []conditioned{
		{name: "queue", path: "/v1/queues/mail", isNew: true,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				var q forebay.MessageQueue
				err := c.Call(ctx, http.MethodGet, "/v1/queues/mail", nil, nil, &q)
				return q.ETag, fmt.Sprint(q.MaxDeliveryCount), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				q, err := c.PutMessageQueue(ctx, "mail", settingsOfMessageQueue(n))
				return number(q.MaxDeliveryCount, err)
			},
			remove: func(ctx context.Context, c *client.Client) error { return c.DeleteMessageQueue(ctx, "mail") }},
		{name: "status of a queue", path: "/v1/queues/notes",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				var q forebay.MessageQueue
				err := c.Call(ctx, http.MethodGet, "/v1/queues/notes", nil, nil, &q)
				return q.ETag, q.UserMetadata, err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				note := fmt.Sprint("note ", n)
				q, err := c.ChangeMessageQueue(ctx, "notes", forebay.EntityChange{UserMetadata: &note})
				return q.UserMetadata, err
			}},
		{name: "topic", path: "/v1/topics/posts", isNew: true,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				t, err := c.Topic(ctx, "posts")
				if err != nil {
					return "", "", err
				}
				return t.ETag, fmt.Sprint(t.MaxMessageBytes), nil
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				t, err := c.PutTopic(ctx, "posts", forebay.TopicSettings{MaxMessageBytes: 2000 + int64(n)})
				return fmt.Sprint(t.MaxMessageBytes), err
			},
			remove: func(ctx context.Context, c *client.Client) error { return c.DeleteTopic(ctx, "posts") }},
		{name: "status of a topic", path: "/v1/topics/" + topic,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				t, err := c.Topic(ctx, topic)
				return t.ETag, t.UserMetadata, err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				note := fmt.Sprint("note ", n)
				t, err := c.ChangeTopic(ctx, topic, forebay.EntityChange{UserMetadata: &note})
				return t.UserMetadata, err
			}},
		{name: "subscription", path: "/v1/topics/" + topic + "/subscriptions/some", isNew: true,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				s, err := c.Subscription(ctx, topic, "some")
				return s.ETag, fmt.Sprint(s.MaxDeliveryCount), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				s, err := c.PutSubscription(ctx, topic, "some", forebay.SubscriptionSettings{MessageQueueSettings: settingsOfMessageQueue(n)})
				return number(s.MaxDeliveryCount, err)
			},
			remove: func(ctx context.Context, c *client.Client) error { return c.DeleteSubscription(ctx, topic, "some") }},
		{name: "status of a subscription", path: "/v1/topics/" + topic + "/subscriptions/" + sub,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				s, err := c.Subscription(ctx, topic, sub)
				return s.ETag, s.UserMetadata, err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				note := fmt.Sprint("note ", n)
				s, err := c.ChangeSubscription(ctx, topic, sub, forebay.EntityChange{UserMetadata: &note})
				return s.UserMetadata, err
			}},
		{name: "rule", path: "/v1/topics/" + topic + "/subscriptions/" + sub + "/rules/r", isNew: true,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				var r forebay.Rule
				err := c.Call(ctx, http.MethodGet, "/v1/topics/"+topic+"/subscriptions/"+sub+"/rules/r", nil, nil, &r)
				if err != nil {
					return "", "", err
				}
				return r.ETag, fmt.Sprint(r.CorrelationFilter.Properties["n"]), nil
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				// Properties of several types: the tag is that of what is stored.
				r, err := c.PutRule(ctx, topic, sub, "r", forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{
					Properties: forebay.Properties{"n": int64(n), "ratio": 1.0, "large": int64(1) << 60, "text": "é<"}}})
				if err != nil {
					return "", err
				}
				return fmt.Sprint(r.CorrelationFilter.Properties["n"]), nil
			},
			remove: func(ctx context.Context, c *client.Client) error { return c.DeleteRule(ctx, topic, sub, "r") }},
		{name: "webhook", path: "/v1/webhooks/" + hook,
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				w, err := c.Webhook(ctx, hook)
				return w.ETag, fmt.Sprint(w.Concurrency), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				w, err := c.UpdateWebhook(ctx, hook, forebay.WebhookSettings{URL: "http://127.0.0.1:9/", Concurrency: 1 + n})
				return number(w.Concurrency, err)
			},
			remove: func(ctx context.Context, c *client.Client) error { return c.DeleteWebhook(ctx, hook) }},
		{name: "secret of a webhook", path: "/v1/webhooks/rotated",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				w, err := c.Webhook(ctx, "rotated")
				return w.ETag, fmt.Sprint(w.Secrets), err
			},
			change: func(ctx context.Context, c *client.Client, _ int) (string, error) {
				none := 0.0
				w, err := c.RotateWebhookSecret(ctx, "rotated", forebay.RotateSecretRequest{OverlapHours: &none})
				return fmt.Sprint(w.Secrets), err
			}},
		{name: "budget of a tenant", path: "/v1/tenants/default",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				t, err := c.Tenant(ctx, forebay.DefaultTenant)
				return t.ETag, fmt.Sprint(deref(t.Budget.DailyTokens)), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				tokens := 1_000_000 + int64(n)
				t, err := c.SetBudget(ctx, forebay.DefaultTenant, forebay.Budget{DailyTokens: &tokens})
				return fmt.Sprint(deref(t.Budget.DailyTokens)), err
			}},
		{name: "concurrency of a tenant", path: "/v1/tenants/default",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				t, err := c.Tenant(ctx, forebay.DefaultTenant)
				return t.ETag, fmt.Sprint(t.Concurrency), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				t, err := c.SetConcurrency(ctx, forebay.DefaultTenant, 100+n)
				return number(t.Concurrency, err)
			}},
		{name: "limits of a tenant", path: "/v1/tenants/default",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				t, err := c.Tenant(ctx, forebay.DefaultTenant)
				return t.ETag, limitOf(t), err
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				most := 5000 + int64(n)
				t, err := c.SetLimits(ctx, forebay.DefaultTenant, forebay.TenantLimits{WaitingJobs: &most})
				return limitOf(t), err
			}},
		{name: "budget of a key",
			show: func(ctx context.Context, c *client.Client) (string, string, error) {
				keys, err := c.Keys(ctx)
				i := slices.IndexFunc(keys, func(k forebay.APIKey) bool { return k.ID == key })
				if err != nil || i < 0 {
					return "", "", errors.Join(err, fmt.Errorf("place %d", i))
				}
				return keys[i].ETag, tokensOf(keys[i].Budget), nil
			},
			change: func(ctx context.Context, c *client.Client, n int) (string, error) {
				tokens := 2_000_000 + int64(n)
				k, err := c.SetKeyBudget(ctx, key, forebay.Budget{MonthlyTokens: &tokens})
				return tokensOf(k.Budget), err
			}},
	}
}
