package api

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/turns"
)

// maxWait is the longest long poll.
const maxWait = 60 * time.Second

// retryAfterSubmit is when a client should first ask for a job that was just accepted, in seconds.
const retryAfterSubmit = "1"

// JobPath is embedded in inputs, and exported because huma sets only exported fields.
type JobPath struct {
	ID string `path:"id" doc:"job id"`
}

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"repeats of this request with the same key and body answer with the job already made"`
	Traceparent    string `header:"traceparent" doc:"W3C trace context, handed on to the task"`
}

type submitOutput struct {
	Location   string `header:"Location"`
	RetryAfter string `header:"Retry-After"`
	Replayed   string `header:"Idempotency-Replayed" doc:"true when the job existed already"`
	Body       forebay.Job
}

type getInput struct {
	JobPath
	Wait string `query:"wait" doc:"long poll: answer when the job is terminal, at the latest after this time; up to 60s" example:"30s"`
}

type listInput struct {
	ID            string   `query:"id" maxLength:"128" doc:"one job; finds whose it is, with all_tenants"`
	Status        []string `query:"status,explode" doc:"repeated or separated by commas"`
	Queue         string   `query:"queue"`
	Task          string   `query:"task"`
	CorrelationID string   `query:"correlation_id"`
	SessionID     string   `query:"session_id"`
	Priority      string   `query:"priority" doc:"0 to 9"`
	Metadata      []string `query:"metadata,explode" doc:"key:value, exactly; repeated: all of them"`
	WaitingFor    string   `query:"waiting_for" doc:"only jobs that wait for this, such as quota"`
	AllTenants    bool     `query:"all_tenants" doc:"jobs of every tenant; needs the scope view"`

	CreatedInput
	PageInput
}

// filter checks the parameters that a list of jobs has.
func (in *listInput) filter() (forebay.JobFilter, error) {
	f := forebay.JobFilter{
		ID:    in.ID,
		Queue: in.Queue, Task: in.Task, CorrelationID: in.CorrelationID, SessionID: in.SessionID, AllTenants: in.AllTenants,
		WaitingFor: forebay.WaitReason(in.WaitingFor), Limit: in.Limit, Cursor: in.Cursor,
	}
	f.CreatedAfter, f.CreatedBefore = in.bounds()
	for _, s := range splitList(in.Status) {
		status := forebay.Status(s)
		if !status.Valid() {
			return f, forebay.Invalid("status", "%q is none of %s", decode.Shorten(s), joined(forebay.Statuses))
		}
		f.Status = append(f.Status, status)
	}
	if in.WaitingFor != "" && !f.WaitingFor.Valid() {
		return f, forebay.Invalid("waiting_for", "%q is none of %s", decode.Shorten(in.WaitingFor), joined(forebay.WaitReasons))
	}
	if in.Priority != "" {
		priority, err := strconv.Atoi(in.Priority)
		if err != nil || priority < 0 || priority > forebay.MaxPriority {
			return f, forebay.Invalid("priority", "goes from 0 to %d", forebay.MaxPriority)
		}
		f.Priority = &priority
	}
	for _, pair := range in.Metadata {
		key, value, ok := strings.Cut(pair, ":")
		if _, twice := f.Metadata[key]; !ok || key == "" || twice {
			return f, forebay.Invalid("metadata", "must be key:value, each key once")
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[key] = value
	}
	if len(f.Metadata) > forebay.MaxMetadataEntries {
		return f, forebay.Invalid("metadata", "has %d entries; the limit is %d", len(f.Metadata), forebay.MaxMetadataEntries)
	}
	return f, nil
}

// CreatedInput bounds the time of creation.
type CreatedInput struct {
	CreatedAfter  time.Time `query:"created_after" doc:"created at this time or later"`
	CreatedBefore time.Time `query:"created_before" doc:"created before this time"`
}

// bounds returns the given times. A time that was not given is nil.
func (in *CreatedInput) bounds() (after, before *time.Time) {
	return given(in.CreatedAfter), given(in.CreatedBefore)
}

func given(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// PageInput selects a page of a list.
type PageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" doc:"default 50"`
	Cursor string `query:"cursor" maxLength:"1024" doc:"next_cursor of the page before"`
}

func (a jobRoutes) routeJobs() {
	submit := huma.Operation{
		OperationID: "submit-job", Method: http.MethodPost, Path: "/v1/jobs", Tags: []string{"jobs"},
		Summary:     "Submit a job",
		Description: "The job is on disk when the answer comes.", DefaultStatus: http.StatusAccepted,
	}
	route(a.API, forebay.ScopeSubmit, submit, a.submit)
	a.documentBody(submit, transfer.JSON[0], a.submitSchema())

	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "get-job", Method: http.MethodGet, Path: "/v1/jobs/{id}", Tags: []string{"jobs"}, Summary: "Get a job",
	}, a.get)
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-jobs", Method: http.MethodGet, Path: "/v1/jobs", Tags: []string{"jobs"}, Summary: "List jobs, newest first",
		Description: "Without their results. One call looks at 5,000 jobs at most: a page may hold few or none and have a next_cursor all the same. " +
			"searched_to then says how far it looked. Of jobs that are over without success, or not over, it looks through 20,000 of all tenants at most.",
	}, a.list)
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-attempts", Method: http.MethodGet, Path: "/v1/jobs/{id}/attempts", Tags: []string{"jobs"}, Summary: "List a job's attempts, oldest first",
	}, a.attempts)
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "get-result", Method: http.MethodGet, Path: "/v1/jobs/{id}/result", Tags: []string{"jobs"}, Summary: "Read a job's result, of whatever size",
		Responses: streamed("200", "The result", "application/json", &huma.Schema{}),
	}, a.result)
	routeNoBody(a.API, forebay.ScopeSubmit, huma.Operation{
		OperationID: "cancel-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/cancel", Tags: []string{"jobs"}, Summary: "Cancel a job",
		Description: "Aborts its call in flight. Cancelling a cancelled job changes nothing.",
	}, a.cancel)
	routeNoBody(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "redrive-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/redrive", Tags: []string{"jobs"}, Summary: "Start the next generation of a failed job",
		DefaultStatus: http.StatusAccepted,
	}, a.redrive)
	routeBody(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "purge-jobs", Method: http.MethodPost, Path: "/v1/jobs/purge", Tags: []string{"jobs"}, Summary: "Delete jobs that are over for good",
		Description: "With their results, attempts and events. One call does a part of it: go on with next_cursor until there is none.",
	}, smallBody, func(ctx context.Context, c *call, _ *none, req forebay.PurgeJobsRequest) (*answer[forebay.PurgeJobsReport], error) {
		return answerOf(a.purger.PurgeJobs(ctx, c.caller.Tenant, req, c.actor()))
	})
}

// streamed documents an answer that its handler writes itself.
func streamed(status, description, mediaType string, schema *huma.Schema) map[string]*huma.Response {
	return map[string]*huma.Response{status: {
		Description: description,
		Content:     map[string]*huma.MediaType{mediaType: {Schema: schema}},
	}}
}

// submitSchema is forebay.SubmitRequest without what travels in headers.
func (a jobRoutes) submitSchema() *huma.Schema {
	registry := a.huma.OpenAPI().Components.Schemas
	whole := *registry.Schema(reflect.TypeFor[forebay.SubmitRequest](), false, "SubmitRequest")
	properties := map[string]*huma.Schema{}
	for name, property := range whole.Properties {
		if name != "idempotency_key" && name != "traceparent" {
			properties[name] = property
		}
	}
	whole.Properties = properties
	return &whole
}

func (a jobRoutes) submit(ctx context.Context, c *call, in *submitInput) (*submitOutput, error) {
	data, release, err := a.readBody(c, a.maxBody)
	if err != nil {
		return nil, err
	}
	defer release()
	var req forebay.SubmitRequest
	if stopped := turns.Parse(ctx, len(data), func() { req, err = decode.Submit(data, false) }); stopped != nil {
		return nil, stopped
	}
	if err == nil {
		req.IdempotencyKey, err = transfer.IdempotencyKey(c.r.Header)
	}
	if err != nil {
		return nil, err
	}
	req.Traceparent = in.Traceparent
	job, existing, err := a.jobs.Submit(ctx, c.caller.Tenant, req)
	if err != nil {
		return nil, err
	}
	c.correlationID = job.CorrelationID
	out := &submitOutput{Location: "/v1/jobs/" + job.ID, RetryAfter: retryAfterSubmit, Body: job}
	if existing {
		out.Replayed = "true"
	}
	return out, nil
}

func (a jobRoutes) get(ctx context.Context, c *call, in *getInput) (*answer[forebay.Job], error) {
	var job forebay.Job
	wait, err := forebay.ParseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if wait == 0 {
		job, err = a.jobs.Get(ctx, c.caller.Tenant, in.ID)
	} else {
		waiting, leave, full := a.waiting(ctx, c)
		if full != nil {
			return nil, full
		}
		defer leave()
		job, err = a.jobs.Wait(waiting, c.caller.Tenant, in.ID, wait)
	}
	return jobAnswer(ctx, c, job, err)
}

func jobAnswer(ctx context.Context, c *call, job forebay.Job, err error) (*answer[forebay.Job], error) {
	if err == nil {
		err = c.withhold(ctx, &job)
	}
	if err != nil {
		return nil, err
	}
	c.correlationID = job.CorrelationID
	return &answer[forebay.Job]{job}, nil
}

func (a jobRoutes) list(ctx context.Context, c *call, in *listInput) (*answer[forebay.Page[forebay.Job]], error) {
	filter, err := in.filter()
	if err == nil {
		err = c.mayLook(in.AllTenants)
	}
	if err != nil {
		return nil, err
	}
	return pageAnswer(a.jobs.List(ctx, c.caller.Tenant, filter))
}

func pageAnswer[T any](p forebay.Page[T], err error) (*answer[forebay.Page[T]], error) {
	if err != nil {
		return nil, err
	}
	if p.Items == nil {
		p.Items = []T{}
	}
	return &answer[forebay.Page[T]]{p}, nil
}

// splitList returns the values of a parameter that may be repeated, separated by commas, or both.
func splitList(values []string) []string {
	var all []string
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			if part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

func joined[S ~string](values []S) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}

func (a jobRoutes) attempts(ctx context.Context, c *call, in *JobPath) (*answer[forebay.Page[forebay.Attempt]], error) {
	attempts, err := a.jobs.Attempts(ctx, c.caller.Tenant, in.ID)
	return pageAnswer(page(attempts), err)
}

func (a jobRoutes) result(ctx context.Context, c *call, in *JobPath) (*stream, error) {
	if err := c.needOpen(); err != nil {
		return nil, err
	}
	result, size, err := a.jobs.Result(ctx, c.caller.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	if err := c.opens(ctx, in.ID+"/result"); err != nil {
		result.Close()
		return nil, err
	}
	return &stream{func(huma.Context) {
		defer result.Close()
		a.copyOut(ctx, c, transfer.JSON[0], result, size)
	}}, nil
}

func (a jobRoutes) cancel(ctx context.Context, c *call, in *JobPath) (*answer[forebay.Job], error) {
	job, err := a.jobs.Cancel(ctx, c.caller.Tenant, in.ID)
	return jobAnswer(ctx, c, job, err)
}

func (a jobRoutes) redrive(ctx context.Context, c *call, in *JobPath) (*answer[forebay.Job], error) {
	job, err := a.jobs.Redrive(ctx, c.caller.Tenant, in.ID, c.actor())
	return jobAnswer(ctx, c, job, err)
}
