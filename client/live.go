package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// live is the part of Client about what happens now.
type live struct{ *endpoint }

// Processes returns the processes that share the database, the oldest first.
func (c *live) Processes(ctx context.Context) ([]forebay.Process, error) {
	return items[forebay.Process](ctx, c.endpoint, path("processes"))
}

// Calls returns calls that are under way, the longest first.
func (c *live) Calls(ctx context.Context, f forebay.CallFilter) (forebay.RunningCalls, error) {
	query := url.Values{}
	setTrue(query, "all_tenants", f.AllTenants)
	set(query, "deployment", f.Deployment)
	set(query, "task", f.Task)
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	var calls forebay.RunningCalls
	err := c.call(ctx, request{method: http.MethodGet, path: path("calls"), query: query}, &calls)
	return calls, err
}

// Backlog returns what waits, what it waits for, and when it is expected to be done.
func (c *live) Backlog(ctx context.Context, allTenants bool) (forebay.Backlog, error) {
	query := url.Values{}
	setTrue(query, "all_tenants", allTenants)
	var backlog forebay.Backlog
	err := c.call(ctx, request{method: http.MethodGet, path: path("backlog"), query: query}, &backlog)
	return backlog, err
}

// JobSessions returns the sessions of jobs that have jobs to run, by queue and id. It reads pages
// as they are needed. The filter's Limit is the page size.
func (c *live) JobSessions(ctx context.Context, f forebay.JobSessionFilter) iter.Seq2[forebay.JobSession, error] {
	query := url.Values{}
	setTrue(query, "all_tenants", f.AllTenants)
	set(query, "queue", f.Queue)
	set(query, "session_id", f.SessionID)
	set(query, "cursor", f.Cursor)
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	return pages[forebay.JobSession](ctx, c.endpoint, path("job-sessions"), query)
}

// Follow yields what happens from now on, until ctx ends or an error. It resumes a broken stream.
// What happened meanwhile is missing then, so it yields a FeedLost item without a count. Whoever
// gets one reads the lists again.
func (c *live) Follow(ctx context.Context, f forebay.FeedFilter) iter.Seq2[forebay.FeedItem, error] {
	return func(yield func(forebay.FeedItem, error) bool) {
		retry := c.newRetry()
		var reconnect time.Duration
		for resumed := false; ; resumed = true {
			came := false
			end, err := c.feed(ctx, f, &reconnect, func(item forebay.FeedItem) bool {
				came = true
				return yield(item, nil)
			}, resumed)
			if end {
				return
			}
			if came {
				retry = c.newRetry()
			}
			if err == nil {
				err = &transportError{err: forebay.Errorf(forebay.CodeUnavailable, "the server ended the event stream")}
			}
			if e, ok := errors.AsType[*transportError](err); ok {
				e.err.RetryAfter = max(e.err.RetryAfter, reconnect)
			}
			if !retry.wait(ctx, err) {
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				yield(forebay.FeedItem{}, err)
				return
			}
		}
	}
}

// feed reads one connection. end reports that the caller has stopped.
func (c *live) feed(ctx context.Context, f forebay.FeedFilter, reconnect *time.Duration, yield func(forebay.FeedItem) bool, resumed bool) (end bool, err error) {
	resp, err := c.try(ctx, request{method: http.MethodGet, path: path("events"), query: feedQuery(&f), header: http.Header{"Accept": {"text/event-stream"}}}, nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resumed && !yield(forebay.FeedItem{Kind: forebay.FeedLost, Lost: &forebay.FeedLoss{}}) {
		return true, nil
	}
	end, err = readEvents(resp.Body, func(kind string, data []byte) (bool, error) {
		item, known, err := feedItem(forebay.FeedKind(kind), data)
		return err == nil && known && !yield(item), err
	}, reconnect)
	if errors.Is(err, errBrokenStream) {
		err = c.unreachable(ctx, errors.Unwrap(err))
	}
	return end, err
}

// feedItem decodes an item. A kind that this version does not know is left out.
func feedItem(kind forebay.FeedKind, data []byte) (item forebay.FeedItem, known bool, err error) {
	item.Kind = kind
	var to any
	switch kind {
	case forebay.FeedJob:
		item.Job = &forebay.FeedJobEvent{}
		to = item.Job
	case forebay.FeedDeployment, forebay.FeedBatch, forebay.FeedResponse, forebay.FeedOrchestration:
		item.Object = &forebay.FeedObject{}
		to = item.Object
	case forebay.FeedSums:
		item.Sums = &forebay.FeedCounts{}
		to = item.Sums
	case forebay.FeedLost:
		item.Lost = &forebay.FeedLoss{}
		to = item.Lost
	default:
		return item, false, nil
	}
	if json.Unmarshal(data, to) != nil {
		return item, false, errNotForebay
	}
	return item, true, nil
}

func feedQuery(f *forebay.FeedFilter) url.Values {
	query := url.Values{}
	setTrue(query, "all_tenants", f.AllTenants)
	setTrue(query, "sums", f.Sums)
	set(query, "queue", f.Queue)
	set(query, "task", f.Task)
	set(query, "correlation_id", f.CorrelationID)
	set(query, "job", strings.Join(f.Jobs, ","))
	set(query, "kinds", joined(f.Kinds))
	set(query, "types", joined(f.Types))
	set(query, "status", joined(f.Statuses))
	return query
}

// joined writes values with commas between them.
func joined[S ~string](values []S) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return strings.Join(texts, ",")
}

func setTrue(query url.Values, name string, is bool) {
	if is {
		query.Set(name, "true")
	}
}
