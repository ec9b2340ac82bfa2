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

// hourSum counts attempts, and those among them of jobs that were retried before.
type hourSum struct{ attempts, retries int64 }

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
}

// Count adds an attempt n times; n is -1 for one that another call replaces.
func (t *Tx) Count(a Attempt, n int64) {
	key := hourKey{a.Tenant, a.FinishedAt / hourMillis, a.Task, a.Deployment, min(a.Number, maxSummedNumber), a.Outcome, a.Class, a.Code}
	sum := t.hours[key]
	sum.attempts += n
	if a.Retried {
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

// A transaction has each key once, as ON CONFLICT requires of the rows of one statement.
var sqlAddHour = driver.BatchForm(sqlAddHourValues+"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+sqlAddHourSums,
	sqlAddHourValues+"SELECT p1, p2, p3, p4, p5, p6, p7, p8, p9, p10 FROM %s"+sqlAddHourSums)

// store writes the sums of the transaction.
func (t *Tx) store() error {
	sums := make(map[hourKey]hourSum, len(t.hours))
	for key, sum := range t.hours {
		var err error
		if key.code, err = t.code(key); err != nil {
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

// code returns the code under which attempts are counted. The writer's memory may have codes of a
// failed transaction and lack those of other processes. It is read again only for a code that it
// lacks.
func (t *Tx) code(key hourKey) (string, error) {
	of := tenantHour{key.tenant, key.hour}
	known := t.w.codes[of]
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
		for code := range known { // codes of this transaction are not stored yet
			read[code] = true
		}
		if known = read; t.w.codes == nil || len(t.w.codes) >= maxKnownHours {
			t.w.codes = map[tenantHour]map[string]bool{}
		}
		t.w.codes[of] = known
	}
	if !known[key.code] && len(known) >= maxHourCodes {
		return otherCode, nil
	}
	known[key.code] = true
	return key.code, nil
}
