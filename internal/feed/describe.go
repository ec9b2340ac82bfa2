package feed

import (
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// What is read of the jobs of events.
const (
	DescribedColumns = "SELECT x.no, j.id, t.name, q.name, j.task, coalesce(j.correlation_id, j.id)"
	OfDescribedJobs  = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue JOIN tenants t ON t.no = j.tenant"
)

const (
	sqlTenantName = "SELECT name FROM tenants WHERE no = ?"
	sqlQueueNames = "SELECT no, name FROM queues WHERE kind = 'jobs' ORDER BY no"
)

// describe adds to items what they do not say themselves. One without a kind is of a job that is
// gone.
func (h *Hub) describe(ctx context.Context, items []any) (described []forebay.FeedItem, err error) {
	var seqs []int64
	for _, item := range items {
		if job, ok := item.(*Job); ok {
			seqs = append(seqs, job.Seq)
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	err = h.db.Read(ctx, func(c driver.Conn) error {
		jobs := make(map[int64]forebay.FeedJobEvent, len(seqs))
		if len(seqs) > 0 {
			err := driver.EachOf(c, DescribedColumns, OfDescribedJobs, seqs, func(r driver.Row) error {
				jobs[r.Int(0)] = forebay.FeedJobEvent{JobID: r.Text(1), Tenant: r.Text(2), Queue: r.Text(3), Task: r.Text(4), CorrelationID: r.Text(5)}
				return nil
			})
			if err != nil {
				return err
			}
		}
		described = make([]forebay.FeedItem, len(items))
		tenants := map[int64]string{}
		for i, item := range items {
			switch item := item.(type) {
			case *Job:
				if job, found := jobs[item.Seq]; found {
					described[i] = item.of(job)
				}
			case *Object:
				if _, known := tenants[item.Tenant]; !known && item.Tenant != 0 {
					if _, err := c.Prep(sqlTenantName).Int(item.Tenant).One(func(r driver.Row) { tenants[item.Tenant] = r.Text(0) }); err != nil {
						return err
					}
				}
				described[i] = item.of(tenants[item.Tenant])
			}
		}
		return nil
	})
	return described, err
}

// of is the event as listeners get it.
func (e *Job) of(job forebay.FeedJobEvent) forebay.FeedItem {
	job.Number, job.Type, job.At, job.Status = e.Number, e.Type, driver.FromMillis(e.At), e.Status
	job.Generation, job.Attempt, job.ErrorClass, job.ErrorCode = e.Generation, e.Attempt, e.Class, e.Code
	job.RetryDelaySeconds = (time.Duration(e.Delay) * time.Millisecond).Seconds()
	return forebay.FeedItem{Kind: forebay.FeedJob, Job: &job}
}

// of is the change as listeners get it.
func (o *Object) of(tenant string) forebay.FeedItem {
	told := &forebay.FeedObject{Kind: o.Kind, ID: o.ID, Tenant: tenant, Type: o.Type, At: driver.FromMillis(o.At), Reason: o.Reason}
	if o.Until > 0 {
		until := driver.FromMillis(o.Until)
		told.Until = &until
	}
	return forebay.FeedItem{Kind: o.Kind, Object: told}
}

// queueNames returns the names of the queues for jobs, by number.
func (h *Hub) queueNames(ctx context.Context) (names map[int64]string, err error) {
	err = h.db.Read(ctx, func(c driver.Conn) error {
		names = map[int64]string{}
		return c.Prep(sqlQueueNames).Each(func(r driver.Row) error { names[r.Int(0)] = r.Text(1); return nil })
	})
	return names, err
}
