package responses

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// maxScan is how many rows one page of a list looks at. Each read of the database takes scanBatch
// of them.
const (
	maxScan   = 5000
	scanBatch = 250
)

// Query selects responses.
type Query struct {
	ID         string // only this one; "": all
	Status     string // "": all
	Background *bool  // nil: both
	After      string // id of the one before the page; "": the newest
	Limit      int
}

// The columns stand before the payloads, so that no payload is read.
const (
	sqlList = `SELECT no, id, seq, created_at, expires_at, ended_at, status, model, previous, (SELECT j.id FROM jobs j WHERE j.seq = owned.seq)
  FROM responses owned WHERE tenant = ? AND owned.no < ? ORDER BY owned.no DESC LIMIT ? + 0`
	sqlListed   = "SELECT no FROM responses WHERE id = ? AND tenant = ?"
	firstListed = int64(1<<63 - 1)
)

// listed is a row of the list.
type listed struct {
	forebay.Response
	no      int64
	created time.Time
	expires int64
}

func readListed(r driver.Row) listed {
	l := listed{no: r.Int(0), created: driver.FromMillis(r.Int(3)), expires: r.Int(4), Response: forebay.Response{ID: r.Text(1), Object: "response",
		Background: r.Int(2) != 0, Status: r.Text(6), Model: r.Text(7), Previous: r.Text(8), JobID: r.Text(9)}}
	l.CreatedAt = l.created.Unix()
	if ended := driver.FromMillisOrNil(r, 5); ended != nil {
		l.CompletedAt = ended.Unix()
	}
	return l
}

func (q *Query) selects(r *forebay.Response) bool {
	return (q.Status == "" || q.Status == r.Status) && (q.Background == nil || *q.Background == r.Background)
}

// List returns a page of a tenant's responses, newest first. The error is forebay.ErrNotFound if
// there is no response Query.After.
func (s *Store) List(ctx context.Context, tenant int64, q Query) (page forebay.ResponsePage, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		page = forebay.ResponsePage{Data: []forebay.Response{}}
		before := firstListed
		if at := q.After; at != "" || q.ID != "" {
			if at == "" {
				at = q.ID
			}
			found, err := c.Prep(sqlListed).Text(at).Int(tenant).One(func(r driver.Row) { before = r.Int(0) })
			switch {
			case err != nil:
				return err
			case !found && q.ID != "":
				return nil
			case !found:
				return forebay.ErrNotFound
			case q.ID != "":
				return s.one(c, tenant, before, &q, &page)
			}
		}
		return s.scan(c, tenant, before, &q, &page)
	})
	return page, err
}

// one adds the response of a number, if it is selected.
func (s *Store) one(c driver.Conn, tenant, no int64, q *Query, page *forebay.ResponsePage) error {
	_, err := c.Prep(sqlList).Int(tenant).Int(no + 1).Int(1).One(func(r driver.Row) {
		if l := readListed(r); l.no == no && l.expires > c.Now() && q.selects(&l.Response) {
			page.Data, page.LastID = append(page.Data, l.Response), l.ID
		}
	})
	return err
}

// scan adds those before a number, until the page is full or enough was looked at.
func (s *Store) scan(c driver.Conn, tenant, before int64, q *Query, page *forebay.ResponsePage) error {
	var last listed
	batch := scanBatch
	if q.Status == "" && q.Background == nil {
		batch = min(batch, q.Limit+1) // most are listed
	}
	for looked := 0; looked < maxScan; {
		read, more := 0, false
		err := c.Prep(sqlList).Int(tenant).Int(before).Int(int64(batch)).Each(func(r driver.Row) error {
			l := readListed(r)
			read++
			switch {
			case more:
			case len(page.Data) == q.Limit:
				more = l.expires > c.Now()
			default:
				last = l
				if l.expires > c.Now() && q.selects(&l.Response) {
					page.Data = append(page.Data, l.Response)
				}
			}
			before = l.no
			return nil
		})
		if err != nil {
			return err
		}
		page.LastID = last.ID
		if page.HasMore = more; more || read < batch {
			return nil
		}
		looked += read
	}
	page.HasMore = true
	if len(page.Data) < q.Limit {
		page.SearchedTo = last.CreatedAt
	}
	return nil
}

// List returns a page of a tenant's responses, newest first, without payloads. The error is
// forebay.ErrNotFound if there is no response Query.After.
func (s *Service) List(ctx context.Context, tenant string, q Query) (forebay.ResponsePage, error) {
	if q.ID != "" && !knownID(q.ID) {
		return forebay.ResponsePage{Data: []forebay.Response{}}, nil
	}
	if q.After != "" && !knownID(q.After) {
		return forebay.ResponsePage{}, forebay.ErrNotFound
	}
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return forebay.ResponsePage{}, err
	}
	return s.Store.List(ctx, no, q)
}
