package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forebayhq/forebay"
)

// deadLetters is the part of Client about jobs that were set aside.
type deadLetters struct{ *endpoint }

// SetAside is the dead-letter or the quarantine subqueue of one queue.
type SetAside struct {
	server *endpoint
	queue  string
	place  string
}

// DeadLetters returns the queue's dead-letter subqueue.
func (c *deadLetters) DeadLetters(queue string) SetAside {
	return SetAside{c.endpoint, queue, "dead-letters"}
}

// Quarantine returns the queue's quarantine subqueue.
func (c *deadLetters) Quarantine(queue string) SetAside {
	return SetAside{c.endpoint, queue, "quarantine"}
}

func (s SetAside) path(segments ...string) string {
	return path(append([]string{"queues", s.queue, s.place}, segments...)...)
}

// List returns the jobs of the subqueue that the filter selects. It reads pages as they are
// needed. limit is the page size; 0 leaves it to the server.
func (s SetAside) List(ctx context.Context, f forebay.SetAsideFilter, limit int) iter.Seq2[forebay.SetAsideJob, error] {
	if err := s.check(f); err != nil {
		return failed[forebay.SetAsideJob](err)
	}
	return pages[forebay.SetAsideJob](ctx, s.server, s.path(), setAsideQuery(f, limit))
}

// AllDeadLetters returns dead-lettered jobs of several queues, newest first. It reads pages as
// needed. limit is the page size; 0 leaves it to the server.
func (c *deadLetters) AllDeadLetters(ctx context.Context, a forebay.SetAsideAcross, limit int) iter.Seq2[forebay.SetAsideJob, error] {
	return pages[forebay.SetAsideJob](ctx, c.endpoint, path("dead-letters"), acrossQuery(a, limit))
}

// AllQuarantined is AllDeadLetters for quarantined jobs.
func (c *deadLetters) AllQuarantined(ctx context.Context, a forebay.SetAsideAcross, limit int) iter.Seq2[forebay.SetAsideJob, error] {
	return pages[forebay.SetAsideJob](ctx, c.endpoint, path("quarantine"), acrossQuery(a, limit))
}

// DeadLetterGroups counts dead-lettered jobs of several queues by reason and task.
func (c *deadLetters) DeadLetterGroups(ctx context.Context, a forebay.SetAsideAcross) (groups forebay.SetAsideGroups, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: path("dead-letters", "groups"), query: acrossQuery(a, 0)}, &groups)
	return groups, err
}

// QuarantineGroups is DeadLetterGroups for quarantined jobs.
func (c *deadLetters) QuarantineGroups(ctx context.Context, a forebay.SetAsideAcross) (groups forebay.SetAsideGroups, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: path("quarantine", "groups"), query: acrossQuery(a, 0)}, &groups)
	return groups, err
}

func acrossQuery(a forebay.SetAsideAcross, limit int) url.Values {
	query := setAsideQuery(a.Filter, limit)
	set(query, "queue", a.Queue)
	if a.AllTenants {
		query.Set("all_tenants", "true")
	}
	return query
}

func setAsideQuery(f forebay.SetAsideFilter, limit int) url.Values {
	query := url.Values{}
	for _, id := range f.JobIDs {
		query.Add("job_ids", id)
	}
	set(query, "task", f.Task)
	set(query, "reason", f.Reason)
	set(query, "error_class", string(f.ErrorClass))
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
	return query
}

// Peek returns one job of the subqueue with its input. The job stays there.
func (s SetAside) Peek(ctx context.Context, jobID string) (forebay.SetAsideJob, error) {
	var job forebay.SetAsideJob
	if err := errors.Join(checkID("queue", s.queue), checkID("job id", jobID)); err != nil {
		return job, err
	}
	err := s.server.call(ctx, request{method: http.MethodGet, path: s.path(jobID)}, &job)
	return job, err
}

// Redrive sends jobs of the subqueue back as their next generation.
func (s SetAside) Redrive(ctx context.Context, req forebay.RedriveRequest) (forebay.RedriveReport, error) {
	var report forebay.RedriveReport
	if err := s.check(req.Filter); err != nil {
		return report, err
	}
	err := s.server.call(ctx, request{method: http.MethodPost, path: s.path("redrive"), body: req, once: !req.DryRun}, &report)
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
	err := s.server.call(ctx, request{method: http.MethodPost, path: s.path("purge"), body: body, once: true}, &report)
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
