package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
)

type setAsideQuery struct {
	QueuePath
	SetAsideInput
	PageInput
}

// AcrossQuery selects jobs that were set aside in any queue.
type AcrossQuery struct {
	Queue      string `query:"queue" doc:"default: every queue"`
	AllTenants bool   `query:"all_tenants" doc:"jobs of every tenant; needs the scope view"`
	SetAsideInput
}

type acrossPage struct {
	AcrossQuery
	PageInput
}

// SetAsideInput selects jobs that were set aside.
type SetAsideInput struct {
	JobIDs        []string  `query:"job_ids,explode" doc:"repeated or separated by commas"`
	Task          string    `query:"task"`
	Reason        string    `query:"reason"`
	ErrorClass    string    `query:"error_class" doc:"of the error that it failed with"`
	CorrelationID string    `query:"correlation_id"`
	Before        time.Time `query:"before" doc:"set aside before this time"`
	After         time.Time `query:"after" doc:"set aside at or after this time"`
}

func (q *SetAsideInput) filter() forebay.SetAsideFilter {
	return forebay.SetAsideFilter{JobIDs: splitList(q.JobIDs), Task: q.Task, Reason: q.Reason, ErrorClass: forebay.ErrorClass(q.ErrorClass),
		CorrelationID: q.CorrelationID, Before: given(q.Before), After: given(q.After)}
}

func (q *AcrossQuery) across(c *call) (forebay.SetAsideAcross, error) {
	return forebay.SetAsideAcross{Queue: q.Queue, AllTenants: q.AllTenants, Filter: q.filter()}, c.mayLook(q.AllTenants)
}

type setAsidePath struct {
	QueuePath
	JobID string `path:"job_id" doc:"job id"`
}

// purgeRequest says what to purge. Purging everything must be requested explicitly, so that a
// wrong filter cannot do it.
type purgeRequest struct {
	Filter *forebay.SetAsideFilter `json:"filter,omitempty" doc:"must select something"`
	All    bool                    `json:"all,omitempty" doc:"everything in the subqueue; instead of a filter"`
}

// routeSetAside registers the same routes for both subqueues of failed jobs.
func (a jobRoutes) routeSetAside() {
	a.routeSubqueue("dead-letters", "dead-letter", forebay.DeadLetters)
	a.routeSubqueue("quarantine", "quarantine", forebay.Quarantine)
	a.routeAcross("dead-letters", "dead-letter", forebay.DeadLetters)
	a.routeAcross("quarantine", "quarantine", forebay.Quarantine)
}

// routeAcross registers what is about the subqueues of all queues.
func (a jobRoutes) routeAcross(segment, name string, where forebay.SetAside) {
	base, tags := "/v1/"+segment, []string{segment}
	route(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "list-all-" + segment, Method: http.MethodGet, Path: base, Tags: tags,
		Summary: "List the jobs in the " + name + " subqueues of all queues, newest first",
		Description: "One call looks at 20,000 jobs at most: a page may hold few or none and have a next_cursor all the same. " +
			"searched_to then says how far it looked.",
	}, func(ctx context.Context, c *call, in *acrossPage) (*answer[forebay.Page[forebay.SetAsideJob]], error) {
		across, err := in.across(c)
		if err != nil {
			return nil, err
		}
		return pageAnswer(a.jobs.DeadLettersAcross(ctx, c.caller.Tenant, where, across, in.Limit, in.Cursor))
	})
	route(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "count-" + segment, Method: http.MethodGet, Path: base + "/groups", Tags: tags,
		Summary:     "Count the jobs in the " + name + " subqueues of all queues by reason and task",
		Description: "The newest 20,000 are looked at. complete says whether these were all.",
	}, func(ctx context.Context, c *call, in *AcrossQuery) (*answer[forebay.SetAsideGroups], error) {
		across, err := in.across(c)
		if err != nil {
			return nil, err
		}
		return answerOf(a.jobs.DeadLetterGroups(ctx, c.caller.Tenant, where, across))
	})
}

// setAsideInput returns the input of a job that was set aside, if the caller may open it. At home
// operators may.
func (c *call) setAsideInput(ctx context.Context, job forebay.SetAsideJob) (input json.RawMessage, withheld bool, err error) {
	if !c.caller.May(forebay.ScopePayload) && (c.away() || !c.caller.May(forebay.ScopeOperate)) {
		return nil, true, nil
	}
	return job.Input, false, c.recordOpening(ctx, job.JobID+"/input")
}

func (a jobRoutes) routeSubqueue(segment, name string, where forebay.SetAside) {
	base, tags := "/v1/queues/{queue}/"+segment, []string{segment}
	route(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "list-" + segment, Method: http.MethodGet, Path: base, Tags: tags,
		Summary: "List the jobs in the " + name + " subqueue, newest first",
	}, func(ctx context.Context, c *call, in *setAsideQuery) (*answer[forebay.Page[forebay.SetAsideJob]], error) {
		return pageAnswer(a.jobs.DeadLetters(ctx, c.caller.Tenant, in.Queue, where, in.filter(), in.Limit, in.Cursor))
	})
	route(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "peek-" + segment, Method: http.MethodGet, Path: base + "/{job_id}", Tags: tags,
		Summary: "Look at one job in the " + name + " subqueue, with its input",
	}, func(ctx context.Context, c *call, in *setAsidePath) (*answer[forebay.SetAsideJob], error) {
		job, err := a.jobs.PeekDeadLetter(ctx, c.caller.Tenant, in.Queue, where, in.JobID)
		if err != nil {
			return nil, err
		}
		if job.Input, job.InputWithheld, err = c.setAsideInput(ctx, job); err != nil {
			return nil, err
		}
		c.correlationID = job.CorrelationID
		return &answer[forebay.SetAsideJob]{job}, nil
	})
	routeBody(a.API, forebay.ScopeOperate, conditions.Take(huma.Operation{
		OperationID: "redrive-" + segment, Method: http.MethodPost, Path: base + "/redrive", Tags: tags,
		Summary: "Send jobs of the " + name + " subqueue back as their next generation",
		Description: "Without a filter: all of them. Each job goes back at most once, however many redrives run. " +
			"If-Match takes the `etag` of the one job that the filter names.",
	}, false), a.maxBody, func(ctx context.Context, c *call, in *QueuePath, req forebay.RedriveRequest) (*answer[forebay.RedriveReport], error) {
		if err := checkFilter(req.Filter); err != nil {
			return nil, err
		}
		return answerOf(a.jobs.RedriveDeadLetters(ctx, c.caller.Tenant, in.Queue, where, req, c.actor()))
	})
	routeBody(a.API, forebay.ScopeOperate, huma.Operation{
		OperationID: "purge-" + segment, Method: http.MethodPost, Path: base + "/purge", Tags: tags,
		Summary:     "Remove jobs from the " + name + " subqueue for good",
		Description: "Takes a filter that selects something, or all: true. The job records stay, failed.",
	}, smallBody, func(ctx context.Context, c *call, in *QueuePath, req purgeRequest) (*answer[forebay.PurgeReport], error) {
		filter, err := req.check()
		if err != nil {
			return nil, err
		}
		return answerOf(a.jobs.PurgeDeadLetters(ctx, c.caller.Tenant, in.Queue, where, filter, c.actor()))
	})
}

func (req purgeRequest) check() (forebay.SetAsideFilter, error) {
	if req.Filter == nil {
		if !req.All {
			return forebay.SetAsideFilter{}, forebay.Invalid("body", "must hold a filter, or all: true to purge everything")
		}
		return forebay.SetAsideFilter{}, nil
	}
	f := *req.Filter
	if req.All {
		return f, forebay.Invalid("body", "must hold a filter or all: true, not both")
	}
	if err := checkFilter(f); err != nil {
		return f, err
	}
	if f.Empty() {
		return f, forebay.Invalid("filter", "selects nothing in particular; to purge everything say all: true instead")
	}
	return f, nil
}

// checkFilter refuses an empty list of ids. It was meant to select nothing but would select
// everything.
func checkFilter(f forebay.SetAsideFilter) error {
	if f.JobIDs != nil && len(f.JobIDs) == 0 {
		return forebay.Invalid("filter.job_ids", "must not be empty; leave it out to select any job")
	}
	return nil
}
