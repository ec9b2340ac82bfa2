package client

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
)

// workflows is the part of Client about declared workflows.
type workflows struct{ *endpoint }

// Workflows returns the declared workflows, by name and without their texts.
func (c *workflows) Workflows(ctx context.Context) ([]forebay.Workflow, error) {
	return items[forebay.Workflow](ctx, c.endpoint, path("workflows"))
}

// Workflow returns a declared workflow with its text.
func (c *workflows) Workflow(ctx context.Context, name string) (w forebay.Workflow, err error) {
	if err := checkID("workflow", name); err != nil {
		return w, err
	}
	err = c.call(ctx, request{method: http.MethodGet, path: path("workflows", name)}, &w)
	return w, err
}
