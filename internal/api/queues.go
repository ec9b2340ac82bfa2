package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// QueuePath names the queue a request is about.
type QueuePath struct {
	Queue string `path:"queue" doc:"name of the queue"`
}

const countsDescription = "A count that `counts_capped` is about stopped at a limit; there are at least so many."

func (a queueRoutes) routeQueues() {
	route(a.API, toDescribe, huma.Operation{
		OperationID: "list-queues", Method: http.MethodGet, Path: "/v1/queues", Tags: []string{"queues"},
		Summary: "List queues, for jobs or of plain messages", Description: "Counts are of the caller's own jobs, or of those of all tenants. " + countsDescription,
		Responses: a.eitherQueue(reflect.TypeFor[forebay.Page[forebay.QueueInfo]](), reflect.TypeFor[forebay.Page[forebay.MessageQueue]]()),
	}, a.listQueues)
	route(a.API, toDescribe, huma.Operation{
		OperationID: "get-queue", Method: http.MethodGet, Path: "/v1/queues/{queue}", Tags: []string{"queues"}, Summary: "Get a queue, for jobs or of plain messages",
		Description: "Counts of a queue for jobs are of the caller's own, or of those of all tenants. " + countsDescription,
		Responses:   a.eitherQueue(reflect.TypeFor[forebay.QueueInfo](), reflect.TypeFor[forebay.MessageQueue]()),
	}, a.anyQueue)
	routeNoBody(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "pause-queue", Method: http.MethodPost, Path: "/v1/queues/{queue}/pause", Tags: []string{"queues"},
		Summary: "Pause a queue", Description: "No job of any tenant starts; calls in flight finish. A pause outlives a restart.",
	}, func(ctx context.Context, c *call, in *QueuePath) (*answer[forebay.QueueInfo], error) {
		if err := a.jobs.PauseQueue(ctx, in.Queue, c.actor()); err != nil {
			return nil, err
		}
		return a.queue(ctx, c, in.Queue)
	})
	routeNoBody(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "resume-queue", Method: http.MethodPost, Path: "/v1/queues/{queue}/resume", Tags: []string{"queues"}, Summary: "Resume a queue",
	}, func(ctx context.Context, c *call, in *QueuePath) (*answer[forebay.QueueInfo], error) {
		if err := a.jobs.ResumeQueue(ctx, in.Queue, c.actor()); err != nil {
			return nil, err
		}
		return a.queue(ctx, c, in.Queue)
	})
}

func (a queueRoutes) queue(ctx context.Context, c *call, name string) (*answer[forebay.QueueInfo], error) {
	return answerOf(a.jobs.Queue(ctx, c.caller.Tenant, name))
}
