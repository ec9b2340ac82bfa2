package report

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// dayHours is how many hours a sum of a day counts, a day of UTC.
const dayHours = 24

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

const (
	sqlAddDayValues = "INSERT INTO usage_days (tenant, detail, day, task, deployment, part, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost) "
	sqlAddDaySums   = ` ON CONFLICT (tenant, detail, day, task, deployment, part) DO UPDATE SET
  attempts = usage_days.attempts + excluded.attempts, succeeded = usage_days.succeeded + excluded.succeeded,
  failed = usage_days.failed + excluded.failed, throttled = usage_days.throttled + excluded.throttled,
  input_tokens = usage_days.input_tokens + excluded.input_tokens, output_tokens = usage_days.output_tokens + excluded.output_tokens,
  assumed_tokens = usage_days.assumed_tokens + excluded.assumed_tokens, cost = usage_days.cost + excluded.cost`
)

var sqlAddDay = driver.BatchForm(sqlAddDayValues+"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+sqlAddDaySums,
	sqlAddDayValues+"SELECT p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14 FROM %s"+sqlAddDaySums)

// sqlFoldDay adds a part of a sum to part 0, as sqlFoldHour does.
const (
	sqlFoldDay = sqlAddDayValues + `SELECT tenant, detail, day, task, deployment, 0, attempts, succeeded, failed, throttled,
  input_tokens, output_tokens, assumed_tokens, cost FROM usage_days` + whereDay + sqlAddDaySums
	sqlDeleteDay = "DELETE FROM usage_days" + whereDay
	whereDay     = " WHERE tenant = ? AND detail = ? AND day = ? AND task = ? AND deployment = ? AND part = ?"
)

func (k dayKey) when() int64 { return k.day }

func (k dayKey) bind(st driver.Statement, part int64) driver.Statement {
	return st.Int(k.tenant).Int(k.detail).Int(k.day).Text(k.task).Text(k.deployment).Int(part)
}

func (t *Tx) storeDays(days map[dayKey]daySum) error {
	for key, sum := range days {
		err := key.bind(t.Prep(sqlAddDay), t.w.days.of(key, t.Now)).
			Int(sum.attempts).Int(sum.succeeded).Int(sum.failed).Int(sum.throttled).
			Int(sum.use.Input).Int(sum.use.Output).Int(sum.use.Assumed).Int(int64(sum.use.Cost)).Exec()
		if err != nil {
			return err
		}
	}
	for _, full := range t.w.days.fold(t.Now / hourMillis / dayHours) {
		for _, sql := range []string{sqlFoldDay, sqlDeleteDay} {
			if err := full.key.bind(t.Prep(sql), full.no).Exec(); err != nil {
				return err
			}
		}
	}
	return nil
}
