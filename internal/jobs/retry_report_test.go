package jobs

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// sqlSumAttempts makes the sums of attempt_hours from the attempts themselves: of each tenant, or
// of all as tenant 0.
const sqlSumAttempts = `
SELECT %s, a.finished_at / 3600000, j.task, a.deployment, CASE WHEN a.number > 100 THEN 100 ELSE a.number END, a.outcome,
  coalesce(a.error_class, ''), coalesce(a.error_code, ''), count(*),
  count(*) FILTER (WHERE EXISTS (SELECT 1 FROM attempts e WHERE e.seq = a.seq AND e.generation = a.generation AND e.number < a.number AND e.outcome = 'retried')),
  CAST(sum(a.input_tokens) AS BIGINT), CAST(sum(a.output_tokens) AS BIGINT), CAST(sum(coalesce(a.assumed_tokens, 0)) AS BIGINT), CAST(sum(a.cost) AS BIGINT)
FROM attempts a JOIN jobs j ON j.seq = a.seq
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8`

const sqlHours = `
SELECT tenant, hour, task, deployment, number, outcome, error_class, error_code, CAST(sum(attempts) AS BIGINT), CAST(sum(retries) AS BIGINT),
  CAST(sum(input_tokens) AS BIGINT), CAST(sum(output_tokens) AS BIGINT), CAST(sum(assumed_tokens) AS BIGINT), CAST(sum(cost) AS BIGINT)
FROM attempt_hours GROUP BY 1, 2, 3, 4, 5, 6, 7, 8`

// hourSumsDiffer compares the sums by the hour with the attempts.
func hourSumsDiffer(s *stores) error {
	return s.DB.Read(context.Background(), func(c driver.Conn) error {
		read := func(statements ...string) (map[string][6]int64, error) {
			sums := map[string][6]int64{}
			for _, sql := range statements {
				err := c.Prep(sql).Each(func(r driver.Row) error {
					key := fmt.Sprintf("%d %d %q %q %d %q %q %q", r.Int(0), r.Int(1), r.Text(2), r.Text(3), r.Int(4), r.Text(5), r.Text(6), r.Text(7))
					if sum := [6]int64{r.Int(8), r.Int(9), r.Int(10), r.Int(11), r.Int(12), r.Int(13)}; sum != [6]int64{} {
						sums[key] = sum
					}
					return nil
				})
				if err != nil {
					return nil, err
				}
			}
			return sums, nil
		}
		want, err := read(fmt.Sprintf(sqlSumAttempts, "j.tenant"), fmt.Sprintf(sqlSumAttempts, "0"))
		if err != nil {
			return err
		}
		got, err := read(sqlHours)
		if err == nil && !maps.Equal(want, got) {
			err = fmt.Errorf("the sums by the hour are %+v, but they should be %+v", got, want)
		}
		return err
	})
}

func TestRetryReport(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "default")
		put(t, s, tenant, queueID, 6, nil)
		put(t, s, tenantNamed(t, s, "other"), queueID, 1, nil)
		claim := func(kind queue.SubqueueKind, most int) []LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, kind), Max: most, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
			if err != nil || len(got) != most {
				t.Fatalf("%d deliveries, want %d: %v", len(got), most, err)
			}
			return got
		}
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		retried := AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, ErrorCode: "server_error"}
		failed := AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad_request"}
		succeeded := AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeSucceeded}
		mine := map[string]*LockedJob{}
		for _, d := range claim(queue.SubqueueMain, 7) {
			if d.Tenant != tenant {
				ok(s.Jobs.Succeed(t.Context(), &d, succeeded, Output{}))
				continue
			}
			mine[fmt.Sprint(len(mine))] = &d
		}
		for _, name := range []string{"0", "1", "2"} {
			ok(s.Jobs.Retry(t.Context(), mine[name], retried))
		}
		again := claim(queue.SubqueueRetry, 3)
		ok(s.Jobs.Retry(t.Context(), &again[2], retried)) // a second time
		ok(s.Jobs.Succeed(t.Context(), &again[0], succeeded, Output{}))
		ok(s.Jobs.DeadLetter(t.Context(), &again[1], failed, queue.SubqueueDeadLetter, "x"))
		ok(s.Jobs.Succeed(t.Context(), mine["3"], succeeded, Output{}))
		ok(s.Jobs.DeadLetter(t.Context(), mine["4"], failed, queue.SubqueueDeadLetter, "x"))
		_, err := s.Jobs.Cancel(t.Context(), mine["5"].Seq)
		ok(err)
		ok(s.Jobs.Amend(t.Context(), mine["5"], AttemptRecord{Deployment: "west"}))
		ok(hourSumsDiffer(s))

		now := s.DB.Now()
		report, err := s.Reports.RetryReport(t.Context(), "acme", false, now.Add(-time.Hour), now.Add(time.Minute))
		ok(err)
		if report.Attempts != 9 || report.Succeeded != 2 || report.Retried != 4 || report.Failed != 2 || report.Cancelled != 1 ||
			report.JobsRetried != 3 || report.JobsRetriedSucceeded != 1 || report.JobsRetriedFailed != 1 {
			t.Errorf("%+v", report)
		}
		if len(report.ByAttempt) != 2 || report.ByAttempt[0] != (forebay.AttemptCount{Number: 1, Succeeded: 1, Failed: 4}) || report.ByAttempt[1] != (forebay.AttemptCount{Number: 2, Succeeded: 1, Failed: 2}) {
			t.Errorf("by attempt %+v", report.ByAttempt)
		}
		if want := (forebay.ErrorCount{Name: "east", Class: forebay.ClassTransient, Code: "server_error", Count: 4}); len(report.ByDeployment) != 2 || report.ByDeployment[0] != want {
			t.Errorf("by deployment %+v", report.ByDeployment)
		}
		if report.Since.Minute() != 0 || report.Until.Minute() != 0 || report.Until.Before(now) {
			t.Errorf("the report is of %s to %s", report.Since, report.Until)
		}
		ok(s.Reports.Forget(t.Context(), now.Add(-time.Hour)))
		if after, err := s.Reports.RetryReport(t.Context(), "acme", false, now.Add(-time.Hour), now.Add(time.Minute)); err != nil || after.Attempts != 9 {
			t.Errorf("after young hours were to be forgotten: %+v, %v", after, err)
		}
	})
}

// Counts of a queue stop at a limit and say so.
func TestTenantDepthIsBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queue := tenantNamed(t, s, "acme"), queueOf(t, s, "default")
		put(t, s, tenant, queue, 50, func(j *NewJob) { j.Priority = 5 })
		put(t, s, tenant, queue, 3, func(j *NewJob) { j.Priority = 2 })
		put(t, s, tenantNamed(t, s, "other"), queue, 20, nil)
		for limit, want := range map[int64]backlog.Depth{200: {Ready: 73}, 30: {Ready: 23, Capped: true}} {
			got, err := s.Backlog.QueueDepth(t.Context(), queue, limit)
			got.OldestAge = 0
			if err != nil || got != want {
				t.Errorf("of all tenants to %d: %+v, %v, want %+v", limit, got, err, want)
			}
		}
		for limit, want := range map[int64]backlog.Depth{200: {Ready: 53}, 20: {Ready: 13, Capped: true}} {
			got, err := s.Backlog.TenantDepth(t.Context(), queue, tenant, limit)
			got.OldestAge = 0
			if err != nil || got != want {
				t.Errorf("to %d: %+v, %v, want %+v", limit, got, err, want)
			}
		}
	})
}

// BenchmarkTenantDepth counts a backlog of a million jobs of one tenant, of one of fifty.
func BenchmarkTenantDepth(b *testing.B) {
	const columns = "INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) SELECT n, ?1, 1024 * (?3 + n % ?4) + 4, ?2, 1000, ?3 + n % ?4 FROM "
	for name, e := range map[string]struct {
		options db.Options
		fill    string
	}{
		"sqlite":     {db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true}, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000000) " + columns + "s"},
		"postgresql": {db.Options{URL: dbtest.Postgres(b), Serve: true}, columns + "generate_series(1, 1000000) AS n"},
	} {
		for _, tenants := range []int64{1, 50} {
			b.Run(fmt.Sprint(name, "/", tenants), func(b *testing.B) {
				if e.options.Path != "" {
					e.options.Path = filepath.Join(b.TempDir(), "forebay.db")
				} else {
					e.options.URL = dbtest.Postgres(b)
				}
				s, tenant, queueID := openWith(b, e.options)
				_, err := db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
					return struct{}{}, t.Prep(e.fill).Int(int64(queue.SubqueueOf(queueID, queue.SubqueueMain))).Int(t.Now - 1).Int(tenant).Int(tenants).Exec()
				})
				if err != nil {
					b.Fatal(err)
				}
				b.Run("one", func(b *testing.B) {
					for b.Loop() {
						if d, err := s.Backlog.TenantDepth(b.Context(), queueID, tenant, entity.CountLimit); err != nil || d.Ready != entity.CountLimit {
							b.Fatal(err, d)
						}
					}
				})
				b.Run("together", func(b *testing.B) {
					for b.Loop() {
						if d, err := s.Backlog.QueueDepth(b.Context(), queueID, maxTogether); err != nil || d.Ready != maxTogether || !d.Capped {
							b.Fatal(err, d)
						}
					}
				})
			})
		}
	}
}
