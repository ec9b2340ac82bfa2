package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// TenantsInput asks for what all tenants have together.
type TenantsInput struct {
	AllTenants bool `query:"all_tenants" doc:"of all tenants, not of the caller's alone; needs the scope view"`
}

// check refuses all tenants to a caller who may not see them.
func (in TenantsInput) check(c *call) error { return c.mayLook(in.AllTenants) }

// ReportInput is the time that a report covers.
type ReportInput struct {
	Since time.Time `query:"since" doc:"default: a day before until"`
	Until time.Time `query:"until" doc:"default: now"`
	TenantsInput
}

type usageInput struct {
	ReportInput
	By   []string `query:"by,explode" doc:"tenant, task, model, deployment: repeated or separated by commas. Default: all together"`
	Step string   `query:"step" enum:"hour,day,all" doc:"default all"`
}

// TaskInfo is a task for clients. Of unexported types that are embedded huma documents nothing.
type TaskInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Queue       string `json:"queue" doc:"where its jobs go unless they say otherwise"`
	MaxAttempts int    `json:"max_attempts" doc:"0: the queue's"`
}

type taskDetail struct {
	TaskInfo
	InputSchema  json.RawMessage `json:"input_schema,omitempty" doc:"JSON schema of the input; absent: the task does not describe it"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" doc:"JSON schema of the result"`
	Example      json.RawMessage `json:"example,omitempty" doc:"an input"`
}

type taskPath struct {
	Task string `path:"task" maxLength:"64"`
}

func infoOf(t forebay.Task) TaskInfo {
	return TaskInfo{t.Name, t.Description, cmp.Or(t.Queue, forebay.DefaultQueue), t.MaxAttempts}
}

func usage(ctx context.Context, c *call, in *usageInput) (*answer[forebay.UsageReport], error) {
	if err := in.check(c); err != nil {
		return nil, err
	}
	query := forebay.UsageQuery{Since: in.Since, Until: in.Until, Step: forebay.UsageStep(in.Step), AllTenants: in.AllTenants}
	for _, by := range splitList(in.By) {
		query.By = append(query.By, forebay.UsageBy(by))
	}
	models := map[string]string{}
	if slices.Contains(query.By, forebay.UsageByModel) {
		deployments, err := c.api.deployments.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, d := range deployments {
			models[d.Name] = strings.Join(slices.Sorted(slices.Values(d.Models)), ",")
		}
	}
	return answerOf(c.api.reports.Usage(ctx, c.caller.Tenant, query, func(deployment string) string { return models[deployment] }))
}

func (a *API) routeReports() {
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "report-retries", Method: http.MethodGet, Path: "/v1/reports/retries", Tags: []string{"reports"},
		Summary: "Report how retries went", Description: "Of attempts that finished in the hours from the one of `since` to the one of `until`, as far as 90 days back.",
	}, func(ctx context.Context, c *call, in *ReportInput) (*answer[forebay.RetryReport], error) {
		if err := in.check(c); err != nil {
			return nil, err
		}
		return answerOf(a.reports.RetryReport(ctx, c.caller.Tenant, in.AllTenants, in.Since, in.Until))
	})
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "report-usage", Method: http.MethodGet, Path: "/v1/reports/usage", Tags: []string{"reports"},
		Summary: "Report calls, tokens and cost",
		Description: fmt.Sprintf("Of attempts that finished in the hours from the one of `since` to the one of `until`, as far as 90 days back. "+
			"A report has at most %d rows; one that would have more is refused. Where the step is an hour it covers 31 days at most, and a day where it tells all tenants apart.", forebay.MaxUsageRows),
	}, usage)
	route(a, forebay.ScopeRead, huma.Operation{
		OperationID: "list-tasks", Method: http.MethodGet, Path: "/v1/tasks", Tags: []string{"tasks"}, Summary: "List the tasks jobs may ask for",
	}, func(context.Context, *call, *none) (*answer[forebay.Page[TaskInfo]], error) {
		var all []TaskInfo
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
		return answerOf(taskDetail{}, error(forebay.Errorf(forebay.CodeNotFound, "there is no task %.80s", in.Task)))
	})
}
