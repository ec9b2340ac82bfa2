// Package live tells operators what happens now: processes, calls under way, the backlog, and the
// feed of changes. It finds out whom and what a request means, and asks those who know.
package live

import (
	"context"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/processes"
	"github.com/forebayhq/forebay/internal/queue"
)

// Service answers what happens now. All methods are safe for concurrent use.
type Service struct {
	Queues    *queue.Store
	Jobs      *jobs.Service
	Processes *processes.Service
	Feed      *feed.Hub
	// CallsQueue is the name with which the names of queues begin whose jobs have clients that wait.
	CallsQueue string
}

// List returns the processes that share the database, the oldest first.
func (s *Service) List(ctx context.Context) ([]forebay.Process, error) { return s.Processes.List(ctx) }

// number returns the number of a tenant. Without a tenant it is 0, for all.
func (s *Service) number(ctx context.Context, tenant string, all bool) (int64, error) {
	if all {
		return 0, nil
	}
	return s.Queues.EnsureTenant(ctx, tenant)
}

// Calls returns calls under way, the longest first.
func (s *Service) Calls(ctx context.Context, tenant string, f forebay.CallFilter) (forebay.RunningCalls, error) {
	no, err := s.number(ctx, tenant, f.AllTenants)
	if err != nil {
		return forebay.RunningCalls{}, err
	}
	return s.Processes.Calls(ctx, no, f, s.synchronous)
}

// synchronous reports whether the clients of a queue's jobs wait for them.
func (s *Service) synchronous(name string) bool {
	return name == s.CallsQueue || strings.HasPrefix(name, s.CallsQueue+"-")
}

// Backlog returns what waits in the queues, and when it is expected to be done.
func (s *Service) Backlog(ctx context.Context, tenant string, all bool) (forebay.Backlog, error) {
	list, err := s.Processes.List(ctx)
	if err != nil {
		return forebay.Backlog{}, err
	}
	if all {
		tenant = ""
	}
	return s.Jobs.Backlog(ctx, tenant, func(name string, retry bool) (places, taken int) {
		for _, p := range list {
			if p.State != forebay.ProcessRunning {
				continue
			}
			for _, q := range p.Queues {
				switch {
				case q.Queue != name:
				case retry:
					places, taken = places+q.RetryConcurrency, taken+q.RetryCalls
				default:
					places, taken = places+q.Concurrency, taken+q.Calls
				}
			}
		}
		return places, taken
	})
}

// SQLJobSeq finds the number of a job by its id, of tenant ?2 or of any (0).
const SQLJobSeq = "SELECT seq FROM jobs WHERE id = ?1 AND (tenant = ?2 OR ?2 = 0)"

// Listen begins to listen to the feed, as a tenant's caller who may or may not view deployments.
func (s *Service) Listen(ctx context.Context, tenant string, views bool, f forebay.FeedFilter) (*feed.Listener, error) {
	no, err := s.number(ctx, tenant, f.AllTenants)
	if err != nil {
		return nil, err
	}
	filter := feed.Filter{Tenant: no, Sums: f.Sums, Types: f.Types, Statuses: f.Statuses, Task: f.Task, CorrelationID: f.CorrelationID}
	if filter.Kinds, err = kindsOf(&f, views); err != nil {
		return nil, err
	}
	if err := check(&f); err != nil {
		return nil, err
	}
	if f.Queue != "" {
		if filter.Queue, err = s.queueNumber(ctx, f.Queue); err != nil {
			return nil, err
		}
	}
	if filter.Seqs, err = s.seqsOf(ctx, no, f.Jobs); err != nil {
		return nil, err
	}
	return s.Feed.Listen(tenant, filter)
}

// aboutJobs reports whether the filter selects among jobs.
func aboutJobs(f *forebay.FeedFilter) bool {
	return f.Queue != "" || f.Task != "" || f.CorrelationID != "" || len(f.Types)+len(f.Statuses)+len(f.Jobs) > 0
}

// feedKinds are the kinds that can be asked for.
var feedKinds = []forebay.FeedKind{forebay.FeedJob, forebay.FeedDeployment, forebay.FeedBatch, forebay.FeedResponse, forebay.FeedOrchestration}

// kindsOf returns the kinds that the filter selects.
func kindsOf(f *forebay.FeedFilter, views bool) ([]forebay.FeedKind, error) {
	kinds := f.Kinds
	for _, kind := range kinds {
		switch {
		case !slices.Contains(feedKinds, kind):
			return nil, forebay.Invalid("kinds", "%.40q is not a kind", string(kind))
		case kind == forebay.FeedDeployment && !views:
			return nil, forebay.Errorf(forebay.CodeForbidden, "changes of deployments need a key with the scope %s", forebay.ScopeView)
		}
	}
	if len(kinds) > 0 {
		return kinds, nil
	}
	if aboutJobs(f) {
		return []forebay.FeedKind{forebay.FeedJob}, nil
	}
	return slices.DeleteFunc(slices.Clone(feedKinds), func(k forebay.FeedKind) bool { return k == forebay.FeedDeployment && !views }), nil
}

// maxText bounds a name that a filter compares.
const maxText = 256

// check checks what else the filter says.
func check(f *forebay.FeedFilter) error {
	if len(f.Kinds) > len(feedKinds) || len(f.Types) > len(forebay.JobEventTypes) || len(f.Statuses) > len(forebay.Statuses) {
		return forebay.Invalid("filter", "names a kind, a type or a status more than once")
	}
	for _, kind := range f.Types {
		if !slices.Contains(forebay.JobEventTypes, kind) {
			return forebay.Invalid("types", "%.40q is not a type of a job's event", string(kind))
		}
	}
	for _, status := range f.Statuses {
		if !status.Valid() {
			return forebay.Invalid("status", "%.40q is not a status", string(status))
		}
	}
	switch {
	case len(f.Task) > maxText:
		return forebay.Invalid("task", "has more than %d bytes", maxText)
	case len(f.CorrelationID) > maxText:
		return forebay.Invalid("correlation_id", "has more than %d bytes", maxText)
	case len(f.Jobs) > forebay.MaxFeedJobs:
		return forebay.Invalid("job", "may be given %d times at most", forebay.MaxFeedJobs)
	case f.Sums && (f.Task != "" || f.CorrelationID != "" || len(f.Jobs)+len(f.Statuses)+len(f.Kinds) > 0):
		return forebay.Invalid("sums", "are by queue and type: they take no other filters than queue and types")
	}
	return nil
}

func (s *Service) queueNumber(ctx context.Context, name string) (int64, error) {
	if !forebay.ValidName(name) {
		return 0, forebay.Invalid("queue", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
	}
	rows, err := s.Queues.QueueRows(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(rows, func(r queue.QueueRow) bool { return r.Name == name })
	if i < 0 {
		return 0, &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no queue " + name}
	}
	return rows[i].No, nil
}

// seqsOf returns the numbers of jobs.
func (s *Service) seqsOf(ctx context.Context, tenant int64, ids []string) (seqs []int64, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = s.Queues.Read(ctx, func(c driver.Conn) error {
		seqs = nil
		for _, id := range ids {
			if !forebay.ValidName(id) {
				return forebay.ErrNotFound
			}
			found, err := c.Prep(SQLJobSeq).Text(id).Int(tenant).One(func(r driver.Row) { seqs = append(seqs, r.Int(0)) })
			switch {
			case err != nil:
				return err
			case !found:
				return forebay.ErrNotFound
			}
		}
		return nil
	})
	return seqs, err
}
