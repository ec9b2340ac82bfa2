package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// Queues returns all queues with what stands in them.
func (c *Client) Queues(ctx context.Context) ([]forebay.QueueInfo, error) {
	return items[forebay.QueueInfo](ctx, c, path("queues"))
}

// Queue returns one queue.
func (c *Client) Queue(ctx context.Context, name string) (forebay.QueueInfo, error) {
	var queue forebay.QueueInfo
	if err := checkID("queue", name); err != nil {
		return queue, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("queues", name)}, &queue)
	return queue, err
}

// PauseQueue lets no further job of the queue start. Those that run go on.
func (c *Client) PauseQueue(ctx context.Context, name string) error {
	return c.verb(ctx, name, "pause")
}

// ResumeQueue undoes PauseQueue.
func (c *Client) ResumeQueue(ctx context.Context, name string) error {
	return c.verb(ctx, name, "resume")
}

func (c *Client) verb(ctx context.Context, queue, verb string) error {
	if err := checkID("queue", queue); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPost, path: path("queues", queue, verb)}, nil)
}

// Task is a kind of work the server knows.
type Task struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Queue       string `json:"queue"`
	MaxAttempts int    `json:"max_attempts"` // 0: the queue's
	// What a job of the task takes and returns, as JSON schemas, and an example of an input. Only Task tells them; nil:
	// the task is not described.
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Example      json.RawMessage `json:"example,omitempty"`
}

// Tasks returns what jobs may ask for.
func (c *Client) Tasks(ctx context.Context) ([]Task, error) {
	return items[Task](ctx, c, path("tasks"))
}

// Task returns one task, with what it takes and returns.
func (c *Client) Task(ctx context.Context, name string) (Task, error) {
	var task Task
	if err := checkID("task", name); err != nil {
		return task, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("tasks", name)}, &task)
	return task, err
}

// RetryReport answers how attempts ended between two times. A zero time leaves that end to the server.
func (c *Client) RetryReport(ctx context.Context, since, until time.Time) (forebay.RetryReport, error) {
	query := url.Values{}
	setTime(query, "since", since)
	setTime(query, "until", until)
	var report forebay.RetryReport
	err := c.call(ctx, request{method: http.MethodGet, path: path("reports", "retries"), query: query}, &report)
	return report, err
}

// Keys returns all API keys, without the keys themselves.
func (c *Client) Keys(ctx context.Context) ([]forebay.APIKey, error) {
	return items[forebay.APIKey](ctx, c, path("keys"))
}

// CreateKey makes an API key. Its Key is in this answer only. expires may be nil: never. Its budget is set
// by SetKeyBudget.
func (c *Client) CreateKey(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time) (forebay.APIKey, error) {
	body := struct {
		Tenant    string          `json:"tenant"`
		Scopes    []forebay.Scope `json:"scopes"`
		ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	}{tenant, scopes, expires}
	var key forebay.APIKey
	err := c.call(ctx, request{method: http.MethodPost, path: path("keys"), body: body, once: true}, &key)
	return key, err
}

// RevokeKey makes a key useless. Revoking it again changes nothing.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	if err := checkID("key id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("keys", id)}, nil)
}

// SetAside is one queue's dead-letter or quarantine subqueue.
type SetAside struct {
	client *Client
	queue  string
	place  string
}

// DeadLetters returns the queue's dead-letter subqueue.
func (c *Client) DeadLetters(queue string) SetAside { return SetAside{c, queue, "dead-letters"} }

// Quarantine returns the queue's quarantine subqueue.
func (c *Client) Quarantine(queue string) SetAside { return SetAside{c, queue, "quarantine"} }

func (s SetAside) path(segments ...string) string {
	return path(append([]string{"queues", s.queue, s.place}, segments...)...)
}

// List returns the set-aside jobs the filter selects, reading page after page as they are asked for.
// limit is the size of a page; 0 leaves it to the server.
func (s SetAside) List(ctx context.Context, f forebay.SetAsideFilter, limit int) iter.Seq2[forebay.SetAsideJob, error] {
	if err := s.check(f); err != nil {
		return failed[forebay.SetAsideJob](err)
	}
	query := url.Values{}
	for _, id := range f.JobIDs {
		query.Add("job_ids", id)
	}
	set(query, "task", f.Task)
	set(query, "reason", f.Reason)
	set(query, "correlation_id", f.CorrelationID)
	if f.Before != nil {
		setTime(query, "before", *f.Before)
	}
	if f.After != nil {
		setTime(query, "after", *f.After)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return pages[forebay.SetAsideJob](ctx, s.client, s.path(), query)
}

// Peek returns one set-aside job with its input, and leaves it where it is.
func (s SetAside) Peek(ctx context.Context, jobID string) (forebay.SetAsideJob, error) {
	var job forebay.SetAsideJob
	if err := errors.Join(checkID("queue", s.queue), checkID("job id", jobID)); err != nil {
		return job, err
	}
	err := s.client.call(ctx, request{method: http.MethodGet, path: s.path(jobID)}, &job)
	return job, err
}

// Redrive sends set-aside jobs back as their next generation.
func (s SetAside) Redrive(ctx context.Context, req forebay.RedriveRequest) (forebay.RedriveReport, error) {
	var report forebay.RedriveReport
	if err := s.check(req.Filter); err != nil {
		return report, err
	}
	err := s.client.call(ctx, request{method: http.MethodPost, path: s.path("redrive"), body: req, once: !req.DryRun}, &report)
	return report, err
}

// Purge removes for good the set-aside jobs the filter selects; a zero filter selects all of them.
func (s SetAside) Purge(ctx context.Context, f forebay.SetAsideFilter) (forebay.PurgeReport, error) {
	var report forebay.PurgeReport
	if err := s.check(f); err != nil {
		return report, err
	}
	var body struct {
		Filter *forebay.SetAsideFilter `json:"filter,omitempty"`
		All    bool                    `json:"all,omitempty"`
	}
	if f.Empty() {
		body.All = true
	} else {
		body.Filter = &f
	}
	err := s.client.call(ctx, request{method: http.MethodPost, path: s.path("purge"), body: body, once: true}, &report)
	return report, err
}

// check refuses a list of ids that is there but empty: it was meant to select nothing, and on the wire
// would select everything.
func (s SetAside) check(f forebay.SetAsideFilter) error {
	if f.JobIDs != nil && len(f.JobIDs) == 0 {
		return forebay.Invalid("filter.job_ids", "must not be empty; leave it out to select any job")
	}
	return checkID("queue", s.queue)
}

// items reads a list that is never cut into pages.
func items[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	var page forebay.Page[T]
	err := c.call(ctx, request{method: http.MethodGet, path: path}, &page)
	return page.Items, err
}

func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, err)
	}
}

func setTime(query url.Values, name string, t time.Time) {
	if !t.IsZero() {
		query.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}
