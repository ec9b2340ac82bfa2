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

// longPoll is how long one request of Wait waits.
const longPoll = 30 * time.Second

// Submit has the server store a job and returns it, in whatever status it is by then. Without an
// idempotency key of the request's own it gets a random one, so that repeating it after a broken
// connection makes no second job. existing tells that the key had already made this job.
func (c *Client) Submit(ctx context.Context, req forebay.SubmitRequest) (job forebay.Job, existing bool, err error) {
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
func (c *Client) Get(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodGet, id, "", nil)
}

// Poll returns a job once its status is terminal, at the latest after wait: up to a minute. A server
// that stops answers early.
func (c *Client) Poll(ctx context.Context, id string, wait time.Duration) (forebay.Job, error) {
	return c.job(ctx, http.MethodGet, id, "", url.Values{"wait": {wait.String()}})
}

// Wait returns the job once its status is terminal. It waits for as long as ctx lives; when that ends
// it returns the job as last seen and the context's error.
func (c *Client) Wait(ctx context.Context, id string) (forebay.Job, error) {
	return waitUntil(ctx, func() (forebay.Job, bool, error) {
		job, err := c.Poll(ctx, id, longPoll)
		return job, job.Status.Terminal(), err
	})
}

// waitUntil polls until what it gets is over, and returns it as last seen.
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
		// A server that stops ends long polls early; it must not be asked in a tight loop.
		if time.Since(start) < time.Second && sleep.For(ctx, time.Second) != nil {
			return last, ctx.Err()
		}
	}
}

// Cancel stops a job and aborts its call in flight. A job that ended otherwise is CodeConflict.
func (c *Client) Cancel(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodPost, id, "cancel", nil)
}

// Redrive starts the next generation of a failed job. A job that has not failed is CodeConflict.
func (c *Client) Redrive(ctx context.Context, id string) (forebay.Job, error) {
	return c.job(ctx, http.MethodPost, id, "redrive", nil)
}

func (c *Client) job(ctx context.Context, method, id, verb string, query url.Values) (forebay.Job, error) {
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

// Attempts returns the calls made for a job, oldest first, over all its generations.
func (c *Client) Attempts(ctx context.Context, id string) ([]forebay.Attempt, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	var page forebay.Page[forebay.Attempt]
	err := c.call(ctx, request{method: http.MethodGet, path: path("jobs", id, "attempts")}, &page)
	return page.Items, err
}

// Result returns a succeeded job's result, of whatever size, as JSON. The caller closes it. A job
// without a result is CodeConflict or CodeNotFound.
func (c *Client) Result(ctx context.Context, id string) (io.ReadCloser, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path("jobs", id, "result")})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// List returns the jobs the filter selects, newest first, reading page after page as they are asked
// for. f.Limit is the size of a page. The sequence ends after an error.
func (c *Client) List(ctx context.Context, f forebay.JobFilter) iter.Seq2[forebay.Job, error] {
	query := url.Values{}
	for _, s := range f.Status {
		query.Add("status", string(s))
	}
	set(query, "queue", f.Queue)
	set(query, "task", f.Task)
	set(query, "correlation_id", f.CorrelationID)
	setPage(query, f.CreatedAfter, f.CreatedBefore, f.Limit, f.Cursor)
	return pages[forebay.Job](ctx, c, path("jobs"), query)
}

// setPage says which page of what was created when.
func setPage(query url.Values, after, before *time.Time, limit int, cursor string) {
	for name, at := range map[string]*time.Time{"created_after": after, "created_before": before} {
		if at != nil {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	set(query, "cursor", cursor)
}

// pages yields the items of all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			var page forebay.Page[T]
			if err := c.call(ctx, request{method: http.MethodGet, path: path, query: query}, &page); err != nil {
				yield(zero, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == query.Get("cursor") {
				yield(zero, errNotForebay)
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	}
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// Purge deletes jobs that are over for good, from req.Cursor to the end, and counts them. What was
// deleted before an error is in the report, which then says where to go on.
func (c *Client) Purge(ctx context.Context, req forebay.PurgeJobsRequest) (forebay.PurgeJobsReport, error) {
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
