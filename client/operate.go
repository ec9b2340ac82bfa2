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

// Queues returns all queues with the numbers of their jobs.
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

// PauseQueue stops new jobs of the queue from starting. Running jobs continue.
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
	// The JSON schemas of the task's input and output, and an example of an input. Only Task
	// returns them. They are nil if the task has no description.
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Example      json.RawMessage `json:"example,omitempty"`
}

// Tasks returns the tasks that jobs may ask for.
func (c *Client) Tasks(ctx context.Context) ([]Task, error) {
	return items[Task](ctx, c, path("tasks"))
}

// Task returns one task with its schemas.
func (c *Client) Task(ctx context.Context, name string) (Task, error) {
	var task Task
	if err := checkID("task", name); err != nil {
		return task, err
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("tasks", name)}, &task)
	return task, err
}

// RetryReport returns how attempts ended between two times. The server chooses a bound that is
// zero.
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

// CreateKey makes an API key. Only this answer contains the key itself. expires may be nil, for a
// key that never expires. SetKeyBudget sets its budget.
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

// RevokeKey revokes a key. Revoking it again changes nothing.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	if err := checkID("key id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("keys", id)}, nil)
}

// SetAside is the dead-letter or the quarantine subqueue of one queue.
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

// List returns the jobs of the subqueue that the filter selects. It reads pages as they are
// needed. limit is the page size; 0 leaves it to the server.
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

// Peek returns one job of the subqueue with its input. The job stays there.
func (s SetAside) Peek(ctx context.Context, jobID string) (forebay.SetAsideJob, error) {
	var job forebay.SetAsideJob
	if err := errors.Join(checkID("queue", s.queue), checkID("job id", jobID)); err != nil {
		return job, err
	}
	err := s.client.call(ctx, request{method: http.MethodGet, path: s.path(jobID)}, &job)
	return job, err
}

// Redrive sends jobs of the subqueue back as their next generation.
func (s SetAside) Redrive(ctx context.Context, req forebay.RedriveRequest) (forebay.RedriveReport, error) {
	var report forebay.RedriveReport
	if err := s.check(req.Filter); err != nil {
		return report, err
	}
	err := s.client.call(ctx, request{method: http.MethodPost, path: s.path("redrive"), body: req, once: !req.DryRun}, &report)
	return report, err
}

// Purge removes the jobs that the filter selects from the subqueue for good. A zero filter selects
// all jobs.
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

// check refuses an empty list of ids. It was meant to select nothing, but on the wire it would
// select everything.
func (s SetAside) check(f forebay.SetAsideFilter) error {
	if f.JobIDs != nil && len(f.JobIDs) == 0 {
		return forebay.Invalid("filter.job_ids", "must not be empty; leave it out to select any job")
	}
	return checkID("queue", s.queue)
}

// items reads a list that has only one page.
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
