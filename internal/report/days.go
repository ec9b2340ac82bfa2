package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Lengths of a day, which is one of UTC.
const (
	dayHours  = 24
	dayMillis = dayHours * hourMillis
)

// dayKey is what attempts have in common that usage reports count together.
type dayKey struct {
	tenant           int64 // may be allTenants
	detail           int64 // detailed, or undetailed for all tasks and deployments together
	day              int64
	task, deployment string
}

// Values of dayKey.detail.
const (
	undetailed = 0
	detailed   = 1
)

// daySum counts attempts by how they ended, and adds up what the calls used.
type daySum struct {
	attempts, succeeded int64
	failed              int64 // retried, failed, throttled or lost
	throttled           int64
	use                 Use
}

func (s daySum) plus(outcome forebay.Outcome, o hourSum) daySum {
	s.attempts += o.attempts
	switch outcome {
	case forebay.OutcomeSucceeded:
		s.succeeded += o.attempts
	case forebay.OutcomeThrottled:
		s.throttled += o.attempts
		s.failed += o.attempts
	case forebay.OutcomeRetried, forebay.OutcomeFailed, forebay.OutcomeLost:
		s.failed += o.attempts
	}
	s.use = s.use.plus(o.use, 1)
	return s
}

// place is a day and, within it, a tenant: the order in which sums of days are made. Of all places
// up to a certain one there are sums by the day. Whatever is counted there later is added to them.
type place int64

const (
	tenantBits = 40
	lastTenant = 1<<tenantBits - 1 // no tenant has it
)

func placeOf(day, tenant int64) place { return place(day<<tenantBits | tenant) }

// wholeDay is the last day of which all tenants have their sums.
func (p place) wholeDay() int64 {
	day, tenant := p.split()
	if tenant < lastTenant {
		day--
	}
	return day
}

func (p place) split() (day, tenant int64) { return int64(p >> tenantBits), int64(p & lastTenant) }

// madeCounter is the last place that has its sums by the day. The schema's scripts name it, too.
const (
	madeCounter = "usage/days"
	sqlMade     = "SELECT value FROM counters WHERE name = ?"
	sqlSetMade  = "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

func readMade(prepare func(sql string) driver.Statement) (made place, err error) {
	made = placeOf(-1, lastTenant) // none
	_, err = prepare(sqlMade).Text(madeCounter).One(func(r driver.Row) { made = place(r.Int(0)) })
	return made, err
}

// knownPlace is what a writer remembers of the last place.
type knownPlace struct {
	last place // or an earlier one, since another process may have come further
	hour int64 // in which it was read
}

// lacksMade reports whether the transaction has to read the last place. Sums are made when a day
// has been over for an hour. So the day that runs has none, unless a clock was set back by hours.
func (t *Tx) lacksMade() bool {
	hour := t.Now / hourMillis
	if t.w.made.hour != hour {
		return true
	}
	for key := range t.hours {
		if day := key.hour / dayHours; day < hour/dayHours && placeOf(day, key.tenant) > t.w.made.last {
			return true
		}
	}
	return false
}

const (
	sqlAddDayValues = "INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost) "
	sqlAddDaySums   = ` ON CONFLICT (tenant, detail, day, task, deployment) DO UPDATE SET
  attempts = usage_days.attempts + excluded.attempts, succeeded = usage_days.succeeded + excluded.succeeded,
  failed = usage_days.failed + excluded.failed, throttled = usage_days.throttled + excluded.throttled,
  input_tokens = usage_days.input_tokens + excluded.input_tokens, output_tokens = usage_days.output_tokens + excluded.output_tokens,
  assumed_tokens = usage_days.assumed_tokens + excluded.assumed_tokens, cost = usage_days.cost + excluded.cost`
)

var sqlAddDay = driver.BatchForm(sqlAddDayValues+"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+sqlAddDaySums,
	sqlAddDayValues+"SELECT p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13 FROM %s"+sqlAddDaySums)

// storeDays adds to the sums of days that were made before.
func (t *Tx) storeDays(days map[dayKey]daySum) error {
	for key, sum := range days {
		err := t.Prep(sqlAddDay).Int(key.tenant).Int(key.detail).Int(key.day).Text(key.task).Text(key.deployment).
			Int(sum.attempts).Int(sum.succeeded).Int(sum.failed).Int(sum.throttled).
			Int(sum.use.Input).Int(sum.use.Output).Int(sum.use.Assumed).Int(int64(sum.use.Cost)).Exec()
		if err != nil {
			return err
		}
	}
	return nil
}

// tenantsMadeAtOnce is how many tenants' sums of a day one transaction makes. Others wait for it.
const tenantsMadeAtOnce = 10

const (
	sqlNextHour    = "SELECT hour FROM attempt_hours WHERE tenant = ? AND hour >= ? ORDER BY hour LIMIT 1"
	sqlNextTenants = "SELECT no FROM tenants WHERE no > ? ORDER BY no LIMIT ? + 0"
)

var (
	sqlForgetDay = driver.BatchForm("DELETE FROM usage_days WHERE tenant = ? AND detail IN (0, 1) AND day = ?",
		"DELETE FROM usage_days d USING %s WHERE d.tenant = ANY (ARRAY[p1]) AND d.detail IN (0, 1) AND d.day = p2")
	sqlMakeDetailed = sqlMakeDays("1", "task, deployment", ", task, deployment")
	sqlMakeTogether = sqlMakeDays("0", "'', ''", "")
)

// sqlMakeDays adds up the hours of a day of a tenant: ?1 is the tenant, ?2 and ?3 are the hours.
func sqlMakeDays(detail, names, groups string) string {
	sums := "hour / 24, " + names + ", " + strings.Join(usageOfHours.sums(), ", ") + " FROM attempt_hours WHERE tenant = %s AND hour >= %s AND hour < %s GROUP BY hour / 24" + groups
	return driver.BatchForm(sqlAddDayValues+"SELECT ?1, "+detail+", "+fmt.Sprintf(sums, "?1", "?2", "?3"),
		sqlAddDayValues+"SELECT p1, "+detail+", h.* FROM %s, LATERAL (SELECT "+fmt.Sprintf(sums, "p1", "p2", "p3")+") h")
}

// MakeDays makes the sums of all days that have been over for an hour from those of their hours.
// What several processes do of it at once, or again, changes nothing.
func (s *Store) MakeDays(ctx context.Context) error {
	var made place
	err := s.Read(ctx, func(c driver.Conn) (err error) {
		made, err = readMade(c.Prep)
		return err
	})
	for more := made.wholeDay() < lastOver(s.Now().UnixMilli()); err == nil && more; {
		began := time.Now()
		more, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, (*Tx).makeDays)
		if err == nil && more {
			err = s.RestAfter(ctx, began)
		}
	}
	return err
}

// lastOver is the last day that has been over for an hour.
func lastOver(now int64) int64 { return (now-hourMillis)/dayMillis - 1 }

// makeDays makes the sums of some tenants, of the next day that has any.
func (t *Tx) makeDays() (more bool, err error) {
	made, err := readMade(t.Prep)
	if err != nil {
		return false, err
	}
	day, tenant := made.split()
	var tenants []int64
	if tenant == lastTenant {
		last := lastOver(t.Now)
		day, tenant, tenants = last+1, -1, []int64{allTenants}
		_, err := t.Prep(sqlNextHour).Int(allTenants).Int((made.wholeDay() + 1) * dayHours).One(func(r driver.Row) { day = r.Int(0) / dayHours })
		if err != nil {
			return false, err
		}
		if day > last { // and no day before it has hours
			return false, t.setMade(max(made, placeOf(last, lastTenant)))
		}
	}
	read := 0
	err = t.Prep(sqlNextTenants).Int(tenant).Int(tenantsMadeAtOnce).Each(func(r driver.Row) error {
		read++
		tenants = append(tenants, r.Int(0))
		return nil
	})
	if err == nil {
		err = t.makeDay(day, tenants)
	}
	if err != nil {
		return false, err
	}
	last := int64(lastTenant)
	if read == tenantsMadeAtOnce {
		last = tenants[len(tenants)-1]
	}
	return true, t.setMade(placeOf(day, last))
}

// makeDay makes the sums of a day anew. Statements that are alike follow each other, so that
// PostgreSQL gets them as one.
func (t *Tx) makeDay(day int64, tenants []int64) error {
	for _, tenant := range tenants {
		if err := t.Prep(sqlForgetDay).Int(tenant).Int(day).Exec(); err != nil {
			return err
		}
	}
	for _, sql := range []string{sqlMakeDetailed, sqlMakeTogether} {
		for _, tenant := range tenants {
			if err := t.Prep(sql).Int(tenant).Int(day * dayHours).Int((day + 1) * dayHours).Exec(); err != nil {
				return err
			}
		}
	}
	return nil
}

// setMade stores the last place. If the transaction fails, what is remembered is too late. Then
// sums are stored that will be made anew.
func (t *Tx) setMade(made place) error {
	t.w.made.last = made
	return t.Prep(sqlSetMade).Text(madeCounter).Int(int64(made)).Exec()
}
