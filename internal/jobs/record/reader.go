package record

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/gather"
	"github.com/forebayhq/forebay/internal/turns"
)

// Reader reads single jobs. Where a read costs a round trip, those of one tenant share it.
type Reader struct {
	db       *db.DB
	together *gather.Questions[asker, string, Job]
}

// asker is who takes turns at reading, and whose jobs are read.
type asker struct {
	party  string
	tenant int64
}

// NewReader returns one that reads a database.
func NewReader(d *db.DB) *Reader {
	return &Reader{d, gather.New(func(ctx context.Context, by asker, ids []string) (jobs []Job, err error) {
		err = d.Read(ctx, func(c driver.Conn) error {
			jobs, err = Several(c, by.tenant, ids)
			return err
		})
		return jobs, err
	})}
}

// Job returns the job with that id if it is the tenant's, or forebay.ErrNotFound.
func (r *Reader) Job(ctx context.Context, tenant int64, id string) (job Job, err error) {
	if r.db.Shared() {
		if job, err = r.together.Ask(ctx, asker{turns.Tenant(ctx), tenant}, id); err == nil && job.Seq == 0 {
			err = forebay.ErrNotFound
		}
		return job, err
	}
	err = r.db.Read(ctx, func(c driver.Conn) error {
		job, err = One(c, tenant, id)
		return err
	})
	return job, err
}

// sqlJobs reads several jobs of a tenant. The tenant is no way to look them up: it may have any
// number of others.
const sqlJobs = "SELECT found.* FROM unnest(CAST(? AS text[])) AS x(id), LATERAL (" + jobColumns + jobTables +
	"WHERE j.id = ANY (ARRAY[x.id]) AND j.tenant + 0 = ?) AS found"

// Several returns the jobs with those ids, in their order, where processes share the database. The
// tenant has no job where the Seq is 0.
func Several(c driver.Conn, tenant int64, ids []string) ([]Job, error) {
	if len(ids) == 1 { // needs no array, which takes longer
		job, err := One(c, tenant, ids[0])
		if errors.Is(err, forebay.ErrNotFound) {
			err = nil
		}
		return []Job{job}, err
	}
	var at int64
	found := make(map[string]Job, len(ids))
	bind := func(st driver.Statement) driver.Statement { return st.Text(driver.ArrayOfTexts(ids)).Int(tenant) }
	err := c.QueryWithNow(&at, driver.PipelineQuery{SQL: sqlJobs, Bind: bind, OnRow: func(r driver.Row) { found[r.Text(1)] = readJob(r, at) }})
	jobs := make([]Job, len(ids))
	for i, id := range ids {
		jobs[i] = found[id]
	}
	return jobs, err
}
