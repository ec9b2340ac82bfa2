package jobs

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
)

// Jobs that are read together are what each is when it is read alone.
func TestJobsAreReadTogether(t *testing.T) {
	t.Parallel()
	s := fixture.Serving(t, db.Options{URL: dbtest.Postgres(t)})
	queue := queueOf(t, s, "q")
	tenants := []int64{tenantNamed(t, s, "acme"), tenantNamed(t, s, "globex")}
	ids := []string{"", "job_none", `job_{"a",NULL}\`, "NULL", "job_\x00"}
	for i, tenant := range tenants {
		put(t, s, tenant, queue, 40, func(j *NewJob) {
			j.ID = fmt.Sprint("job_", len(ids))
			j.Metadata = []byte(fmt.Sprintf(`{"n":"%d"}`, len(ids)))
			ids = append(ids, j.ID)
		})
		for _, id := range ids[len(ids)-10*(i+1):] { // these have ended
			job, err := s.Jobs.Job(t.Context(), tenant, id)
			mustDo(t, err)
			_, err = s.Jobs.Cancel(t.Context(), job.Seq)
			mustDo(t, err)
		}
	}
	type read struct {
		tenant int64
		id     string
		job    JobRow
		err    error
	}
	var reads []*read
	var readers sync.WaitGroup
	for range 3 {
		for _, tenant := range tenants {
			for _, id := range ids {
				r := &read{tenant: tenant, id: id}
				reads = append(reads, r)
				readers.Go(func() { r.job, r.err = s.Jobs.Job(t.Context(), r.tenant, r.id) })
			}
		}
	}
	readers.Wait()
	for _, r := range reads {
		var alone JobRow
		err := s.Queues.Read(t.Context(), func(c driver.Conn) (err error) {
			alone, err = record.One(c, r.tenant, r.id)
			return err
		})
		if !errors.Is(r.err, err) || err != nil && !errors.Is(err, forebay.ErrNotFound) || err == nil && !reflect.DeepEqual(r.job, alone) {
			t.Errorf("%q of tenant %d is %+v (%v), alone %+v (%v)", r.id, r.tenant, r.job, r.err, alone, err)
		}
	}
}

// Jobs that are read together are looked up by their ids, however many others their tenant has.
func TestReadTogetherReadsNoOthers(t *testing.T) {
	t.Parallel()
	const calls, each = 10, 60
	fixture.FewEntriesRead(t, calls*each, 0, []string{"jobs_tenant"}, func(s *stores) {
		tenant, queue := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		var ids []string
		put(t, s, tenant, queue, 2000, func(j *NewJob) { ids = append(ids, j.ID) })
		for range calls {
			var jobs []JobRow
			err := s.Queues.Read(t.Context(), func(c driver.Conn) (err error) {
				jobs, err = record.Several(c, tenant, ids[:each])
				return err
			})
			if err != nil || len(jobs) != each || jobs[each-1].ID != ids[each-1] {
				t.Fatalf("%d jobs: %v", len(jobs), err)
			}
		}
	})
}
