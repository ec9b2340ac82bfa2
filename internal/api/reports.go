package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type reportInput struct {
	Since time.Time `query:"since" doc:"default: a day before until"`
	Until time.Time `query:"until" doc:"default: now"`
}

// taskInfo is forebay.Task as clients see it.
type taskInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Queue       string `json:"queue" doc:"where its jobs go unless they say otherwise"`
	MaxAttempts int    `json:"max_attempts" doc:"0: the queue's"`
}

func (a *API) routeReports() {
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "report-retries", Method: http.MethodGet, Path: "/v1/reports/retries", Tags: []string{"reports"},
		Summary: "Report how retries went", Description: "Of attempts that finished in the hours from the one of `since` to the one of `until`, as far as 90 days back.",
	}, func(ctx context.Context, c *call, in *reportInput) (*answer[forebay.RetryReport], error) {
		return answerOf(a.service.RetryReport(ctx, c.caller.Tenant, in.Since, in.Until))
	})
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "list-tasks", Method: http.MethodGet, Path: "/v1/tasks", Tags: []string{"tasks"}, Summary: "List the tasks jobs may ask for",
	}, func(context.Context, *call, *none) (*answer[forebay.Page[taskInfo]], error) {
		var tasks []taskInfo
		for _, t := range a.service.Tasks() {
			tasks = append(tasks, taskInfo{t.Name, t.Description, cmp.Or(t.Queue, forebay.DefaultQueue), t.MaxAttempts})
		}
		return pageAnswer(page(tasks), nil)
	})
}
