package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// reportChunk is how many jobs one read transaction of a report covers.
const reportChunk = 50_000

const sqlReportAttempts = `
SELECT a.outcome, a.number, a.deployment, coalesce(a.error_class, ''), coalesce(a.error_code, ''), j.task, a.finished_at / 3600000, count(*)
FROM attempts a JOIN jobs j ON j.seq = a.seq
WHERE a.seq > ?1 AND a.seq <= ?2 AND j.tenant + 0 = ?3 AND a.finished_at >= ?4 AND a.finished_at < ?5
GROUP BY 1, 2, 3, 4, 5, 6, 7`

// Generation by generation: what a redrive achieved is not the retries' merit.
const sqlReportJobs = `
SELECT count(*),
  count(*) FILTER (WHERE EXISTS (SELECT 1 FROM attempts e WHERE e.seq = x.seq AND e.generation = x.generation AND e.outcome = 'succeeded')),
  count(*) FILTER (WHERE EXISTS (SELECT 1 FROM attempts e WHERE e.seq = x.seq AND e.generation = x.generation AND e.outcome = 'failed'))
FROM (SELECT DISTINCT a.seq, a.generation FROM attempts a JOIN jobs j ON j.seq = a.seq
  WHERE a.seq > ?1 AND a.seq <= ?2 AND j.tenant + 0 = ?3 AND a.outcome = 'retried' AND a.finished_at >= ?4 AND a.finished_at < ?5) x`

// RetryReport counts the tenant's attempts that finished in [since, until).
func (s *Store) RetryReport(ctx context.Context, tenant int64, since, until time.Time) (forebay.RetryReport, error) {
	b := reportBuilder{
		report: forebay.RetryReport{Since: since.UTC(), Until: until.UTC(),
			ByAttempt: []forebay.AttemptCount{}, ByHour: []forebay.HourCount{}},
		attempts:    map[int]*forebay.AttemptCount{},
		deployments: map[failureKey]int64{}, tasks: map[failureKey]int64{}, hours: map[int64]*forebay.HourCount{},
	}
	var err error
	for from, more := int64(0), true; err == nil && more; from += reportChunk {
		err = s.read(ctx, func(c conn) error {
			if from, more, err = c.reportFrom(from, until); err != nil || !more {
				return err
			}
			bind := func(sql string) statement {
				return c.prep(sql).int(from).int(from + reportChunk).int(tenant).int(since.UnixMilli()).int(until.UnixMilli())
			}
			if err := bind(sqlReportAttempts).each(b.add); err != nil {
				return err
			}
			_, err := bind(sqlReportJobs).one(func(r row) {
				b.report.JobsRetried += r.int(0)
				b.report.JobsRetriedSucceeded += r.int(1)
				b.report.JobsRetriedFailed += r.int(2)
			})
			return err
		})
	}
	return b.finish(), err
}

// reportFrom returns the number before that of the first job after from, if there is one that can have been
// attempted by then. Jobs are numbered in the order in which they were made, but for clocks that step back.
func (c conn) reportFrom(from int64, until time.Time) (before int64, found bool, err error) {
	var created int64
	found, err = c.prep("SELECT seq, created_at FROM jobs WHERE seq > ? ORDER BY seq LIMIT 1").int(from).one(func(r row) { before, created = r.int(0)-1, r.int(1) })
	return before, found && created < until.Add(clockStep).UnixMilli(), err
}

// clockStep is more than a database's clock is ever set back.
const clockStep = time.Hour

type failureKey struct {
	name  string
	class forebay.ErrorClass
	code  string
}

type reportBuilder struct {
	report      forebay.RetryReport
	attempts    map[int]*forebay.AttemptCount
	deployments map[failureKey]int64
	tasks       map[failureKey]int64
	hours       map[int64]*forebay.HourCount
}

func (b *reportBuilder) add(r row) error {
	outcome, number, count := forebay.Outcome(r.text(0)), int(r.int(1)), r.int(7)
	class, code := forebay.ErrorClass(r.text(3)), r.text(4)
	b.report.Attempts += count
	failed := true
	switch outcome {
	case forebay.OutcomeSucceeded:
		b.report.Succeeded += count
		failed = false
	case forebay.OutcomeCancelled:
		b.report.Cancelled += count
		failed = false
	case forebay.OutcomeRetried:
		b.report.Retried += count
	case forebay.OutcomeFailed:
		b.report.Failed += count
	case forebay.OutcomeThrottled:
		b.report.Throttled += count
	case forebay.OutcomeLost:
		b.report.Lost += count
	}
	hour := entry(b.hours, r.int(6))
	hour.Attempts += count
	byNumber := entry(b.attempts, number)
	switch {
	case outcome == forebay.OutcomeSucceeded:
		byNumber.Succeeded += count
	case failed:
		byNumber.Failed += count
		hour.Failed += count
		b.deployments[failureKey{r.text(2), class, code}] += count
		b.tasks[failureKey{r.text(5), class, code}] += count
	}
	if outcome == forebay.OutcomeThrottled {
		hour.Throttled += count
	}
	return nil
}

func entry[K comparable, V any](m map[K]*V, key K) *V {
	v, ok := m[key]
	if !ok {
		v = new(V)
		m[key] = v
	}
	return v
}

func (b *reportBuilder) finish() forebay.RetryReport {
	for number, count := range b.attempts {
		count.Number = number
		b.report.ByAttempt = append(b.report.ByAttempt, *count)
	}
	slices.SortFunc(b.report.ByAttempt, func(x, y forebay.AttemptCount) int { return cmp.Compare(x.Number, y.Number) })
	for hour, count := range b.hours {
		count.Hour = fromMillis(hour * 3_600_000)
		b.report.ByHour = append(b.report.ByHour, *count)
	}
	slices.SortFunc(b.report.ByHour, func(x, y forebay.HourCount) int { return x.Hour.Compare(y.Hour) })
	b.report.ByDeployment = ranked(b.deployments)
	b.report.ByTask = ranked(b.tasks)
	return b.report
}

func ranked(counts map[failureKey]int64) []forebay.ErrorCount {
	list := []forebay.ErrorCount{}
	for key, n := range counts {
		list = append(list, forebay.ErrorCount{Name: key.name, Class: key.class, Code: key.code, Count: n})
	}
	slices.SortFunc(list, func(x, y forebay.ErrorCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Code, y.Code))
	})
	return list
}
