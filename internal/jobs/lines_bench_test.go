package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// BenchmarkLines asks what waits of a million jobs.
func BenchmarkLines(b *testing.B) {
	const jobs = 1_000_000
	backlogs := map[string]string{ // the number of the line of job n
		"one tenant":                    "1024 + 16 + 4",
		"one tenant, all priorities":    "1024 + 16 + n % 10",
		"fifty tenants, all priorities": "(1 + n % 50) * 1024 + 16 + n / 50 % 10",
		"five thousand tenants":         "(1 + n % 5000) * 1024 + 16 + 4",
	}
	run := func(b *testing.B, opts db.Options, line, numbers string) {
		s, _, queueID := openWith(b, opts)
		subqueue := int64(queue.SubqueueOf(queueID, queue.SubqueueMain))
		const piece = 50_000
		begun, err := s.DB.Now().UnixMilli()-jobs/10, error(nil)
		for from := 0; from < jobs && err == nil; from += piece {
			_, err = db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
				err := t.Prep("INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, input_size) SELECT n, 'job_' || n, 1, ?1, 'chat', 5, 3, ?2, 1000 FROM (SELECT ?3 + i AS n FROM " + numbers + ") x").
					Int(queueID).Int(begun).Int(int64(from)).Exec()
				if err != nil {
					return struct{}{}, err
				}
				return struct{}{}, t.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) SELECT n, ?1, " + line + ", ?2 + n / 10, 1000, 1 FROM (SELECT ?3 + i AS n FROM " + numbers + ") x").
					Int(subqueue).Int(begun).Int(int64(from)).Exec()
			})
		}
		if err == nil && s.DB.Shared() {
			_, err = db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
				return struct{}{}, t.Prep("ANALYZE messages").Exec()
			})
		}
		if err != nil {
			b.Fatal(err)
		}
		q := backlog.LinesQuery{Shares: noShare, Workers: func(string, bool) (int, int) { return 64, 64 },
			Plan: func(string, int64, []byte, int64) []admission.Option {
				return []admission.Option{{Deployment: "d", Limits: quota.Limits{TokensPerMinute: 100_000}}}
			},
			Retry: func(int64) (backlog.RetryLimits, bool) { return backlog.RetryLimits{}, true }}
		for _, tenant := range []int64{0, 1} {
			q.Tenant = tenant
			b.Run(fmt.Sprintf("tenant %d", tenant), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					if list, err := s.Backlog.Lines(b.Context(), &q); err != nil || len(list.Lines) == 0 {
						b.Fatal(list, err)
					}
					took = append(took, time.Since(began))
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
