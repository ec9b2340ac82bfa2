package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// usageFixture is attempts of three tenants over five days, the last of which runs.
func usageFixture(t *testing.T, s *Store) (attempts []Attempt, names map[int64]string, now int64) {
	t.Helper()
	names = map[int64]string{}
	now = s.Now().UnixMilli() / hourMillis
	for _, name := range []string{"acme", "globex", "initech"} {
		no, err := s.EnsureTenant(t.Context(), name)
		mustDo(t, err)
		names[no] = name
	}
	outcomes := []forebay.Outcome{forebay.OutcomeSucceeded, forebay.OutcomeRetried, forebay.OutcomeFailed, forebay.OutcomeThrottled, forebay.OutcomeLost, forebay.OutcomeCancelled}
	for i := range 600 {
		n := int64(i)
		attempts = append(attempts, Attempt{
			Tenant: slices.Sorted(maps.Keys(names))[i*i%3], FinishedAt: (now-n%120)*hourMillis + n, Task: []string{"echo", "chat"}[i/3%2],
			Deployment: []string{"", "east", "west"}[i/7%3], Number: 1 + i%4, Outcome: outcomes[i/5%len(outcomes)], Code: []string{"", "x"}[i%2],
			Use: Use{Input: n, Output: 2 * n, Assumed: n % 3, Cost: forebay.Money(n * 1000)},
		})
	}
	for from := 0; from < len(attempts); from += 50 {
		_, err := db.TransactIn(t.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
			for _, a := range attempts[from : from+50] {
				tx.Count(a, 1)
			}
			moved := attempts[from] // a worker says late where its call had been
			moved.Deployment, moved.Use = "nowhere", Use{Cost: 5}
			tx.Count(moved, 1)
			tx.Count(moved, -1)
			return struct{}{}, nil
		})
		mustDo(t, err)
	}
	mustDo(t, s.MakeDays(t.Context())) // of the days that are over
	return attempts, names, now
}

func modelOf(deployment string) string { return strings.TrimRight(deployment, "est") }

// A usage report is what the attempts come to, however its time is cut and its rows are told
// apart.
func TestUsage(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		attempts, names, now := usageFixture(t, s)
		spans := [][2]int64{{now - 119, now + 1}, {now - 100, now - 3}, {now - 7, now}, {now/24*24 - 48, now / 24 * 24}, {now, now + 1}}
		for bits := range 1 << len(forebay.UsageDimensions) {
			var by []forebay.UsageBy
			for i, dimension := range forebay.UsageDimensions {
				if bits&(1<<i) != 0 {
					by = append(by, dimension)
				}
			}
			for _, all := range []bool{false, true} {
				for _, step := range forebay.UsageSteps {
					for _, span := range spans {
						query := forebay.UsageQuery{Since: driver.FromMillis(span[0] * hourMillis), Until: driver.FromMillis(span[1] * hourMillis), By: by, Step: step, AllTenants: all}
						if all && step == forebay.UsageHourly && span[1]-span[0] > maxTenantHours+1 && slices.Contains(by, forebay.UsageByTenant) {
							if _, err := s.Usage(t.Context(), "acme", query, modelOf); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
								t.Errorf("%+v: %v", query, err)
							}
							continue
						}
						got, err := s.Usage(t.Context(), "acme", query, modelOf)
						mustDo(t, err)
						want := map[string]forebay.UsageSum{}
						var total forebay.UsageSum
						for _, a := range attempts {
							hour := a.FinishedAt / hourMillis
							if hour < span[0] || hour >= span[1] || !all && names[a.Tenant] != "acme" {
								continue
							}
							key, sum := wantedRow(a, names[a.Tenant], query, span[0])
							want[key] = want[key].Plus(sum)
							total = total.Plus(sum)
						}
						rows := map[string]forebay.UsageSum{}
						for _, row := range got.Rows {
							rows[shownRow(row)] = row.UsageSum
						}
						if !maps.Equal(rows, want) || len(got.Rows) != len(want) || got.Total != total {
							t.Fatalf("%+v:\n%v\nwant\n%v", query, rows, want)
						}
						if !slices.IsSortedFunc(got.Rows, func(a, b forebay.UsageRow) int { return a.Time.Compare(b.Time) }) {
							t.Errorf("%+v is not in the order of time", query)
						}
					}
				}
			}
		}
	})
}

// What the database counts apart and the report adds up is whole, or refused.
func TestUsageIsNeverCut(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		no, err := s.EnsureTenant(t.Context(), "acme")
		mustDo(t, err)
		const hours, deployments = 744, 14 // more together than a report has rows
		now := s.Now().UnixMilli() / hourMillis
		_, err = db.Transact(t.Context(), s.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
			return struct{}{}, tx.Prep(`
WITH RECURSIVE h(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT n + 1 FROM h WHERE n < ?4 - 1),
  d(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT n + 1 FROM d WHERE n < ?3 - 1)
INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries)
SELECT ?1, ?2 - h.n, 'echo', 'd' || d.n, 1, 'succeeded', '', '', 1, 0 FROM h, d`).Int(no).Int(now).Int(deployments).Int(hours).Exec()
		})
		mustDo(t, err)
		query := forebay.UsageQuery{Since: driver.FromMillis((now - hours + 1) * hourMillis), Until: driver.FromMillis((now + 1) * hourMillis), Step: forebay.UsageHourly, By: []forebay.UsageBy{forebay.UsageByModel}}
		got, err := s.Usage(t.Context(), "acme", query, func(string) string { return "all" })
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest && (err != nil || got.Total.Attempts != hours*deployments) {
			t.Errorf("%d of %d attempts are told, %v", got.Total.Attempts, hours*deployments, err)
		}
		query.Since = driver.FromMillis((now - hours/2) * hourMillis)
		got, err = s.Usage(t.Context(), "acme", query, func(string) string { return "all" })
		mustDo(t, err)
		if want := int64((hours/2 + 1) * deployments); got.Total.Attempts != want {
			t.Errorf("%d of %d attempts are told", got.Total.Attempts, want)
		}
	})
}

// wantedRow returns what one attempt adds to a report, and to which row.
func wantedRow(a Attempt, tenant string, q forebay.UsageQuery, since int64) (key string, sum forebay.UsageSum) {
	hour := a.FinishedAt / hourMillis
	switch q.Step {
	case forebay.UsageWhole:
		hour = since
	case forebay.UsageDaily:
		hour = hour / 24 * 24
	}
	row := forebay.UsageRow{Time: driver.FromMillis(hour * hourMillis)}
	for _, by := range q.By {
		switch by {
		case forebay.UsageByTenant:
			row.Tenant = &tenant
		case forebay.UsageByTask:
			row.Task = &a.Task
		case forebay.UsageByModel:
			row.Model = new(modelOf(a.Deployment))
		case forebay.UsageByDeployment:
			row.Deployment = &a.Deployment
		}
	}
	sum = forebay.UsageSum{Attempts: 1, InputTokens: a.Use.Input, OutputTokens: a.Use.Output, AssumedTokens: a.Use.Assumed, CostUSD: a.Use.Cost}
	switch a.Outcome {
	case forebay.OutcomeSucceeded:
		sum.Succeeded = 1
	case forebay.OutcomeCancelled:
	case forebay.OutcomeThrottled:
		sum.Failed, sum.Throttled = 1, 1
	default:
		sum.Failed = 1
	}
	return shownRow(row), sum
}

func shownRow(row forebay.UsageRow) string {
	text := row.Time.Format(time.RFC3339)
	for _, part := range []*string{row.Tenant, row.Task, row.Model, row.Deployment} {
		if part == nil {
			text += " -"
		} else {
			text += fmt.Sprintf(" %q", *part)
		}
	}
	return text
}

// The sums of all tenants together tell of each what its own report tells.
func TestRetriesOfAllTenants(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		attempts, names, now := usageFixture(t, s)
		since, until := driver.FromMillis((now-50)*hourMillis), driver.FromMillis((now+1)*hourMillis)
		all, err := s.RetryReport(t.Context(), "acme", true, since, until)
		mustDo(t, err)
		var sum, failed int64
		for _, name := range names {
			one, err := s.RetryReport(t.Context(), name, false, since, until)
			mustDo(t, err)
			sum += one.Attempts
		}
		var want int64
		retried := map[string]forebay.ErrorRetries{}
		for _, a := range attempts {
			if a.FinishedAt/hourMillis < now-50 {
				continue
			}
			want++
			if a.Outcome != forebay.OutcomeSucceeded && a.Outcome != forebay.OutcomeCancelled {
				e := retried[a.Code]
				e.Failed++
				if a.Outcome == forebay.OutcomeRetried {
					e.Retried++
				}
				e.Code = a.Code
				retried[a.Code] = e
				failed++
			}
		}
		if all.Attempts != want || sum != want || failed == 0 {
			t.Errorf("%d attempts of all, %d of each, there are %d", all.Attempts, sum, want)
		}
		if len(all.ByError) != len(retried) {
			t.Errorf("by error %+v", all.ByError)
		}
		for _, e := range all.ByError {
			if e != retried[e.Code] {
				t.Errorf("%+v, want %+v", e, retried[e.Code])
			}
		}
	})
}

// A report with more rows than it may have is refused.
func TestUsageIsBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		tenant, err := s.EnsureTenant(t.Context(), "acme")
		mustDo(t, err)
		_, err = db.TransactIn(t.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
			for i := range forebay.MaxUsageRows + 1 {
				tx.Count(Attempt{Tenant: tenant, FinishedAt: tx.Now, Task: fmt.Sprint("task", i), Outcome: forebay.OutcomeSucceeded}, 1)
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		query := forebay.UsageQuery{By: []forebay.UsageBy{forebay.UsageByTask}}
		if _, err := s.Usage(t.Context(), "acme", query, modelOf); forebay.CodeOf(err) != forebay.CodeInvalidRequest || !strings.Contains(fmt.Sprint(err), "10000 rows") {
			t.Errorf("%v", err)
		}
		query.By = nil
		if r, err := s.Usage(t.Context(), "acme", query, modelOf); err != nil || len(r.Rows) != 1 || r.Total.Attempts != forebay.MaxUsageRows+1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// usageStatements are all forms of sqlUsage.
func usageStatements() (list []string) {
	for _, source := range []usageSource{usageOfHours, usageOfHoursByDay, usageOfDays} {
		for bits := range 8 {
			list = append(list, sqlUsage(source, told{bits&1 != 0, bits&2 != 0, bits&4 != 0}))
		}
	}
	return list
}

// PostgreSQL finds what it sums in the index, also while it believes the tables to be empty. It
// may sort the sums.
func TestUsagePlansOnPostgres(t *testing.T) {
	s := fixture.Serving(t, dbtest.Databases["postgresql"](t))
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		pg := c.Driver.(*postgres.Conn)
		if err := pg.ExecSimple("VACUUM ANALYZE"); err != nil {
			return err
		}
		for _, sql := range usageStatements() {
			plan, err := pg.Plan(t.Context(), sql)
			if err != nil {
				return err
			}
			text := strings.Join(plan, "\n")
			if strings.Contains(text, "Seq Scan") || !strings.Contains(text, "Index Cond: ((tenant = $1) AND (") {
				t.Errorf("%s\n%s", sql, text)
			}
		}
		return nil
	}))
}

// BenchmarkUsage reports on 90 days of 50 tenants, 20 tasks and 5 deployments, each of which was
// called in each hour. The hours are those of the last two days and of one tenant.
func BenchmarkUsage(b *testing.B) {
	const tenants, days, width = 50, 90, 100
	for name, database := range dbtest.Databases {
		b.Run(name, func(b *testing.B) {
			s := fixture.Serving(b, database(b))
			for i := range tenants {
				_, err := s.EnsureTenant(b.Context(), fmt.Sprint("tenant", i))
				mustDo(b, err)
			}
			var first int64
			mustDo(b, s.Read(b.Context(), func(c driver.Conn) error {
				_, err := c.Prep("SELECT min(no) FROM tenants").One(func(r driver.Row) { first = r.Int(0) })
				return err
			}))
			now := s.Now().UnixMilli() / hourMillis
			fill := func(sql string, tenant, from, to int64) {
				_, err := db.TransactIn(b.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
					return struct{}{}, t.Prep(sql).Int(tenant).Int(from).Int(to).Int(width).Exec()
				})
				mustDo(b, err)
			}
			const series = `WITH RECURSIVE at(n) AS (SELECT ?2 + 0 UNION ALL SELECT n + 1 FROM at WHERE n < ?3), of(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM of WHERE i + 1 < ?4) `
			const day = "INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost) " +
				series + "SELECT ?1 + 0, 1, n, 'task' || (i / 5), 'deployment' || (i % 5), 100, 90, 10, 5, 1000, 100, 0, 12345 FROM at, of"
			const total = "INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost) " +
				series + "SELECT ?1 + 0, 0, n, '', '', 10000, 9000, 1000, 500, 100000, 10000, 0, 1234500 FROM at, of WHERE i = 0"
			const hour = "INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries, input_tokens, output_tokens, assumed_tokens, cost) " +
				series + "SELECT ?1 + 0, n, 'task' || (i / 5), 'deployment' || (i % 5), 1, 'succeeded', '', '', 5, 0, 1000, 100, 0, 12345 FROM at, of"
			for tenant := first - 1; tenant < first+tenants; tenant++ {
				of, hours := tenant, int64(maxTenantHours)
				if tenant <= first { // all together, and the first
					hours = days * 24
				}
				if tenant < first {
					of = allTenants
				}
				fill(day, of, now/24-days, now/24)
				fill(total, of, now/24-days, now/24)
				fill(hour, of, now-hours, now)
			}
			_, err := db.TransactIn(b.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
				return struct{}{}, t.setMade(placeOf(now/24-1, lastTenant))
			})
			mustDo(b, err)
			for _, all := range []bool{false, true} {
				for _, step := range forebay.UsageSteps {
					for _, by := range []string{"", "tenant", "task", "model", "tenant,task", "tenant,task,deployment"} {
						span := int64(days * 24)
						if step == forebay.UsageHourly {
							span = maxHours
						}
						if all && step == forebay.UsageHourly && strings.Contains(by, "tenant") {
							span = maxTenantHours
						}
						query := forebay.UsageQuery{Since: driver.FromMillis((now - span) * hourMillis), AllTenants: all, Step: step}
						if by != "" {
							for part := range strings.SplitSeq(by, ",") {
								query.By = append(query.By, forebay.UsageBy(part))
							}
						}
						b.Run(fmt.Sprintf("all=%t/%s/%s/%dh", all, step, by, span), func(b *testing.B) {
							for b.Loop() {
								if _, err := s.Usage(b.Context(), "tenant0", query, modelOf); err != nil && forebay.CodeOf(err) != forebay.CodeInvalidRequest {
									b.Fatal(err)
								}
							}
						})
					}
				}
			}
		})
	}
}
