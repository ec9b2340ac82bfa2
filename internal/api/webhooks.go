package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
)

// WebhookPath names a webhook.
type WebhookPath struct {
	Webhook string `path:"webhook" doc:"name of the webhook"`
}

type webhookPage struct {
	WebhookPath
	PageInput
}

type createWebhookOutput struct {
	Location string `header:"Location"`
	Body     forebay.Webhook
}

var webhookTags = []string{"webhooks"}

func webhookOperation(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: "/v1/webhooks" + path, Tags: webhookTags, Summary: summary}
}

// routeWebhooks registers the webhooks of a tenant.
func (a *API) routeWebhooks() {
	if a.webhooks == nil {
		return
	}
	route(a, forebay.ScopeOperate, webhookOperation("list-webhooks", http.MethodGet, "", "List webhooks"),
		func(ctx context.Context, c *call, _ *none) (*answer[forebay.Page[forebay.Webhook]], error) {
			list, err := a.webhooks.Webhooks(ctx, c.caller.Tenant)
			return pageAnswer(page(list), err)
		})
	create := webhookOperation("create-webhook", http.MethodPost, "", "Make a webhook")
	create.Description = "The answer shows the secret, once. Deliveries are signed as Standard Webhooks."
	create.DefaultStatus = http.StatusCreated
	routeBody(a, forebay.ScopeOperate, create, smallBody, func(ctx context.Context, c *call, _ *none, wanted forebay.NewWebhook) (*createWebhookOutput, error) {
		w, err := a.webhooks.Create(ctx, c.caller.Tenant, wanted, c.actor())
		if err != nil {
			return nil, err
		}
		return &createWebhookOutput{Location: "/v1/webhooks/" + w.Name, Body: w}, nil
	})
	route(a, forebay.ScopeOperate, webhookOperation("get-webhook", http.MethodGet, "/{webhook}", "Get a webhook"),
		func(ctx context.Context, c *call, in *WebhookPath) (*answer[forebay.Webhook], error) {
			return answerOf(a.webhooks.Webhook(ctx, c.caller.Tenant, in.Webhook))
		})
	update := conditions.Take(webhookOperation("update-webhook", http.MethodPut, "/{webhook}", "Change a webhook's settings, enable or disable it"), false)
	update.Description = "What is left out gets its default. A webhook that was disabled is enabled again, unless the body says disabled: true."
	routeBody(a, forebay.ScopeOperate, update, smallBody, func(ctx context.Context, c *call, in *WebhookPath, settings forebay.WebhookSettings) (*answer[forebay.Webhook], error) {
		return answerOf(a.webhooks.Update(ctx, c.caller.Tenant, in.Webhook, settings, c.actor()))
	})
	remove := conditions.Take(webhookOperation("delete-webhook", http.MethodDelete, "/{webhook}", "Delete a webhook, with every event that waits for it"), false)
	remove.DefaultStatus = http.StatusNoContent
	route(a, forebay.ScopeOperate, remove, func(ctx context.Context, c *call, in *WebhookPath) (*none, error) {
		return &none{}, a.webhooks.Delete(ctx, c.caller.Tenant, in.Webhook, c.actor())
	})
	a.routeWebhookDeliveries()
}

func (a *API) routeWebhookDeliveries() {
	test := webhookOperation("test-webhook", http.MethodPost, "/{webhook}/test", "Send a webhook a test event")
	test.Description = "Once, at once, with the type webhook.test. The answer says how it went."
	routeNoBody(a, forebay.ScopeOperate, test, func(ctx context.Context, c *call, in *WebhookPath) (*answer[forebay.WebhookTry], error) {
		return answerOf(a.webhooks.Test(ctx, c.caller.Tenant, in.Webhook))
	})
	rotate := conditions.Take(webhookOperation("rotate-webhook-secret", http.MethodPost, "/{webhook}/rotate-secret", "Give a webhook another secret"), false)
	rotate.Description = "The answer shows it, once. The one before goes on signing beside it for the overlap."
	routeOptionalBody(a, forebay.ScopeOperate, rotate, smallBody, func(ctx context.Context, c *call, in *WebhookPath, req forebay.RotateSecretRequest) (*answer[forebay.Webhook], error) {
		return answerOf(a.webhooks.RotateSecret(ctx, c.caller.Tenant, in.Webhook, req, c.actor()))
	})
	route(a, forebay.ScopeOperate, webhookOperation("list-webhook-tries", http.MethodGet, "/{webhook}/tries", "List the latest hundred tries to deliver, newest first"),
		func(ctx context.Context, c *call, in *WebhookPath) (*answer[forebay.Page[forebay.WebhookTry]], error) {
			tries, err := a.webhooks.Tries(ctx, c.caller.Tenant, in.Webhook)
			return pageAnswer(page(tries), err)
		})
	route(a, forebay.ScopeOperate, webhookOperation("list-webhook-dead-letters", http.MethodGet, "/{webhook}/dead-letters", "List the events that were given up, oldest first"),
		func(ctx context.Context, c *call, in *webhookPage) (*answer[forebay.Page[forebay.WebhookDeadLetter]], error) {
			return pageAnswer(a.webhooks.DeadLetters(ctx, c.caller.Tenant, in.Webhook, in.Limit, in.Cursor))
		})
	routeBody(a, forebay.ScopeOperate, webhookOperation("redeliver-webhook", http.MethodPost, "/{webhook}/redeliver", "Try events again that were given up"), smallBody,
		func(ctx context.Context, c *call, in *WebhookPath, req forebay.RedeliverRequest) (*answer[forebay.RedeliverReport], error) {
			return answerOf(a.webhooks.Redeliver(ctx, c.caller.Tenant, in.Webhook, req, c.actor()))
		})
}
