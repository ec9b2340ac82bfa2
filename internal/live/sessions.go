package live

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/listing"
)

// JobSessions lists the sessions that have jobs that are not over, by tenant, queue and id.
func (s *Service) JobSessions(ctx context.Context, tenant string, f forebay.JobSessionFilter) (page forebay.Page[forebay.JobSession], err error) {
	page.Items = []forebay.JobSession{}
	q := record.SessionQuery{ID: f.SessionID}
	if len(f.SessionID) > maxText {
		return page, forebay.Invalid("session_id", "has more than %d bytes", maxText)
	}
	if q.Limit, err = listing.PageSize(f.Limit); err != nil {
		return page, err
	}
	if q.After, err = record.SessionAfter(f.Cursor); err != nil {
		return page, err
	}
	if q.Tenant, err = s.number(ctx, tenant, f.AllTenants); err != nil {
		return page, err
	}
	if f.Queue != "" {
		if q.Queue, err = s.Jobs.QueueNumber(tenant, f.Queue, f.AllTenants); err != nil {
			return page, err
		}
	}
	var found record.SessionPage
	err = s.Queues.Read(ctx, func(c driver.Conn) (err error) {
		found, err = record.Sessions(c, q)
		return err
	})
	if err != nil {
		return page, err
	}
	page.Items, err = s.sessionViews(ctx, found.Sessions)
	page.NextCursor = found.Next.Cursor()
	return page, err
}

// sessionViews gives sessions the names of their tenants and queues, and says what holds their
// first jobs up.
func (s *Service) sessionViews(ctx context.Context, rows []record.Session) ([]forebay.JobSession, error) {
	list := make([]forebay.JobSession, len(rows))
	if len(rows) == 0 {
		return list, nil
	}
	var first []record.Job
	for i := range rows {
		if rows[i].First != nil {
			first = append(first, *rows[i].First)
		}
	}
	jobs, err := s.Jobs.Viewed(ctx, first, s.Queues.TenantName)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		row := &rows[i]
		tenant, err := s.Queues.TenantName(ctx, row.Tenant)
		if err != nil {
			return nil, err
		}
		var its *forebay.Job
		if row.First != nil {
			its, jobs = &jobs[0], jobs[1:]
		}
		list[i] = row.View(tenant, s.Jobs.QueueName(row.Queue), its)
	}
	return list, nil
}
