package telemetry

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// Committed hears of the transactions of the store's writer.
func (t *Telemetry) Committed(c store.Commit) {
	m := t.metrics
	if m == nil {
		return
	}
	m.commitDuration.Record(bare, c.Duration.Seconds())
	if c.Err != nil {
		m.commitFailures.Add(bare, 1)
		return
	}
	m.commitOperations.Record(bare, int64(c.Operations+c.Claims))
	ended := func(status forebay.Status, n int) {
		if n > 0 {
			m.ended.Add(bare, int64(n), m.byStatus.get(string(status)).add...)
		}
	}
	ended(forebay.StatusSucceeded, c.Succeeded)
	ended(forebay.StatusFailed, c.Failed)
	ended(forebay.StatusCancelled, c.Cancelled)
	ended(forebay.StatusExpired, c.Expired)
	attempts := func(outcome forebay.Outcome, n int) {
		if n > 0 {
			m.attempts.Add(bare, int64(n), m.byAttempt.get(attemptLabels{outcome: string(outcome)}).add...)
		}
	}
	attempts(forebay.OutcomeLost, c.AttemptsLost)
	attempts(forebay.OutcomeCancelled, c.AttemptsCancelled)
}
