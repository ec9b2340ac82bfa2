package report

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

const sqlReportHours = `SELECT hour, task, deployment, number, outcome, error_class, error_code, attempts, retries
FROM attempt_hours WHERE tenant = ? AND hour >= ? AND hour < ?`

// span is what a report covers when its beginning is not given.
const span = 24 * time.Hour

// RetryReport reports on the attempts that finished in the hours of [since, until). The zero
// until is now; the zero since is a day before until. all reports on all tenants together.
func (s *Store) RetryReport(ctx context.Context, tenant string, all bool, since, until time.Time) (forebay.RetryReport, error) {
	from, to, err := s.hours(since, until)
	if err != nil {
		return forebay.RetryReport{}, err
	}
	no := int64(allTenants)
	if !all {
		if no, err = s.EnsureTenant(ctx, tenant); err != nil {
			return forebay.RetryReport{}, err
		}
	}
	var b reportBuilder
	err = s.Read(ctx, func(c driver.Conn) error {
		b = newReport(from, to)
		return c.Prep(sqlReportHours).Int(no).Int(from).Int(to).Each(func(r driver.Row) error {
			b.add(hourKey{no, r.Int(0), r.Text(1), r.Text(2), int(r.Int(3)), forebay.Outcome(r.Text(4)), forebay.ErrorClass(r.Text(5)), r.Text(6)}, hourSum{attempts: r.Int(7), retries: r.Int(8)})
			return nil
		})
	})
	return b.finish(), err
}

type failureKey struct {
	name  string
	class forebay.ErrorClass
	code  string
}

type reportBuilder struct {
	report      forebay.RetryReport
	attempts    map[int]*forebay.AttemptCount
	errors      map[failureKey]*forebay.ErrorRetries // without names
	deployments map[failureKey]int64
	tasks       map[failureKey]int64
	hours       map[int64]*forebay.HourCount
}

func newReport(from, to int64) reportBuilder {
	return reportBuilder{
		report: forebay.RetryReport{Since: driver.FromMillis(from * hourMillis), Until: driver.FromMillis(to * hourMillis),
			ByAttempt: []forebay.AttemptCount{}, ByHour: []forebay.HourCount{}},
		attempts: map[int]*forebay.AttemptCount{}, errors: map[failureKey]*forebay.ErrorRetries{},
		deployments: map[failureKey]int64{}, tasks: map[failureKey]int64{}, hours: map[int64]*forebay.HourCount{},
	}
}

func (b *reportBuilder) add(key hourKey, sum hourSum) {
	count := sum.attempts
	b.report.Attempts += count
	failed := true
	switch key.outcome {
	case forebay.OutcomeSucceeded:
		b.report.Succeeded += count
		b.report.JobsRetriedSucceeded += sum.retries
		failed = false
	case forebay.OutcomeCancelled:
		b.report.Cancelled += count
		failed = false
	case forebay.OutcomeRetried:
		b.report.Retried += count
		b.report.JobsRetried += count - sum.retries // the first of a generation
	case forebay.OutcomeFailed:
		b.report.Failed += count
		b.report.JobsRetriedFailed += sum.retries
	case forebay.OutcomeThrottled:
		b.report.Throttled += count
	case forebay.OutcomeLost:
		b.report.Lost += count
	}
	hour := entry(b.hours, key.hour)
	hour.Attempts += count
	byNumber := entry(b.attempts, key.number)
	switch {
	case key.outcome == forebay.OutcomeSucceeded:
		byNumber.Succeeded += count
	case failed:
		byNumber.Failed += count
		hour.Failed += count
		b.deployments[failureKey{key.deployment, key.class, key.code}] += count
		b.tasks[failureKey{key.task, key.class, key.code}] += count
		byError := entry(b.errors, failureKey{"", key.class, key.code})
		byError.Failed += count
		if key.outcome == forebay.OutcomeRetried {
			byError.Retried += count
		}
	}
	if key.outcome == forebay.OutcomeThrottled {
		hour.Throttled += count
	}
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
		count.Hour = driver.FromMillis(hour * hourMillis)
		b.report.ByHour = append(b.report.ByHour, *count)
	}
	slices.SortFunc(b.report.ByHour, func(x, y forebay.HourCount) int { return x.Hour.Compare(y.Hour) })
	b.report.ByError = []forebay.ErrorRetries{}
	for key, count := range b.errors {
		if count.Class, count.Code = key.class, key.code; count.Failed > 0 {
			b.report.ByError = append(b.report.ByError, *count)
		}
	}
	slices.SortFunc(b.report.ByError, func(x, y forebay.ErrorRetries) int {
		return cmp.Or(cmp.Compare(y.Failed, x.Failed), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Class, y.Class))
	})
	b.report.ByDeployment = ranked(b.deployments)
	b.report.ByTask = ranked(b.tasks)
	return b.report
}

func ranked(counts map[failureKey]int64) []forebay.ErrorCount {
	list := []forebay.ErrorCount{}
	for key, n := range counts {
		if n > 0 { // a worker may have moved it to another sum
			list = append(list, forebay.ErrorCount{Name: key.name, Class: key.class, Code: key.code, Count: n})
		}
	}
	slices.SortFunc(list, func(x, y forebay.ErrorCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Code, y.Code))
	})
	return list
}
