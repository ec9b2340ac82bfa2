package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type createKeyRequest struct {
	Tenant    string          `json:"tenant,omitempty" doc:"default: the caller's"`
	Scopes    []forebay.Scope `json:"scopes" minItems:"1"`
	Entities  []string        `json:"entities,omitempty" maxItems:"32" doc:"queues, topics and TOPIC/subscriptions/NAME that it is bound to, with what is below them; only with scopes among send, listen and manage; default: all"`
	ExpiresAt *time.Time      `json:"expires_at,omitempty" doc:"default: never"`
	Budget    forebay.Budget  `json:"budget,omitempty" doc:"what jobs that are submitted with the key may use"`
}

type createKeyOutput struct {
	Location string `header:"Location"`
	Body     forebay.APIKey
}

type keyPath struct {
	ID string `path:"id" doc:"id of the key"`
}

func (a *API) routeKeys() {
	tags := []string{"keys"}
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-keys", Method: http.MethodGet, Path: "/v1/keys", Tags: tags, Summary: "List API keys, of all tenants",
	}, func(ctx context.Context, _ *call, _ *none) (*answer[forebay.Page[forebay.APIKey]], error) {
		keys, err := a.keys.List(ctx)
		return pageAnswer(page(keys), err)
	})
	routeBody(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "create-key", Method: http.MethodPost, Path: "/v1/keys", Tags: tags, Summary: "Make an API key",
		Description: "The answer shows the key, once. With the first key the server stops serving requests without one. " +
			"A key with the scope send, listen or manage can sign tokens of Service Bus (SAS): its id is the name, the key is the key.",
		DefaultStatus: http.StatusCreated,
	}, smallBody, func(ctx context.Context, c *call, _ *none, req createKeyRequest) (*createKeyOutput, error) {
		tenant := cmp.Or(req.Tenant, c.caller.Tenant)
		key, err := a.keys.Create(ctx, tenant, req.Scopes, req.ExpiresAt, req.Budget, c.actor(), req.Entities...)
		if err != nil {
			return nil, err
		}
		return &createKeyOutput{Location: "/v1/keys/" + key.ID, Body: key}, nil
	})
	route(a, forebay.ScopeAdmin, huma.Operation{
		OperationID: "revoke-key", Method: http.MethodDelete, Path: "/v1/keys/{id}", Tags: tags,
		Summary: "Revoke an API key", Description: "Revoking it again changes nothing.",
	}, func(ctx context.Context, c *call, in *keyPath) (*answer[forebay.APIKey], error) {
		return answerOf(a.keys.Revoke(ctx, in.ID, c.actor()))
	})
}
