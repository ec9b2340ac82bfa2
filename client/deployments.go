package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// deployments is the part of Client about deployments.
type deployments struct{ *endpoint }

// Deployments returns what calls go to: deployments of models, and HTTP functions.
func (c *deployments) Deployments(ctx context.Context) ([]forebay.Deployment, error) {
	return items[forebay.Deployment](ctx, c.endpoint, path("deployments"))
}

// Deployment returns one deployment.
func (c *deployments) Deployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodGet, name)
}

// PauseDeployment stops new calls to a deployment in all processes and returns the deployment.
// Running calls continue.
func (c *deployments) PauseDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "pause")
}

// ResumeDeployment undoes PauseDeployment.
func (c *deployments) ResumeDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "resume")
}

// ForgetDeployment discards what all processes have learned about a deployment, and returns it.
// That is its limit, its breaker and the pauses its provider asked for. A pause by an operator
// stays.
func (c *deployments) ForgetDeployment(ctx context.Context, name string) (forebay.Deployment, error) {
	return c.deployment(ctx, http.MethodPost, name, "forget")
}

func (c *deployments) deployment(ctx context.Context, method, name string, verb ...string) (forebay.Deployment, error) {
	var d forebay.Deployment
	if err := checkID("deployment", name); err != nil {
		return d, err
	}
	err := c.call(ctx, request{method: method, path: path(append([]string{"deployments", name}, verb...)...)}, &d)
	return d, err
}

// DeploymentChanges returns the changes of a deployment, newest first. It reads pages as they are
// needed.
func (c *deployments) DeploymentChanges(ctx context.Context, name string) iter.Seq2[forebay.DeploymentChange, error] {
	if err := checkID("deployment", name); err != nil {
		return failed[forebay.DeploymentChange](err)
	}
	return pages[forebay.DeploymentChange](ctx, c.endpoint, path("deployments", name, "changes"), url.Values{})
}

// SimFaults returns the faults of a simulated deployment as one JSON object.
func (c *deployments) SimFaults(ctx context.Context, deployment string) (json.RawMessage, error) {
	var faults json.RawMessage
	if err := checkID("deployment", deployment); err != nil {
		return nil, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("deployments", deployment, "sim")}, &faults)
	return faults, err
}

// TaggedSimFaults is SimFaults with the entity tag of the faults, for a condition of SetSimFaults.
func (c *deployments) TaggedSimFaults(ctx context.Context, deployment string) (faults json.RawMessage, etag string, err error) {
	if err := checkID("deployment", deployment); err != nil {
		return nil, "", err
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path("deployments", deployment, "sim")})
	if err != nil {
		return nil, "", err
	}
	etag = resp.Header.Get("ETag")
	err = c.decode(ctx, resp, &faults)
	return faults, etag, err
}

// SetSimFaults replaces the faults of a simulated deployment from the next call on.
func (c *deployments) SetSimFaults(ctx context.Context, deployment string, faults json.RawMessage) error {
	if err := checkID("deployment", deployment); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPut, path: path("deployments", deployment, "sim"), body: faults}, nil)
}
