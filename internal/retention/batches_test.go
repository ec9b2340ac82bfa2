package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/stores"
)

// A job whose line a batch still needs is kept, however old it is.
func TestLinesOfBatchesAreKept(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		tenant, err := s.Queues.EnsureTenant(t.Context(), "a")
		must(err)
		queue, err := s.Queues.EnsureQueue(t.Context(), "q")
		must(err)
		var list []jobs.NewJob
		for _, id := range []string{"line", "other"} {
			list = append(list, jobs.NewJob{ID: id, Tenant: tenant, Queue: queue, Task: "t", MaxAttempts: 1, Input: []byte("1"), InputSize: 1})
		}
		made, err := s.Jobs.Submit(t.Context(), list)
		must(err)
		for _, m := range made {
			_, err := s.Jobs.Cancel(t.Context(), m.Seq)
			must(err)
		}
		run := func(sql string) {
			t.Helper()
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{}, func(x *db.Tx) (struct{}, error) { return struct{}{}, x.Prep(sql).Int(made[0].Seq).Exec() })
			must(err)
		}
		run("INSERT INTO batch_lines (batch, line, custom_id, seq) VALUES (1, 1, 'c', ?)")
		r := New(s.Jobs, nil)
		q := query{Ended: map[forebay.Status]time.Time{forebay.StatusCancelled: s.Jobs.Now().Add(time.Hour)}}
		for _, want := range []int{1, 0} {
			if n, err := r.purge(t.Context(), q); err != nil || n != want {
				t.Errorf("%d jobs were purged, want %d (%v)", n, want, err)
			}
		}
		if _, err := s.Jobs.Job(t.Context(), tenant, "line"); err != nil {
			t.Errorf("the job of the line: %v", err)
		}
		run("DELETE FROM batch_lines WHERE seq = ?") // its batch is over
		if n, err := r.purge(t.Context(), q); err != nil || n != 1 {
			t.Errorf("%d jobs were purged (%v)", n, err)
		}
	})
}

// Looking for lines of batches walks no table.
func TestPlansOfPurges(t *testing.T) {
	typed := strings.NewReplacer("?4", "CAST(?4 AS BIGINT)", "?5", "CAST(?5 AS BIGINT)", "?6", "CAST(?6 AS BIGINT)", "?7", "CAST(?7 AS BIGINT)", "?8", "CAST(?8 AS BIGINT)")
	fixture.PlansOnPostgres(t, typed.Replace(sqlPurgeable), typed.Replace(sqlPurgeJobs))
}
