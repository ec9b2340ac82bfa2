package client

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
)

// queues is the part of Client about queues of jobs.
type queues struct{ *endpoint }

// Queues returns all queues with the numbers of their jobs.
func (c *queues) Queues(ctx context.Context) ([]forebay.QueueInfo, error) {
	return items[forebay.QueueInfo](ctx, c.endpoint, path("queues"))
}

// Queue returns one queue.
func (c *queues) Queue(ctx context.Context, name string) (forebay.QueueInfo, error) {
	var queue forebay.QueueInfo
	if err := checkID("queue", name); err != nil {
		return queue, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("queues", name)}, &queue)
	return queue, err
}

// AllQueues returns all queues with the numbers of the jobs of all tenants together. It needs
// forebay.ScopeView.
func (c *queues) AllQueues(ctx context.Context) ([]forebay.QueueInfo, error) {
	var page forebay.Page[forebay.QueueInfo]
	err := c.call(ctx, request{method: http.MethodGet, path: path("queues"), query: allTenants()}, &page)
	return page.Items, err
}

// AnyQueue returns one queue of jobs with the numbers of the jobs of all tenants together. It
// needs forebay.ScopeView.
func (c *queues) AnyQueue(ctx context.Context, name string) (forebay.QueueInfo, error) {
	var queue forebay.QueueInfo
	if err := checkID("queue", name); err != nil {
		return queue, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("queues", name), query: allTenants()}, &queue)
	return queue, err
}

// PauseQueue stops new jobs of the queue from starting. Running jobs continue.
func (c *queues) PauseQueue(ctx context.Context, name string) error {
	return c.verb(ctx, name, "pause")
}

// ResumeQueue undoes PauseQueue.
func (c *queues) ResumeQueue(ctx context.Context, name string) error {
	return c.verb(ctx, name, "resume")
}

func (c *queues) verb(ctx context.Context, queue, verb string) error {
	if err := checkID("queue", queue); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPost, path: path("queues", queue, verb)}, nil)
}
