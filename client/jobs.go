package client

import (
	"context"
	"crypto/rand"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/sleep"
)

// jobs is the part of Client about the life of jobs.
type jobs struct{ *endpoint }

// longPoll is the duration of one request of Wait.
const longPoll = 30 * time.Second

// Submit stores a job and returns it with its current status. A request without an idempotency key
// gets a random one, so repeating it after a broken connection makes no second job. existing
// reports that a job with this key was already there.
func (c *jobs) Submit(ctx context.Context, req forebay.SubmitRequest) (job forebay.Job, existing bool, err error) {
	header := http.Header{}
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = rand.Text()
	}
	header.Set("Idempotency-Key", req.IdempotencyKey)
	if req.Traceparent != "" {
		header.Set("Traceparent", req.Traceparent)
	}
	req.IdempotencyKey, req.Traceparent = "", ""
	resp, err := c.send(ctx, request{method: http.MethodPost, path: path("jobs"), header: header, body: req})
	if err != nil {
		return job, false, err
	}
	err = c.decode(ctx, resp, &job)
	return job, resp.Header.Get("Idempotency-Replayed") == "true", err
}

// Get returns a job.
func (c *jobs) Get(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodGet, id, "", nil)
}

// Poll returns a job when its status is terminal, or after wait, which is a minute at most. A
// server that is stopping answers early.
func (c *jobs) Poll(ctx context.Context, id string, wait time.Duration) (forebay.Job, error) {
	return c.job(ctx, http.MethodGet, id, "", url.Values{"wait": {wait.String()}})
}

// Wait returns the job when its status is terminal. If ctx ends first, it returns the last known
// job and the context's error.
func (c *jobs) Wait(ctx context.Context, id string) (forebay.Job, error) {
	return waitUntil(ctx, func() (forebay.Job, bool, error) {
		job, err := c.Poll(ctx, id, longPoll)
		return job, job.Status.Terminal(), err
	})
}

// waitUntil polls until the thing is over and returns its last known state.
func waitUntil[T any](ctx context.Context, poll func() (v T, over bool, err error)) (last T, err error) {
	for {
		start := time.Now()
		v, over, err := poll()
		if err != nil {
			return last, err
		}
		if last = v; over {
			return last, nil
		}
		// A server that is stopping ends long polls early. Do not ask it in a tight loop.
		if time.Since(start) < time.Second && sleep.For(ctx, time.Second) != nil {
			return last, ctx.Err()
		}
	}
}

// Cancel stops a job and aborts its running call. A job that has ended otherwise is CodeConflict.
func (c *jobs) Cancel(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodPost, id, "cancel", nil)
}

// Redrive starts the next generation of a failed job. A job that has not failed is CodeConflict.
func (c *jobs) Redrive(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodPost, id, "redrive", nil)
}

func (c *jobs) job(ctx context.Context, method, id, verb string, query url.Values) (forebay.Job, error) {
	var job forebay.Job
	if err := checkID("job id", id); err != nil {
		return job, err
	}
	r := request{method: method, path: path("jobs", id), query: query, once: verb == "redrive"}
	if verb != "" {
		r.path += "/" + verb
	}
	err := c.call(ctx, r, &job)
	return job, err
}

// Attempts returns the calls made for a job in all its generations, oldest first.
func (c *jobs) Attempts(ctx context.Context, id string) ([]forebay.Attempt, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	var page forebay.Page[forebay.Attempt]
	err := c.call(ctx, request{method: http.MethodGet, path: path("jobs", id, "attempts")}, &page)
	return page.Items, err
}

// Result returns the result of a succeeded job as JSON, whatever its size. The caller must close
// it. A job without a result is CodeConflict or CodeNotFound.
func (c *jobs) Result(ctx context.Context, id string) (io.ReadCloser, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path("jobs", id, "result")})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Input returns the input of a job as JSON, whatever its size. The caller must close it. With a
// limit it is the beginning of the input as text, about so many bytes; 0: all of it. It needs the
// scope payload.
func (c *jobs) Input(ctx context.Context, id string, limit int64) (io.ReadCloser, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.FormatInt(limit, 10))
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path("jobs", id, "input"), query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// List returns the jobs that the filter selects, newest first. It reads pages as they are needed.
// f.Limit is the page size. The sequence ends after an error.
func (c *jobs) List(ctx context.Context, f forebay.JobFilter) iter.Seq2[forebay.Job, error] {
	return pages[forebay.Job](ctx, c.endpoint, path("jobs"), jobQuery(f))
}

// ListPage returns one page of List. With a filter it may hold few jobs, or none, and have a
// NextCursor all the same. SearchedTo then says how far the server looked.
func (c *jobs) ListPage(ctx context.Context, f forebay.JobFilter) (page forebay.Page[forebay.Job], err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: path("jobs"), query: jobQuery(f)}, &page)
	return page, err
}

func jobQuery(f forebay.JobFilter) url.Values {
	query := url.Values{}
	for _, s := range f.Status {
		query.Add("status", string(s))
	}
	set(query, "queue", f.Queue)
	set(query, "task", f.Task)
	set(query, "correlation_id", f.CorrelationID)
	set(query, "session_id", f.SessionID)
	set(query, "waiting_for", string(f.WaitingFor))
	if f.Priority != nil {
		query.Set("priority", strconv.Itoa(*f.Priority))
	}
	for key, value := range f.Metadata {
		query.Add("metadata", key+":"+value)
	}
	if f.AllTenants {
		query.Set("all_tenants", "true")
	}
	setPage(query, f.CreatedAfter, f.CreatedBefore, f.Limit, f.Cursor)
	return query
}

// Purge deletes jobs that are over for good, from req.Cursor to the end, and counts them. After an
// error, the report holds what was deleted and where to continue.
func (c *jobs) Purge(ctx context.Context, req forebay.PurgeJobsRequest) (forebay.PurgeJobsReport, error) {
	total := forebay.PurgeJobsReport{DryRun: req.DryRun, NextCursor: req.Cursor}
	for {
		var part forebay.PurgeJobsReport
		req.Cursor = total.NextCursor
		if err := c.call(ctx, request{method: http.MethodPost, path: path("jobs", "purge"), body: req}, &part); err != nil {
			return total, err
		}
		total.Purged += part.Purged
		if total.NextCursor = part.NextCursor; total.NextCursor == "" {
			return total, nil
		}
	}
}
