package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// How many hours a report may cover that tells hours apart, besides the one that runs. One that
// tells all tenants apart too reads each sum of each.
const (
	maxHours       = 31 * dayHours
	maxTenantHours = dayHours
)

// Usage reports on the attempts that finished in the hours of [since, until). modelOf returns the
// models that a deployment serves. A report with more than forebay.MaxUsageRows rows is refused.
func (s *Store) Usage(ctx context.Context, tenant string, q forebay.UsageQuery, modelOf func(deployment string) string) (forebay.UsageReport, error) {
	if err := q.Check(); err != nil {
		return forebay.UsageReport{}, err
	}
	from, to, err := s.hours(q.Since, q.Until)
	if err != nil {
		return forebay.UsageReport{}, err
	}
	q.Step = cmp.Or(q.Step, forebay.UsageWhole)
	if q.Step == forebay.UsageHourly && to-from > maxHours+1 {
		return forebay.UsageReport{}, forebay.Invalid("since", "must be at most %d hours before until where the step is an hour", maxHours)
	}
	u := usage{query: q, modelOf: modelOf, from: from, to: to, rows: map[usageKey]forebay.UsageSum{}}
	switch each := slices.Contains(q.By, forebay.UsageByTenant); {
	case !q.AllTenants:
		no, err := s.EnsureTenant(ctx, tenant)
		if err != nil {
			return forebay.UsageReport{}, err
		}
		u.tenants, u.names = []int64{no}, map[int64]string{no: tenant}
	case !each:
		u.tenants = []int64{allTenants}
	case q.Step == forebay.UsageHourly && to-from > maxTenantHours+1:
		return forebay.UsageReport{}, forebay.Invalid("since", "must be at most %d hours before until where both tenants and hours are told apart", maxTenantHours)
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		clear(u.rows)
		return u.read(c)
	})
	if err != nil {
		return forebay.UsageReport{}, err
	}
	return u.report(), nil
}

// hours returns the hours of a report. They include the hour of until, unless that begins then.
func (s *Store) hours(since, until time.Time) (from, to int64, err error) {
	if until.IsZero() {
		until = s.Now()
	}
	if since.IsZero() {
		since = until.Add(-span)
	}
	if !since.Before(until) {
		return 0, 0, forebay.Invalid("since", "must be before until")
	}
	return floorDiv(since.UnixMilli(), hourMillis), -floorDiv(-until.UnixMilli(), hourMillis), nil
}

// floorDiv rounds down, also below 0.
func floorDiv(a, b int64) int64 {
	n := a / b
	if a%b < 0 {
		n--
	}
	return n
}

// usage reads a report.
type usage struct {
	query    forebay.UsageQuery
	modelOf  func(deployment string) string
	from, to int64   // hours
	tenants  []int64 // whose sums are read; nil: those of each
	names    map[int64]string
	rows     map[usageKey]forebay.UsageSum
}

type usageKey struct {
	at                              int64 // hour
	tenant, task, model, deployment string
}

func (u *usage) by(dimension forebay.UsageBy) bool { return slices.Contains(u.query.By, dimension) }

// read adds up the hours of days that are not covered whole, and the days between them.
func (u *usage) read(c driver.Conn) error {
	if u.tenants == nil {
		u.names = map[int64]string{}
		err := c.Prep(sqlTenantNames).Each(func(r driver.Row) error {
			u.tenants = append(u.tenants, r.Int(0))
			u.names[r.Int(0)] = r.Text(1)
			return nil
		})
		if err != nil {
			return err
		}
	}
	firstDay, lastDay := -floorDiv(-u.from, dayHours), floorDiv(u.to, dayHours)
	made, err := readMade(c.Prep)
	if err != nil {
		return err
	}
	lastDay = min(lastDay, made.wholeDay()+1)
	hours := usageOfHours
	if u.query.Step == forebay.UsageDaily {
		hours = usageOfHoursByDay
	}
	if u.query.Step == forebay.UsageHourly || firstDay >= lastDay {
		return u.add(c, hours, u.from, u.to)
	}
	if err := u.add(c, hours, u.from, firstDay*dayHours); err != nil {
		return err
	}
	if err := u.add(c, usageOfDays, firstDay, lastDay); err != nil {
		return err
	}
	return u.add(c, hours, lastDay*dayHours, u.to)
}

// usageSource is a table of sums. It names its column of time, and what adds up to attempts, to
// those that succeeded and failed, and to those that were throttled.
type usageSource struct {
	table, time string
	detail      bool // it has sums of all tasks and deployments too
	ended       [4]string
	told        string // what its times are told apart by
	unit        int64  // how many hours that counts
}

var (
	usageOfHours = usageSource{"attempt_hours", "hour", false,
		[4]string{"attempts", attemptsThat("succeeded"), attemptsThat("retried", "failed", "throttled", "lost"), attemptsThat("throttled")}, "hour", 1}
	usageOfHoursByDay = usageSource{usageOfHours.table, usageOfHours.time, false, usageOfHours.ended, "hour / 24", dayHours}
	usageOfDays       = usageSource{"usage_days", "day", true, [4]string{"attempts", "succeeded", "failed", "throttled"}, "day", dayHours}
)

// sums add up what usage_days has in the order of its columns.
func (s *usageSource) sums() (columns []string) {
	for _, summed := range append(s.ended[:], "input_tokens", "output_tokens", "assumed_tokens", "cost") {
		columns = append(columns, "CAST(coalesce(sum("+summed+"), 0) AS BIGINT)") // PostgreSQL sums up to a wider type
	}
	return columns
}

func attemptsThat(ended ...string) string {
	return "CASE WHEN outcome IN ('" + strings.Join(ended, "', '") + "') THEN attempts ELSE 0 END"
}

const sqlTenantNames = "SELECT no, name FROM tenants ORDER BY no"

// told is what sums of a tenant are told apart by.
type told struct{ times, tasks, deployments bool }

// sqlUsage sums the use of tenant ?1 from time ?2 on and before ?3, up to ?4 rows.
func sqlUsage(source usageSource, by told) string {
	var columns, groups []string
	column := func(name string, told bool, other string) {
		if told {
			columns, groups = append(columns, name), append(groups, name)
		} else {
			columns = append(columns, other)
		}
	}
	column(source.told, by.times, "0")
	column("task", by.tasks, "''")
	column("deployment", by.deployments, "''")
	columns = append(columns, source.sums()...)
	where := " WHERE tenant = ?1"
	switch {
	case !source.detail:
	case by.tasks || by.deployments:
		where += " AND detail = 1"
	default:
		where += " AND detail = 0"
	}
	grouped := ""
	if len(groups) > 0 {
		grouped = " GROUP BY " + strings.Join(groups, ", ")
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + source.table +
		where + " AND " + source.time + " >= ?2 AND " + source.time + " < ?3" + grouped + " LIMIT ?4 + 0"
}

// tenantsAtOnce is of how many tenants sums are read in one round trip.
const tenantsAtOnce = 20

// add adds up what was used from a time of the source's on and before another.
func (u *usage) add(c driver.Conn, source usageSource, from, to int64) error {
	if from >= to {
		return nil
	}
	by := told{u.query.Step != forebay.UsageWhole, u.by(forebay.UsageByTask), u.by(forebay.UsageByDeployment) || u.by(forebay.UsageByModel)}
	sql := sqlUsage(source, by)
	for tenants := range slices.Chunk(u.tenants, tenantsAtOnce) {
		questions := make([]driver.PipelineQuery, len(tenants))
		counts := make([]int, len(tenants)) // of rows, which may become fewer when they are added up
		for i, tenant := range tenants {
			questions[i] = driver.PipelineQuery{SQL: sql, Bind: func(st driver.Statement) driver.Statement {
				return st.Int(tenant).Int(from).Int(to).Int(forebay.MaxUsageRows + 1)
			}, OnRow: func(r driver.Row) {
				counts[i]++
				u.addRow(tenant, r, source.unit)
			}}
		}
		if err := c.RunPipeline(questions); err != nil {
			return err
		}
		if len(u.rows) > forebay.MaxUsageRows || slices.Max(counts) > forebay.MaxUsageRows {
			return errTooManyRows
		}
	}
	return nil
}

func (u *usage) addRow(tenant int64, r driver.Row, unit int64) {
	sum := forebay.UsageSum{Attempts: r.Int(3), Succeeded: r.Int(4), Failed: r.Int(5), Throttled: r.Int(6),
		InputTokens: r.Int(7), OutputTokens: r.Int(8), AssumedTokens: r.Int(9), CostUSD: forebay.Money(r.Int(10))}
	if sum == (forebay.UsageSum{}) || len(u.rows) > forebay.MaxUsageRows { // nothing was called, or a worker has moved it
		return
	}
	key := u.key(tenant, r, unit)
	u.rows[key] = u.rows[key].Plus(sum)
}

var errTooManyRows = forebay.Invalid("since", "asks for more than %d rows: take a shorter time, a longer step, or less in by", forebay.MaxUsageRows)

func (u *usage) key(tenant int64, r driver.Row, unit int64) (key usageKey) {
	switch u.query.Step {
	case forebay.UsageWhole:
		key.at = u.from
	case forebay.UsageDaily:
		key.at = floorDiv(r.Int(0)*unit, dayHours) * dayHours
	default:
		key.at = r.Int(0) * unit
	}
	key.task = r.Text(1)
	if u.by(forebay.UsageByTenant) {
		key.tenant = u.names[tenant]
	}
	deployment := r.Text(2)
	if u.by(forebay.UsageByModel) {
		key.model = u.modelOf(deployment)
	}
	if u.by(forebay.UsageByDeployment) {
		key.deployment = deployment
	}
	return key
}

// report returns what was read, sorted.
func (u *usage) report() forebay.UsageReport {
	report := forebay.UsageReport{
		Since: driver.FromMillis(u.from * hourMillis), Until: driver.FromMillis(u.to * hourMillis), Step: u.query.Step, By: u.query.By, Rows: []forebay.UsageRow{},
	}
	if report.By == nil {
		report.By = []forebay.UsageBy{}
	}
	keys := slices.SortedFunc(maps.Keys(u.rows), func(a, b usageKey) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.task, b.task), cmp.Compare(a.model, b.model), cmp.Compare(a.deployment, b.deployment))
	})
	for _, key := range keys {
		row := forebay.UsageRow{Time: driver.FromMillis(key.at * hourMillis), UsageSum: u.rows[key]}
		for dimension, field := range map[forebay.UsageBy]struct {
			into  **string
			value string
		}{
			forebay.UsageByTenant: {&row.Tenant, key.tenant}, forebay.UsageByTask: {&row.Task, key.task},
			forebay.UsageByModel: {&row.Model, key.model}, forebay.UsageByDeployment: {&row.Deployment, key.deployment},
		} {
			if u.by(dimension) {
				*field.into = new(field.value)
			}
		}
		report.Rows = append(report.Rows, row)
		report.Total = report.Total.Plus(row.UsageSum)
	}
	return report
}
