// Package history reads what has happened to a job: its attempts and its events. Some of it has
// no rows of its own. It follows from the job, its message and its outcome.
package history

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// SQLAttempts reads the attempts of job ?1 that are over.
const SQLAttempts = `
SELECT number, generation, deployment, started_at, finished_at, outcome, error_class, error_code, error_message,
  input_tokens, output_tokens, cost, retry_delay FROM attempts WHERE seq = ?1 ORDER BY generation, number LIMIT 10000`

// SQLRunning reads the attempt of job ?1 that runs at ?2, if one does.
const SQLRunning = `
SELECT number, generation, deployment, locked_at FROM messages WHERE seq = ?1 AND lock_token IS NOT NULL AND visible_at + 0 > ?2`

// Attempts returns the attempts of a job, oldest first. One that runs is the last.
func Attempts(c driver.Conn, seq int64) (attempts []forebay.Attempt, err error) {
	err = c.Prep(SQLAttempts).Int(seq).Each(func(r driver.Row) error {
		a := forebay.Attempt{
			Number: int(r.Int(0)), Generation: int(r.Int(1)), Deployment: r.Text(2),
			StartedAt: driver.FromMillis(r.Int(3)), FinishedAt: driver.FromMillis(r.Int(4)), Outcome: forebay.Outcome(r.Text(5)),
			Usage: forebay.TokenUsage{InputTokens: r.Int(9), OutputTokens: r.Int(10)}, CostUSD: forebay.Money(r.Int(11)),
			RetryDelaySeconds: secondsOrNil(r, 12),
		}
		if !r.IsNull(6) {
			class, code, message := forebay.ErrorClass(r.Text(6)), r.Text(7), string(r.Blob(8))
			a.ErrorClass, a.ErrorCode, a.ErrorMessage = &class, &code, &message
		}
		attempts = append(attempts, a)
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, err = c.Prep(SQLRunning).Int(seq).Int(c.Now()).One(func(r driver.Row) {
		attempts = append(attempts, forebay.Attempt{Number: int(r.Int(0)), Generation: int(r.Int(1)), Deployment: r.Text(2),
			StartedAt: driver.FromMillis(r.Int(3)), Outcome: forebay.OutcomeRunning})
	})
	return attempts, err
}

// SQLEvents reads the first ?3 events of job ?1 numbered above ?2.
const SQLEvents = `
SELECT number, type, at, status, generation, attempt, error_class, error_code, retry_delay FROM events WHERE seq = ?1 AND number > ?2
UNION ALL
SELECT 1, 'accepted', created_at, CASE WHEN scheduled_at > created_at THEN 'scheduled' ELSE 'queued' END, 1, 0, NULL, NULL, NULL
FROM jobs WHERE seq = ?1 AND ?2 < 1
UNION ALL
SELECT 2, 'started', at, 'running', 1, 1, NULL, NULL, NULL
FROM (SELECT coalesce((SELECT started_at FROM messages WHERE seq = ?1 AND generation = 1), (SELECT started_at FROM outcomes WHERE seq = ?1 AND generation = 1)) AS at) AS first
WHERE at IS NOT NULL AND ?2 < 2 AND NOT EXISTS (SELECT 1 FROM events WHERE seq = ?1 AND number = 2)
UNION ALL
SELECT version, 'succeeded', completed_at, status, generation,
  (SELECT max(number) FROM attempts a WHERE a.seq = o.seq AND a.generation = o.generation), NULL, NULL, NULL
FROM outcomes o WHERE seq = ?1 AND status = 'succeeded' AND version > ?2
ORDER BY 1 LIMIT ?3 + 0`

// Events returns a job's events numbered above after, oldest first, at most limit.
func Events(c driver.Conn, seq, after int64, limit int) (events []forebay.Event, err error) {
	err = c.Prep(SQLEvents).Int(seq).Int(after).Int(int64(limit)).Each(func(r driver.Row) error {
		e := forebay.Event{
			Number: r.Int(0), Type: forebay.EventType(r.Text(1)), At: driver.FromMillis(r.Int(2)), Status: forebay.Status(r.Text(3)),
			Generation: int(r.Int(4)), Attempt: int(r.Int(5)), ErrorCode: r.Text(7), RetryDelaySeconds: secondsOrNil(r, 8),
		}
		if !r.IsNull(6) {
			class := forebay.ErrorClass(r.Text(6))
			e.ErrorClass = &class
		}
		events = append(events, e)
		return nil
	})
	return events, err
}

func secondsOrNil(r driver.Row, i int) *float64 {
	if r.IsNull(i) {
		return nil
	}
	seconds := float64(r.Int(i)) / 1000
	return &seconds
}
