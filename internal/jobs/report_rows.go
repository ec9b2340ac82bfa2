package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Reports are made of sums by the hour, so that what they cost does not grow with the number of attempts.
// A transaction adds up what it records and writes each sum once.

// hourMillis is the length of the time that one sum is about.
const hourMillis = int64(time.Hour / time.Millisecond)

// maxSummedNumber stands for all higher numbers of attempts.
const maxSummedNumber = 100

// maxHourCodes is how many codes of errors are told apart of a tenant in an hour: what is called may make up any number. All
// others are counted as otherCode.
const (
	maxHourCodes = 200
	otherCode    = "other"
)

// hourKey is what attempts have in common that are counted together.
type hourKey struct {
	tenant, hour     int64
	task, deployment string
	number           int
	outcome          forebay.Outcome
	class            forebay.ErrorClass
	code             string
}

// hourSum counts attempts, and those among them of jobs that were retried before.
type hourSum struct{ attempts, retries int64 }

// attempted is the call that an attempt's row is about.
type attempted struct {
	seq, tenant        int64
	task               string
	subqueue           queue.Subqueue
	generation, number int
	startedAt          int64
}

func (d *LockedJob) attempted() attempted {
	return attempted{d.Seq, d.Tenant, d.Task, d.Subqueue, d.Generation, d.Number, d.LockedAt.UnixMilli()}
}

// countHour adds an attempt that finished at that time. Only the retry subqueue has jobs that were retried.
func (t *Tx) countHour(c attempted, finishedAt int64, a AttemptRecord, n int64) {
	key := hourKey{c.tenant, finishedAt / hourMillis, c.task, Bounded(a.Deployment), min(c.number, maxSummedNumber), a.Outcome, a.ErrorClass, Bounded(a.ErrorCode)}
	sum := t.hours[key]
	sum.attempts += n
	if c.subqueue.Kind() == queue.SubqueueRetry {
		sum.retries += n
	}
	if t.hours == nil {
		t.hours = map[hourKey]hourSum{}
	}
	t.hours[key] = sum
}

const (
	sqlAddHourValues = "INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries) "
	sqlAddHourSums   = ` ON CONFLICT (tenant, hour, task, deployment, number, outcome, error_class, error_code)
  DO UPDATE SET attempts = attempt_hours.attempts + excluded.attempts, retries = attempt_hours.retries + excluded.retries`
)

// A transaction has each key once, as ON CONFLICT asks of the rows of one statement.
var sqlAddHour = driver.BatchForm(sqlAddHourValues+"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+sqlAddHourSums,
	sqlAddHourValues+"SELECT p1, p2, p3, p4, p5, p6, p7, p8, p9, p10 FROM %s"+sqlAddHourSums)

// storeHours writes the sums of the transaction.
func (t *Tx) storeHours() error {
	sums := make(map[hourKey]hourSum, len(t.hours))
	for key, sum := range t.hours {
		var err error
		if key.code, err = t.hourCode(key); err != nil {
			return err
		}
		all := sums[key]
		sums[key] = hourSum{all.attempts + sum.attempts, all.retries + sum.retries}
	}
	for key, sum := range sums {
		err := t.Prep(sqlAddHour).Int(key.tenant).Int(key.hour).Text(key.task).Text(key.deployment).Int(int64(key.number)).Text(string(key.outcome)).
			Text(string(key.class)).Text(key.code).Int(sum.attempts).Int(sum.retries).Exec()
		if err != nil {
			return err
		}
	}
	return nil
}

// tenantHour is an hour of a tenant.
type tenantHour struct{ tenant, hour int64 }

// maxKnownHours is of how many hours of tenants a writer remembers the codes.
const maxKnownHours = 1000

const sqlHourCodes = "SELECT DISTINCT error_code FROM attempt_hours WHERE tenant = ? AND hour = ? AND error_code <> ''"

// hourCode returns the code under which the attempts are counted. What the writer remembers may hold codes of a transaction
// that failed, and lack those of other processes. Only a code that it lacks has it look.
func (t *Tx) hourCode(key hourKey) (string, error) {
	of := tenantHour{key.tenant, key.hour}
	known := t.w.hourCodes[of]
	if key.code == "" || key.code == otherCode || known[key.code] {
		return key.code, nil
	}
	if len(known) < maxHourCodes && (known == nil || t.w.Shared()) {
		read := map[string]bool{}
		err := t.Prep(sqlHourCodes).Int(key.tenant).Int(key.hour).Each(func(r driver.Row) error {
			if code := r.Text(0); code != otherCode {
				read[code] = true
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		for code := range known { // those of this transaction are not stored yet
			read[code] = true
		}
		if known = read; t.w.hourCodes == nil || len(t.w.hourCodes) >= maxKnownHours {
			t.w.hourCodes = map[tenantHour]map[string]bool{}
		}
		t.w.hourCodes[of] = known
	}
	if !known[key.code] && len(known) >= maxHourCodes {
		return otherCode, nil
	}
	known[key.code] = true
	return key.code, nil
}

// forgetHours is how many hours of a tenant one transaction forgets.
const forgetHours = 1000

const sqlForgetHours = `DELETE FROM attempt_hours WHERE tenant = ?1 AND hour < ?2
  AND hour <= (SELECT max(h.hour) FROM (SELECT hour FROM attempt_hours WHERE tenant = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0) h)`

// ForgetAttemptHours removes the sums of hours that were over before that time.
func (s *Store) ForgetAttemptHours(ctx context.Context, before time.Time) error {
	var tenants []int64
	err := s.Read(ctx, func(c driver.Conn) error {
		tenants = nil
		return c.Prep("SELECT no FROM tenants ORDER BY no").Each(func(r driver.Row) error { tenants = append(tenants, r.Int(0)); return nil })
	})
	for _, tenant := range tenants {
		for more := true; err == nil && more; {
			more, err = s.forgetHours(ctx, tenant, before.UnixMilli()/hourMillis)
		}
	}
	return err
}

func (s *Store) forgetHours(ctx context.Context, tenant, before int64) (more bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		more, err = c.Prep("SELECT 1 FROM attempt_hours WHERE tenant = ? AND hour < ? LIMIT 1").Int(tenant).Int(before).One(func(driver.Row) {})
		return err
	})
	if err != nil || !more {
		return false, err
	}
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) {
		return true, t.Prep(sqlForgetHours).Int(tenant).Int(before).Int(forgetHours).Exec()
	})
}

const sqlReportHours = `SELECT hour, task, deployment, number, outcome, error_class, error_code, attempts, retries
FROM attempt_hours WHERE tenant = ? AND hour >= ? AND hour < ?`

// RetryReport counts the tenant's attempts that finished in the hours from the one of since to the one
// before until, or to that of until if it is not a whole hour.
func (s *Store) RetryReport(ctx context.Context, tenant int64, since, until time.Time) (forebay.RetryReport, error) {
	from, to := since.UnixMilli()/hourMillis, (until.UnixMilli()+hourMillis-1)/hourMillis
	var b reportBuilder
	err := s.Read(ctx, func(c driver.Conn) error {
		b = newReport(from, to)
		return c.Prep(sqlReportHours).Int(tenant).Int(from).Int(to).Each(func(r driver.Row) error {
			b.add(hourKey{tenant, r.Int(0), r.Text(1), r.Text(2), int(r.Int(3)), forebay.Outcome(r.Text(4)), forebay.ErrorClass(r.Text(5)), r.Text(6)}, hourSum{r.Int(7), r.Int(8)})
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
	deployments map[failureKey]int64
	tasks       map[failureKey]int64
	hours       map[int64]*forebay.HourCount
}

func newReport(from, to int64) reportBuilder {
	return reportBuilder{
		report: forebay.RetryReport{Since: driver.FromMillis(from * hourMillis), Until: driver.FromMillis(to * hourMillis),
			ByAttempt: []forebay.AttemptCount{}, ByHour: []forebay.HourCount{}},
		attempts:    map[int]*forebay.AttemptCount{},
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
		b.report.JobsRetried += count - sum.retries // a generation's first
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
	b.report.ByDeployment = ranked(b.deployments)
	b.report.ByTask = ranked(b.tasks)
	return b.report
}

func ranked(counts map[failureKey]int64) []forebay.ErrorCount {
	list := []forebay.ErrorCount{}
	for key, n := range counts {
		if n > 0 { // what a worker added later is counted elsewhere
			list = append(list, forebay.ErrorCount{Name: key.name, Class: key.class, Code: key.code, Count: n})
		}
	}
	slices.SortFunc(list, func(x, y forebay.ErrorCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Code, y.Code))
	})
	return list
}
