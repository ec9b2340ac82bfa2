package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forebayhq/forebay"
)

// webhooks is the part of Client about webhooks.
type webhooks struct{ *endpoint }

// Webhooks returns the tenant's webhooks, by name.
func (c *webhooks) Webhooks(ctx context.Context) ([]forebay.Webhook, error) {
	return items[forebay.Webhook](ctx, c.endpoint, path("webhooks"))
}

// CreateWebhook makes a webhook. Only this answer contains its Secret.
func (c *webhooks) CreateWebhook(ctx context.Context, wanted forebay.NewWebhook) (forebay.Webhook, error) {
	var w forebay.Webhook
	err := c.call(ctx, request{method: http.MethodPost, path: path("webhooks"), body: wanted, once: true}, &w)
	return w, err
}

// Webhook returns one webhook.
func (c *webhooks) Webhook(ctx context.Context, name string) (forebay.Webhook, error) {
	return ofWebhook[forebay.Webhook](ctx, c.endpoint, http.MethodGet, name, "", nil, false)
}

// UpdateWebhook replaces the settings of a webhook. It enables a disabled webhook, unless the
// settings disable it.
func (c *webhooks) UpdateWebhook(ctx context.Context, name string, settings forebay.WebhookSettings) (forebay.Webhook, error) {
	return ofWebhook[forebay.Webhook](ctx, c.endpoint, http.MethodPut, name, "", settings, false)
}

// DeleteWebhook removes a webhook and all its pending events.
func (c *webhooks) DeleteWebhook(ctx context.Context, name string) error {
	if err := checkID("webhook", name); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("webhooks", name), once: true}, nil)
}

// TestWebhook sends one test event to a webhook and returns the outcome.
func (c *webhooks) TestWebhook(ctx context.Context, name string) (forebay.WebhookTry, error) {
	return ofWebhook[forebay.WebhookTry](ctx, c.endpoint, http.MethodPost, name, "test", nil, true)
}

// RotateWebhookSecret replaces the secret of a webhook. Only this answer contains the new one.
func (c *webhooks) RotateWebhookSecret(ctx context.Context, name string, req forebay.RotateSecretRequest) (forebay.Webhook, error) {
	return ofWebhook[forebay.Webhook](ctx, c.endpoint, http.MethodPost, name, "rotate-secret", req, true)
}

// WebhookTries returns the latest delivery attempts, newest first.
func (c *webhooks) WebhookTries(ctx context.Context, name string) ([]forebay.WebhookTry, error) {
	page, err := ofWebhook[forebay.Page[forebay.WebhookTry]](ctx, c.endpoint, http.MethodGet, name, "tries", nil, false)
	return page.Items, err
}

// WebhookDeadLetters returns the dead-lettered events, oldest first. It reads pages as they are
// needed. limit is the page size; 0 leaves it to the server.
func (c *webhooks) WebhookDeadLetters(ctx context.Context, name string, limit int) iter.Seq2[forebay.WebhookDeadLetter, error] {
	if err := checkID("webhook", name); err != nil {
		return failed[forebay.WebhookDeadLetter](err)
	}
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return pages[forebay.WebhookDeadLetter](ctx, c.endpoint, path("webhooks", name, "dead-letters"), query)
}

// Redeliver delivers dead-lettered events again: those with the given sequence numbers, or all.
func (c *webhooks) Redeliver(ctx context.Context, name string, req forebay.RedeliverRequest) (forebay.RedeliverReport, error) {
	return ofWebhook[forebay.RedeliverReport](ctx, c.endpoint, http.MethodPost, name, "redeliver", req, true)
}

func ofWebhook[T any](ctx context.Context, e *endpoint, method, name, verb string, body any, once bool) (T, error) {
	var answer T
	if err := checkID("webhook", name); err != nil {
		return answer, err
	}
	at := path("webhooks", name)
	if verb != "" {
		at = path("webhooks", name, verb)
	}
	err := e.call(ctx, request{method: method, path: at, body: body, once: once}, &answer)
	return answer, err
}
