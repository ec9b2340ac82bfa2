package jobs

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
)

// queueService shows queues and pauses them.
type queueService struct {
	store   *Store
	queues  *queueSet
	backlog *backlog.Reader
}

// Queues returns all queues the tenant may use, by name.
func (s *queueService) Queues(ctx context.Context, tenant string) ([]forebay.QueueInfo, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.queueInfos(ctx, func(q *Queue) bool { return q.openTo(tenant) }, s.depthOf(no))
}

// AllQueues returns all queues by name, with the counts of all tenants together.
func (s *queueService) AllQueues(ctx context.Context) ([]forebay.QueueInfo, error) {
	return s.queueInfos(ctx, func(*Queue) bool { return true }, s.backlog.QueueDepth)
}

func (s *queueService) queueInfos(ctx context.Context, shown func(*Queue) bool, count depthCounter) ([]forebay.QueueInfo, error) {
	list := []forebay.QueueInfo{}
	for name, q := range s.queues.byName {
		if !shown(q) {
			continue
		}
		info, err := s.queueInfo(ctx, name, q, count, entity.CountLimitOf(len(s.queues.byName)))
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b forebay.QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Knows reports whether there is a queue for jobs of that name that the tenant may use.
func (s *queueService) Knows(tenant, name string) bool {
	_, err := s.queues.named(tenant, name)
	return err == nil
}

// Queue returns one queue, counted over the tenant's messages.
func (s *queueService) Queue(ctx context.Context, tenant, name string) (forebay.QueueInfo, error) {
	q, err := s.queues.named(tenant, name)
	if err != nil {
		return forebay.QueueInfo{}, err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return forebay.QueueInfo{}, err
	}
	return s.queueInfo(ctx, name, q, s.depthOf(no), entity.CountLimit)
}

// AnyQueue returns one queue, whoever may use it, counted over the messages of all tenants.
func (s *queueService) AnyQueue(ctx context.Context, name string) (forebay.QueueInfo, error) {
	q, ok := s.queues.byName[name]
	if !ok {
		return forebay.QueueInfo{}, &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no such queue of jobs"}
	}
	return s.queueInfo(ctx, name, q, s.backlog.QueueDepth, maxTogether)
}

// maxTogether is the highest count of one queue over all tenants.
const maxTogether = 50_000

// depthCounter counts the messages of a queue up to a limit.
type depthCounter func(ctx context.Context, queueID, limit int64) (backlog.Depth, error)

func (s *queueService) depthOf(tenant int64) depthCounter {
	return func(ctx context.Context, queueID, limit int64) (backlog.Depth, error) {
		return s.backlog.TenantDepth(ctx, queueID, tenant, limit)
	}
}

func (s *queueService) queueInfo(ctx context.Context, name string, q *Queue, count depthCounter, limit int64) (forebay.QueueInfo, error) {
	counts, err := count(ctx, q.no, limit)
	if err != nil {
		return forebay.QueueInfo{}, err
	}
	rows, err := s.store.QueueRows(ctx)
	if err != nil {
		return forebay.QueueInfo{}, err
	}
	info := forebay.QueueInfo{
		Name: name, Active: counts.Ready, Scheduled: counts.Scheduled, Locked: counts.Locked, Retrying: counts.Retrying,
		DeadLetter: counts.DeadLetter, Quarantine: counts.Quarantine, CountsCapped: counts.Capped, Concurrency: q.Concurrency, RetryConcurrency: q.Retry.Concurrency,
		LockSeconds: q.LockDuration.Seconds(), MaxDeliveryCount: q.MaxDeliveryCount,
		Paused: slices.ContainsFunc(rows, func(r queue.QueueRow) bool { return r.No == q.no && r.Paused }),
	}
	if counts.Ready > 0 {
		age := counts.OldestAge.Seconds()
		info.OldestAgeSeconds = &age
	}
	return info, nil
}

// PauseQueue stops claims from a queue, also after a restart. Calls in flight finish.
func (s *queueService) PauseQueue(ctx context.Context, name, actor string) error {
	return s.setPaused(ctx, name, actor, true)
}

// ResumeQueue starts claims again.
func (s *queueService) ResumeQueue(ctx context.Context, name, actor string) error {
	return s.setPaused(ctx, name, actor, false)
}

func (s *queueService) setPaused(ctx context.Context, name, actor string, paused bool) error {
	q, ok := s.queues.byName[name]
	if !ok {
		return &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no such queue"}
	}
	action := "resume"
	if paused {
		action = "pause"
	}
	return s.store.SetPaused(ctx, q.no, paused, audit.Act{Actor: actor, Action: action, Target: name})
}

// queueSet are the queues of this process. It never changes once the service is in use.
type queueSet struct {
	byName map[string]*Queue
	byNo   map[int64]*Queue
}

// named returns a queue that the tenant may use.
func (s *queueSet) named(tenant, name string) (*Queue, error) {
	q, ok := s.byName[name]
	if !ok || !q.openTo(tenant) {
		if !forebay.ValidName(name) {
			return nil, forebay.Invalid("queue", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
		}
		return nil, &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no queue " + name}
	}
	return q, nil
}

// openTo reports whether the tenant may use the queue.
func (q *Queue) openTo(tenant string) bool {
	return len(q.Tenants) == 0 || slices.Contains(q.Tenants, tenant)
}

// forTask is named for a job of a task; "": the task's own queue.
func (s *queueSet) forTask(tenant string, task *forebay.Task, name string) (*Queue, error) {
	q, err := s.named(tenant, cmp.Or(name, task.Queue, forebay.DefaultQueue))
	if err == nil && q.Own && task.Queue != q.OwnOf { // others are promised that their jobs are on disk
		return nil, forebay.Invalid("queue", "is only for calls whose clients wait")
	}
	return q, err
}
