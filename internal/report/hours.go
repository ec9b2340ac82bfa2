package report

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// hourMillis is the length of the hour that a sum counts.
const hourMillis = int64(time.Hour / time.Millisecond)

// maxSummedNumber stands for all higher numbers of attempts.
const maxSummedNumber = 100

// maxHourCodes is how many error codes are told apart of a tenant in an hour, since what is
// called can make up any number. All others count as otherCode.
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

// hourSum counts attempts, and those among them of jobs that were retried before. It adds up what
// the calls used.
type hourSum struct {
	attempts, retries int64
	use               Use
}

func (s hourSum) plus(o hourSum) hourSum {
	return hourSum{s.attempts + o.attempts, s.retries + o.retries, s.use.plus(o.use, 1)}
}

// Use is what calls used.
type Use struct {
	Input, Output int64 // tokens
	Assumed       int64 // tokens held for calls whose use nobody knows
	Cost          forebay.Money
}

func (u Use) plus(o Use, times int64) Use {
	return Use{u.Input + times*o.Input, u.Output + times*o.Output, u.Assumed + times*o.Assumed, u.Cost + forebay.Money(times)*o.Cost}
}

// Attempt is an attempt as reports count it.
type Attempt struct {
	Tenant     int64
	FinishedAt int64 // in milliseconds
	Task       string
	Deployment string
	Number     int
	Outcome    forebay.Outcome
	Class      forebay.ErrorClass
	Code       string
	Retried    bool // its job was retried before
	Use        Use
}

// Count adds an attempt n times; n is -1 for one that another call replaces.
func (t *Tx) Count(a Attempt, n int64) {
	key := hourKey{a.Tenant, a.FinishedAt / hourMillis, a.Task, a.Deployment, min(a.Number, maxSummedNumber), a.Outcome, a.Class, a.Code}
	sum := t.hours[key]
	sum.attempts += n
	if a.Retried {
		sum.retries += n
	}
	sum.use = sum.use.plus(a.Use, n)
	if t.hours == nil {
		t.hours = map[hourKey]hourSum{}
	}
	t.hours[key] = sum
}

const (
	sqlAddHourValues = "INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, part, " +
		"attempts, retries, input_tokens, output_tokens, assumed_tokens, cost) "
	sqlAddHourSums = ` ON CONFLICT (tenant, hour, task, deployment, number, outcome, error_class, error_code, part)
  DO UPDATE SET attempts = attempt_hours.attempts + excluded.attempts, retries = attempt_hours.retries + excluded.retries,
  input_tokens = attempt_hours.input_tokens + excluded.input_tokens, output_tokens = attempt_hours.output_tokens + excluded.output_tokens,
  assumed_tokens = attempt_hours.assumed_tokens + excluded.assumed_tokens, cost = attempt_hours.cost + excluded.cost`
)

// A transaction has each key once, as ON CONFLICT requires of the rows of one statement.
var sqlAddHour = driver.BatchForm(sqlAddHourValues+"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+sqlAddHourSums,
	sqlAddHourValues+"SELECT p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15 FROM %s"+sqlAddHourSums)

// sqlFoldHour adds a part of a sum to part 0. Nothing else changes the part before it is deleted,
// for transactions that count attempts exclude each other.
const (
	sqlFoldHour = sqlAddHourValues + `SELECT tenant, hour, task, deployment, number, outcome, error_class, error_code, 0,
  attempts, retries, input_tokens, output_tokens, assumed_tokens, cost FROM attempt_hours` + whereHour + sqlAddHourSums
	sqlDeleteHour = "DELETE FROM attempt_hours" + whereHour
	whereHour     = ` WHERE tenant = ? AND hour = ? AND task = ? AND deployment = ? AND number = ? AND outcome = ? AND error_class = ?
  AND error_code = ? AND part = ?`
)

func (k hourKey) bind(st driver.Statement, part int64) driver.Statement {
	return st.Int(k.tenant).Int(k.hour).Text(k.task).Text(k.deployment).Int(int64(k.number)).Text(string(k.outcome)).
		Text(string(k.class)).Text(k.code).Int(part)
}

// allTenants is the number under which sums of all tenants together are kept.
const allTenants = 0

// store writes the sums of the transaction.
func (t *Tx) store() error {
	sums := make(map[hourKey]hourSum, 2*len(t.hours))
	days := map[dayKey]daySum{}
	if err := t.foresee(); err != nil {
		return err
	}
	for key, sum := range t.hours {
		if sum == (hourSum{}) {
			continue
		}
		code := key.code
		for _, tenant := range []int64{key.tenant, allTenants} {
			var err error
			key.tenant = tenant
			if key.code, err = t.code(tenantHour{tenant, key.hour}, code); err != nil {
				return err
			}
			sums[key] = sums[key].plus(sum)
			day := key.hour / dayHours
			if placeOf(day, tenant) > t.w.made.last {
				continue
			}
			for _, day := range []dayKey{{tenant, detailed, day, key.task, key.deployment}, {tenant, undetailed, day, "", ""}} {
				days[day] = days[day].plus(key.outcome, sum)
			}
		}
	}
	for key, sum := range sums {
		err := key.bind(t.Prep(sqlAddHour), t.w.hours.of(key, t.Now)).Int(sum.attempts).Int(sum.retries).
			Int(sum.use.Input).Int(sum.use.Output).Int(sum.use.Assumed).Int(int64(sum.use.Cost)).Exec()
		if err != nil {
			return err
		}
	}
	for _, full := range t.w.hours.fold(t.Now / hourMillis) {
		for _, sql := range []string{sqlFoldHour, sqlDeleteHour} {
			if err := full.key.bind(t.Prep(sql), full.no).Exec(); err != nil {
				return err
			}
		}
	}
	return t.storeDays(days)
}

// tenantHour is an hour of a tenant.
type tenantHour struct{ tenant, hour int64 }

// maxKnownHours is of how many hours of tenants a writer remembers the codes.
const maxKnownHours = 1000

const sqlHourCodes = "SELECT DISTINCT error_code FROM attempt_hours WHERE tenant = ? AND hour = ? AND error_code <> ''"

// lacks reports whether the codes of an hour are to be read, to know whether it has this one.
func (t *Tx) lacks(of tenantHour, code string) bool {
	known := t.w.codes[of]
	return code != "" && code != otherCode && !known[code] && len(known) < maxHourCodes && (known == nil || t.w.Shared() && !t.read[of])
}

// foresee reads what the sums lack of the codes of their hours and of what days have sums, all at
// once.
func (t *Tx) foresee() (err error) {
	var asks []driver.Prefetch
	for key, sum := range t.hours {
		for _, tenant := range []int64{key.tenant, allTenants} {
			if of := (tenantHour{tenant, key.hour}); sum != (hourSum{}) && t.lacks(of, key.code) {
				asks = append(asks, driver.NewPrefetch(sqlHourCodes, driver.RowName{Of: "hour codes", No: tenant, ID: key.code}).Int(tenant).Int(key.hour))
			}
		}
	}
	lacksMade := t.lacksMade()
	if lacksMade {
		asks = append(asks, driver.NewPrefetch(sqlMade, driver.RowName{Of: "counter", ID: madeCounter}).Text(madeCounter))
	}
	if err = t.Prefetch(asks); err == nil && lacksMade {
		t.w.made.hour = t.Now / hourMillis
		t.w.made.last, err = readMade(t.Prep)
	}
	return err
}

// code returns the code under which attempts of an hour are counted. The writer's memory may have
// codes of a failed transaction and lack those of other processes. It is read again only for a
// code that it lacks, and once in a transaction.
func (t *Tx) code(of tenantHour, code string) (string, error) {
	known := t.w.codes[of]
	if code == "" || code == otherCode || known[code] {
		return code, nil
	}
	if t.lacks(of, code) {
		read := map[string]bool{}
		err := t.Prep(sqlHourCodes).Int(of.tenant).Int(of.hour).Each(func(r driver.Row) error {
			if code := r.Text(0); code != otherCode {
				read[code] = true
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		for code := range known { // codes of this transaction are not stored yet
			read[code] = true
		}
		if known = read; t.w.codes == nil || len(t.w.codes) >= maxKnownHours {
			t.w.codes = map[tenantHour]map[string]bool{}
		}
		if t.w.codes[of] = known; t.read == nil {
			t.read = map[tenantHour]bool{}
		}
		t.read[of] = true
	}
	if !known[code] && len(known) >= maxHourCodes {
		return otherCode, nil
	}
	known[code] = true
	return code, nil
}
