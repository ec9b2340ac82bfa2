package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// Deployments returns what calls go to: the deployments of models, and HTTP functions.
func (c *Client) Deployments(ctx context.Context) ([]forebay.Deployment, error) {
	return items[forebay.Deployment](ctx, c, path("deployments"))
}

// Deployment returns one of them.
func (c *Client) Deployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodGet, name)
}

// PauseDeployment keeps further calls away from a deployment, in all processes, and returns it. Those that
// are under way go on.
func (c *Client) PauseDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "pause")
}

// ResumeDeployment undoes PauseDeployment.
func (c *Client) ResumeDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "resume")
}

// ForgetDeployment begins anew to learn of a deployment, in all processes, and returns it: its limit, its breaker, the
// pauses that its provider asked for. A pause by an operator stays.
func (c *Client) ForgetDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "forget")
}

func (c *Client) deployment(ctx context.Context, method, name string, verb ...string) (forebay.Deployment, error) {
	var d forebay.Deployment
	if err := checkID("deployment", name); err != nil {
		return d, err
	}
	err := c.call(ctx, request{method: method, path: path(append([]string{"deployments", name}, verb...)...)}, &d)
	return d, err
}

// DeploymentChanges returns what happened to a deployment, newest first, reading page after page as they
// are asked for.
func (c *Client) DeploymentChanges(ctx context.Context, name string) iter.Seq2[forebay.DeploymentChange, error] {
	if err := checkID("deployment", name); err != nil {
		return failed[forebay.DeploymentChange](err)
	}
	return pages[forebay.DeploymentChange](ctx, c, path("deployments", name, "changes"), url.Values{})
}

// SimFaults returns how difficult a simulated deployment is at the moment, as one JSON object.
func (c *Client) SimFaults(ctx context.Context, deployment string) (json.RawMessage, error) {
	var faults json.RawMessage
	if err := checkID("deployment", deployment); err != nil {
		return nil, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("deployments", deployment, "sim")}, &faults)
	return faults, err
}

// SetSimFaults replaces the faults of a simulated deployment, from its next call on.
func (c *Client) SetSimFaults(ctx context.Context, deployment string, faults json.RawMessage) error {
	if err := checkID("deployment", deployment); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPut, path: path("deployments", deployment, "sim"), body: faults}, nil)
}
