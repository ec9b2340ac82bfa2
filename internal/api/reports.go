package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type reportInput struct {
	Since time.Time `query:"since" doc:"default: a day before until"`
	Until time.Time `query:"until" doc:"default: now"`
}

// taskInfo is forebay.Task in the form for clients.
type taskInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Queue       string `json:"queue" doc:"where its jobs go unless they say otherwise"`
	MaxAttempts int    `json:"max_attempts" doc:"0: the queue's"`
}

type taskDetail struct {
	taskInfo
	InputSchema  json.RawMessage `json:"input_schema,omitempty" doc:"JSON schema of the input; absent: the task does not describe it"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" doc:"JSON schema of the result"`
	Example      json.RawMessage `json:"example,omitempty" doc:"an input"`
}

type taskPath struct {
	Task string `path:"task" maxLength:"64"`
}

func infoOf(t forebay.Task) taskInfo {
	return taskInfo{t.Name, t.Description, cmp.Or(t.Queue, forebay.DefaultQueue), t.MaxAttempts}
}

func (a *API) routeReports() {
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "report-retries", Method: http.MethodGet, Path: "/v1/reports/retries", Tags: []string{"reports"},
		Summary: "Report how retries went", Description: "Of attempts that finished in the hours from the one of `since` to the one of `until`, as far as 90 days back.",
	}, func(ctx context.Context, c *call, in *reportInput) (*answer[forebay.RetryReport], error) {
		return answerOf(a.reports.RetryReport(ctx, c.caller.Tenant, in.Since, in.Until))
	})
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "list-tasks", Method: http.MethodGet, Path: "/v1/tasks", Tags: []string{"tasks"}, Summary: "List the tasks jobs may ask for",
	}, func(context.Context, *call, *none) (*answer[forebay.Page[taskInfo]], error) {
		var all []taskInfo
		for _, t := range a.jobs.Tasks() {
			all = append(all, infoOf(t))
		}
		return pageAnswer(page(all), nil)
	})
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "get-task", Method: http.MethodGet, Path: "/v1/tasks/{task}", Tags: []string{"tasks"},
		Summary: "Get a task with what it takes and returns",
	}, func(_ context.Context, _ *call, in *taskPath) (*answer[taskDetail], error) {
		for _, t := range a.jobs.Tasks() {
			if t.Name == in.Task {
				return answerOf(taskDetail{infoOf(t), t.InputSchema, t.OutputSchema, t.Example}, nil)
			}
		}
		return answerOf(taskDetail{}, error(forebay.ErrNotFound))
	})
}
