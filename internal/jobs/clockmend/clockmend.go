// Package clockmend repairs the times of jobs after the database's clock was ahead.
package clockmend

import (
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
)

// These statements mend what a clock that was ahead has left of jobs; see clock.go of package db.
// 300000 is forebay.MaxLockDuration, and 4611686018427387904 stands for the end of time. Records
// are mended that are more than a day, 86400000, ahead. ?1 is the time. ?2 and ?3 bound the
// numbers of the rows, the first exclusively.

const (
	sqlJobMadeAhead = "SELECT 1 FROM (SELECT created_at AS at FROM jobs ORDER BY seq DESC LIMIT 1) j WHERE j.at > ?1"

	latestEvent = "FROM events e WHERE e.seq = messages.seq AND e.number = messages.version"

	// Since when jobs are dead-lettered or quarantined.
	sqlDeadLettersAhead = "UPDATE messages SET visible_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND lock_token IS NULL AND subqueue % 4 >= 2"

	// A retry or a pause whose length the latest event tells.
	sqlRetryAhead = `
UPDATE messages SET visible_at = ?1 + (SELECT e.retry_delay ` + latestEvent + `)
WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND visible_at < 4611686018427387904 AND lock_token IS NULL AND subqueue % 4 < 2
  AND EXISTS (SELECT 1 ` + latestEvent + ` AND e.at > ?1 AND messages.visible_at > ?1 + e.retry_delay)`

	// A redrive with a delay, which only its event tells.
	sqlRedriveAhead = `
UPDATE messages SET visible_at = ?1 + visible_at - (SELECT e.at ` + latestEvent + `)
WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND visible_at < 4611686018427387904 AND lock_token IS NULL AND subqueue % 4 < 2
  AND EXISTS (SELECT 1 ` + latestEvent + ` AND e.type = 'redriven' AND e.at > ?1 AND messages.visible_at >= e.at)`
	sqlNotBeforeAhead = `
UPDATE job_sessions SET not_before = ?1 + not_before - (SELECT e.at FROM messages m JOIN events e ON e.seq = m.seq AND e.number = m.version WHERE m.seq = job_sessions.seq)
WHERE seq > ?2 AND seq <= ?3 AND not_before > ?1
  AND EXISTS (SELECT 1 FROM messages m JOIN events e ON e.seq = m.seq AND e.number = m.version
    WHERE m.seq = job_sessions.seq AND e.type = 'redriven' AND e.at > ?1 AND job_sessions.not_before >= e.at)`
	sqlRedrivenAhead = `
UPDATE events SET at = ?1 WHERE type = 'redriven' AND at > ?1
  AND (seq, number) IN (SELECT m.seq, m.version FROM messages m WHERE m.seq > ?2 AND m.seq <= ?3)`

	// Anything else is ready: it was so when it was stored or given back.
	sqlReadyAhead = `
UPDATE messages SET visible_at = ?1
WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND visible_at < 4611686018427387904 AND lock_token IS NULL AND subqueue % 4 < 2
  AND coalesce(waiting, '') <> 'budget' AND coalesce(waiting, '') <> 'session'
  AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = messages.seq AND (j.scheduled_at IS NULL OR j.scheduled_at <> messages.visible_at))
  AND NOT EXISTS (SELECT 1 ` + latestEvent + `
    AND (e.type = 'redriven' OR messages.visible_at <= ?1 + e.retry_delay OR messages.visible_at <= e.at + e.retry_delay))`

	// A budget has room again when a day or a month ends, and no other time.
	sqlBudgetAhead = `
UPDATE messages SET visible_at = ?1
WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND visible_at <> ?4 AND visible_at <> ?5 AND lock_token IS NULL AND waiting = 'budget'`

	// The turn of a session comes when the lock of a cancelled call would have ended.
	sqlSessionAhead = `
UPDATE messages SET visible_at = CASE WHEN coalesce((SELECT coalesce(s.not_before, j.scheduled_at) FROM job_sessions s JOIN jobs j ON j.seq = s.seq
    WHERE s.seq = messages.seq), 0) > ?1 + 300000
  THEN (SELECT coalesce(s.not_before, j.scheduled_at) FROM job_sessions s JOIN jobs j ON j.seq = s.seq WHERE s.seq = messages.seq)
  ELSE ?1 + 300000 END
WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 + 300000 AND visible_at < 4611686018427387904 AND lock_token IS NULL AND waiting = 'session'`

	sqlLockAhead = `
UPDATE messages SET visible_at = CASE WHEN visible_at < locked_at + 300000 THEN ?1 + visible_at - locked_at ELSE ?1 + 300000 END, locked_at = ?1
WHERE seq > ?2 AND seq <= ?3 AND lock_token IS NOT NULL AND locked_at > ?1 AND visible_at > locked_at AND visible_at < 4611686018427387904`
	// The lock was renewed by a clock that was ahead.
	sqlRenewedAhead = `
UPDATE messages SET visible_at = ?1 + 300000
WHERE seq > ?2 AND seq <= ?3 AND lock_token IS NOT NULL AND visible_at > ?1 + 300000 AND visible_at < 4611686018427387904`

	sqlStartedAhead = "UPDATE messages SET started_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND started_at > ?1"

	// Records are removed by these times.
	sqlOutcomesAhead = `
UPDATE outcomes SET completed_at = ?1, started_at = CASE WHEN started_at > ?1 THEN ?1 ELSE started_at END
WHERE seq > ?2 AND seq <= ?3 AND completed_at > ?1 + 86400000`
	sqlKeysAhead = "UPDATE idempotency SET created_at = ?1 WHERE no > ?2 AND no <= ?3 AND created_at > ?1 + 86400000"

	sqlHoldsAhead = "UPDATE job_session_holds SET ends_at = ?1 + 300000 WHERE ends_at > ?1 + 300000"
)

// Jobs is what the repair does.
func Jobs() db.ClockMend {
	return db.ClockMend{MadeAhead: sqlJobMadeAhead, Few: []string{sqlHoldsAhead}, Walks: []db.ClockWalk{
		{Table: "messages", Number: "seq", Statements: []string{sqlDeadLettersAhead, sqlRetryAhead, sqlRedriveAhead, sqlNotBeforeAhead, sqlRedrivenAhead, sqlReadyAhead,
			sqlBudgetAhead, sqlSessionAhead, sqlLockAhead, sqlRenewedAhead, sqlStartedAhead},
			More: map[string]func(int64) []int64{sqlBudgetAhead: func(now int64) []int64 { return []int64{admission.PeriodEnd(0, now), admission.PeriodEnd(1, now)} }}},
		{Table: "idempotency", Number: "no", Statements: []string{sqlKeysAhead}, More: nil},
		{Table: "outcomes", Number: "seq", Statements: []string{sqlOutcomesAhead}, More: nil},
	}}
}
