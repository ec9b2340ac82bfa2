package telemetry

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// Committed counts a transaction of the store's writer.
func (t *Telemetry) Committed(c db.Commit) {
	m := t.metrics
	if m == nil {
		return
	}
	m.commitDuration.record(c.Duration.Seconds())
	if c.Err != nil {
		m.commitFailures.add(1)
		return
	}
	m.commitOperations.record(float64(c.Operations))
}

// JobsChanged hears of what those transactions made of jobs.
func (t *Telemetry) JobsChanged(c events.Tally) {
	m := t.metrics
	if m == nil {
		return
	}
	ended := func(status forebay.Status, n int) {
		if n > 0 {
			m.ended.of(string(status)).add(float64(n))
		}
	}
	ended(forebay.StatusSucceeded, c.Succeeded)
	ended(forebay.StatusFailed, c.Failed)
	ended(forebay.StatusCancelled, c.Cancelled)
	ended(forebay.StatusExpired, c.Expired)
	replies := func(outcome string, n int) {
		if n > 0 {
			m.replies.of(outcome).add(float64(n))
		}
	}
	replies(replySent, c.Answered)
	replies(replyFailed, c.Unanswered)
	attempts := func(outcome forebay.Outcome, n int) {
		if n > 0 {
			m.attempts.of(attemptLabels{outcome: string(outcome)}).add(float64(n))
		}
	}
	attempts(forebay.OutcomeLost, c.AttemptsLost)
	attempts(forebay.OutcomeCancelled, c.AttemptsCancelled)
}

// ActivitiesLost counts attempts of activities whose worker never reported back.
func (t *Telemetry) ActivitiesLost(n int) {
	if m := t.metrics; m != nil {
		m.activities.of(functionLabels{result: orchestrate.ActivityLost}).add(float64(n))
	}
}
