package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// BenchmarkStanding asks where the job in the middle of a million stands that wait.
func BenchmarkStanding(b *testing.B) {
	const jobs = 1_000_000
	backlogs := map[string]string{ // the number of the line of job n
		"one tenant":                        "1024 + 16 + 4",
		"fifty tenants":                     "(1 + n % 50) * 1024 + 16 + 4",
		"fifty tenants, all priorities":     "(1 + n % 50) * 1024 + 16 + n / 50 % 10",
		"fifty tenants, all classes":        "(1 + n % 50) * 1024 + (1 + n / 50 % 63) * 16 + n / 3150 % 10",
		"five thousand tenants":             "(1 + n % 5000) * 1024 + 16 + 4",
		"five thousand tenants, some other": "(1 + n % 5000) * 1024 + CASE WHEN n % 5000 > 4000 THEN 16 ELSE 32 END + n / 5000 % 10",
	}
	run := func(b *testing.B, opts db.Options, line, numbers string) {
		s, _, queueID := openWith(b, opts)
		subqueue := int64(queue.SubqueueOf(queueID, queue.SubqueueMain))
		const piece = 50_000
		begun, err := s.DB.Now().UnixMilli()-jobs/10, error(nil)
		for from := 0; from < jobs && err == nil; from += piece {
			_, err = db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
				return struct{}{}, t.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) SELECT n, ?1, " + line + ", ?2 + n / 10, 1000, 1 FROM (SELECT ?3 + i AS n FROM " + numbers + ") x").
					Int(subqueue).Int(begun).Int(int64(from)).Exec()
			})
		}
		if err == nil && s.DB.Shared() {
			_, err = db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) { return struct{}{}, t.Prep("ANALYZE messages").Exec() })
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, place := range []int64{10, jobs / 2, jobs - 10} {
			var job backlog.Job
			err := s.DB.Read(b.Context(), func(c driver.Conn) error {
				_, err := c.Prep("SELECT seq, flow, visible_at FROM messages WHERE seq = ?").Int(place).One(func(r driver.Row) {
					job = backlog.Job{Seq: r.Int(0), Tenant: flows.TenantOf(r.Int(1)), Subqueue: queue.Subqueue(subqueue), Flow: r.Int(1), Visible: r.Int(2)}
				})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprint(place), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					begun := time.Now()
					if _, err := s.Backlog.Position(b.Context(), &job, noShare, 1000); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(took[0].Seconds()*1000, "min-ms")
				b.ReportMetric(took[len(took)/2].Seconds()*1000, "median-ms")
			})
		}
	}
	for name, line := range backlogs {
		b.Run("sqlite/"+name, func(b *testing.B) {
			run(b, db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true}, line, "(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 50000) SELECT i FROM s) y")
		})
		b.Run("postgresql/"+name, func(b *testing.B) {
			run(b, db.Options{URL: pgtest.Database(b), Serve: true}, line, "generate_series(1, 50000) AS i")
		})
	}
}
