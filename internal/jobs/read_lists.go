package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/queue"
)

// lists is the part of Service that reads lists.
type lists struct {
	store  *Store
	queues *queueSet
	views  *jobViews
}

// List returns the tenant's jobs, or those of all tenants, newest first, without their results.
func (s *lists) List(ctx context.Context, tenant string, f forebay.JobFilter) (forebay.Page[forebay.Job], error) {
	page := forebay.Page[forebay.Job]{Items: []forebay.Job{}}
	q, err := s.jobQuery(ctx, tenant, f)
	if err != nil {
		return page, err
	}
	found, err := s.store.Jobs(ctx, q)
	if err != nil {
		return page, err
	}
	if page.Items, err = s.views.list(ctx, found.Jobs, s.namer(ctx, q.Tenant, tenant)); err != nil {
		return page, err
	}
	if found.Next != 0 {
		page.NextCursor, page.SearchedTo = listing.EncodeCursor(found.Next), timeOrNil(found.SearchedTo)
	}
	return page, nil
}

// jobQuery resolves the names in a filter, and checks it.
func (s *lists) jobQuery(ctx context.Context, tenant string, f forebay.JobFilter) (q JobQuery, err error) {
	q = JobQuery{
		ID:       f.ID,
		Statuses: f.Status, Task: f.Task, CorrelationID: f.CorrelationID, SessionID: f.SessionID, Priority: f.Priority,
		Metadata: f.Metadata, WaitingFor: f.WaitingFor,
	}
	if !f.AllTenants {
		if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
			return q, err
		}
	}
	if q.CreatedAfter, q.CreatedBefore, err = listing.Created(f.CreatedAfter, f.CreatedBefore); err != nil {
		return q, err
	}
	for _, status := range f.Status {
		if !status.Valid() {
			return q, forebay.Invalid("status", "%.40q is not a status", string(status))
		}
	}
	if f.WaitingFor != "" {
		if !f.WaitingFor.Valid() {
			return q, forebay.Invalid("waiting_for", "%.40q is not a reason to wait", string(f.WaitingFor))
		}
		holding, err := s.store.Admission.Holding(ctx)
		if err != nil {
			return q, err
		}
		q.Holds = func(row *JobRow) forebay.WaitReason { return backlog.Holds(holding, row.Tenant, s.views.planOf(row)) }
	}
	if f.Queue != "" {
		queue, err := s.queues.seenBy(tenant, f.Queue, f.AllTenants)
		if err != nil {
			return q, err
		}
		q.Queue = queue.no
	}
	if q.Limit, err = listing.PageSize(f.Limit); err != nil {
		return q, err
	}
	q.Below, err = listing.DecodeCursor(f.Cursor)
	return q, err
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// seenBy returns a queue that the tenant may use, or any queue for a list of all tenants.
func (s *queueSet) seenBy(tenant, name string, all bool) (*Queue, error) {
	if q, ok := s.byName[name]; ok && all {
		return q, nil
	}
	return s.named(tenant, name)
}

// namer returns a function that names tenants by their numbers. no is that of the tenant whose
// list it is; 0: of all.
func (s *lists) namer(ctx context.Context, no int64, tenant string) func(int64) (string, error) {
	return func(of int64) (string, error) {
		if of == no {
			return tenant, nil
		}
		return s.store.TenantName(ctx, of)
	}
}

// list views a list of jobs. Ready ones have what would hold them back if they were next.
func (v *jobViews) list(ctx context.Context, rows []JobRow, nameOf func(tenant int64) (string, error)) ([]forebay.Job, error) {
	list := make([]forebay.Job, len(rows))
	var holding admission.Holding
	for i := range rows {
		row := &rows[i]
		if row.Ready && row.Waiting == "" {
			if holding.Deployments == nil {
				var err error
				if holding, err = v.admission.Holding(ctx); err != nil {
					return nil, err
				}
			}
			row.Waiting = backlog.Holds(holding, row.Tenant, v.planOf(row))
		}
		tenant, err := nameOf(row.Tenant)
		if err != nil {
			return nil, err
		}
		list[i] = v.view(tenant, *row)
	}
	return list, nil
}

// QueueNumber returns the number of a queue that the tenant may use, or of any queue.
func (s *lists) QueueNumber(tenant, name string, anyQueue bool) (int64, error) {
	q, err := s.queues.seenBy(tenant, name, anyQueue)
	if err != nil {
		return 0, err
	}
	return q.no, nil
}

// QueueName returns the name of a queue; "": it is not configured any more.
func (s *lists) QueueName(no int64) string {
	if q, ok := s.queues.byNo[no]; ok {
		return q.Name
	}
	return ""
}

// Viewed returns jobs as clients see them. Ready ones have what would hold them back if they were
// next.
func (s *lists) Viewed(ctx context.Context, rows []JobRow, tenantName func(ctx context.Context, no int64) (string, error)) ([]forebay.Job, error) {
	return s.views.list(ctx, rows, func(no int64) (string, error) { return tenantName(ctx, no) })
}

// setAsideQuery resolves the names in a request for set-aside jobs of several queues.
func (s *lists) setAsideQuery(ctx context.Context, tenant string, where forebay.SetAside, a forebay.SetAsideAcross) (q record.SetAsideQuery, err error) {
	q.Filter = a.Filter
	if len(a.Filter.JobIDs) > maxFilterIDs {
		return q, forebay.Invalid("filter.job_ids", "has %d ids; the limit is %d", len(a.Filter.JobIDs), maxFilterIDs)
	}
	if !a.AllTenants {
		if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
			return q, err
		}
	}
	if a.Queue != "" {
		one, err := s.queues.seenBy(tenant, a.Queue, a.AllTenants)
		if err != nil {
			return q, err
		}
		q.Subqueues = []queue.Subqueue{queue.SubqueueOf(one.no, subqueueKind(where))}
		return q, nil
	}
	for _, one := range s.queues.byName {
		if a.AllTenants || len(one.Tenants) == 0 || slices.Contains(one.Tenants, tenant) {
			q.Subqueues = append(q.Subqueues, queue.SubqueueOf(one.no, subqueueKind(where)))
		}
	}
	slices.Sort(q.Subqueues)
	return q, nil
}

// DeadLettersAcross lists the dead-lettered or quarantined jobs of several queues, newest first.
func (s *lists) DeadLettersAcross(ctx context.Context, tenant string, where forebay.SetAside, a forebay.SetAsideAcross, limit int, cursor string) (forebay.Page[forebay.SetAsideJob], error) {
	page := forebay.Page[forebay.SetAsideJob]{Items: []forebay.SetAsideJob{}}
	q, err := s.setAsideQuery(ctx, tenant, where, a)
	if err != nil {
		return page, err
	}
	if q.Limit, err = listing.PageSize(limit); err != nil {
		return page, err
	}
	if q.Below, err = listing.DecodeCursor(cursor); err != nil {
		return page, err
	}
	var found record.SetAsidePage
	err = s.store.Read(ctx, func(c driver.Conn) (err error) {
		found, err = record.SetAside(c, q)
		return err
	})
	if err != nil {
		return page, err
	}
	nameOf := s.namer(ctx, q.Tenant, tenant)
	for _, row := range found.Jobs {
		name, err := nameOf(row.Tenant)
		if err != nil {
			return page, err
		}
		queue := ""
		if its, ok := s.queues.byNo[row.Subqueue.Queue()]; ok {
			queue = its.Name
		}
		page.Items = append(page.Items, row.View(name, queue))
	}
	if found.Next != 0 {
		page.NextCursor, page.SearchedTo = listing.EncodeCursor(found.Next), timeOrNil(found.SearchedTo)
	}
	return page, nil
}

// DeadLetterGroups counts such jobs by reason and task. It looks at the newest 20,000 at most.
func (s *lists) DeadLetterGroups(ctx context.Context, tenant string, where forebay.SetAside, a forebay.SetAsideAcross) (forebay.SetAsideGroups, error) {
	groups := forebay.SetAsideGroups{Groups: []forebay.SetAsideGroup{}}
	q, err := s.setAsideQuery(ctx, tenant, where, a)
	if err != nil {
		return groups, err
	}
	var found record.SetAsideGroups
	err = s.store.Read(ctx, func(c driver.Conn) (err error) {
		found, err = record.CountSetAside(c, q)
		return err
	})
	if err != nil {
		return groups, err
	}
	for _, g := range found.Groups {
		groups.Groups = append(groups.Groups, forebay.SetAsideGroup{Reason: g.Reason, Task: g.Task, Count: g.Count, Newest: g.Newest, Oldest: g.Oldest, ExampleJobID: g.Example})
	}
	groups.Counted, groups.Other, groups.Complete = found.Counted, found.Other, found.Next == 0
	if !groups.Complete {
		groups.SearchedTo = timeOrNil(found.SearchedTo)
	}
	return groups, nil
}
