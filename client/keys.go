package client

import (
	"context"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
)

// keys is the part of Client about API keys.
type keys struct{ *endpoint }

// Keys returns all API keys, without the keys themselves.
func (c *keys) Keys(ctx context.Context) ([]forebay.APIKey, error) {
	return items[forebay.APIKey](ctx, c.endpoint, path("keys"))
}

// CreateKey makes an API key. Only this answer contains the key itself. expires may be nil, for a
// key that never expires. Entities bind a key of message scopes to queues, topics and
// subscriptions, see [forebay.Caller.Reaches]. SetKeyBudget sets its budget.
func (c *keys) CreateKey(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time, entities ...string) (forebay.APIKey, error) {
	body := struct {
		Tenant    string          `json:"tenant"`
		Scopes    []forebay.Scope `json:"scopes"`
		Entities  []string        `json:"entities,omitempty"`
		ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	}{tenant, scopes, entities, expires}
	var key forebay.APIKey
	err := c.call(ctx, request{method: http.MethodPost, path: path("keys"), body: body, once: true}, &key)
	return key, err
}

// RevokeKey revokes a key. Revoking it again changes nothing.
func (c *keys) RevokeKey(ctx context.Context, id string) error {
	if err := checkID("key id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("keys", id)}, nil)
}

// SetKeyBudget replaces the budget of an API key. It applies to jobs that are submitted with the
// key from then on.
func (c *keys) SetKeyBudget(ctx context.Context, id string, budget forebay.Budget) (forebay.APIKey, error) {
	var key forebay.APIKey
	if err := checkID("key id", id); err != nil {
		return key, err
	}
	err := c.call(ctx, request{method: http.MethodPut, path: path("keys", id, "budget"), body: budget}, &key)
	return key, err
}
