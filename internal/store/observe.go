package store

import (
	"time"

	"github.com/forebayhq/forebay"
)

// Commit is one transaction of the writer, once it is over.
type Commit struct {
	Operations int           // of callers: submits, settlements, changes
	Claims     int           // that it served
	Duration   time.Duration // from BEGIN to the end of COMMIT
	Err        error         // of one that was rolled back; nothing below is then true
	Tally
}

// Tally counts what a transaction made of jobs, activities and messages.
type Tally struct {
	Succeeded, Failed, Cancelled, Expired int // jobs that ended
	// Attempts that ended without their worker: lost with it, or to a stop; or cut off by a cancel.
	AttemptsLost, AttemptsCancelled int
	ActivitiesLost                  int // attempts of activities of which nobody heard again
	Copies                          int // of messages, that topics made for their subscriptions
}

// count adds a job that ended.
func (c *Tally) count(status forebay.Status) {
	switch status {
	case forebay.StatusSucceeded:
		c.Succeeded++
	case forebay.StatusFailed:
		c.Failed++
	case forebay.StatusCancelled:
		c.Cancelled++
	case forebay.StatusExpired:
		c.Expired++
	}
}

// countAttempt adds an attempt, if no worker will report it.
func (c *Tally) countAttempt(outcome forebay.Outcome) {
	switch outcome {
	case forebay.OutcomeLost:
		c.AttemptsLost++
	case forebay.OutcomeCancelled:
		c.AttemptsCancelled++
	}
}

// observed tells whoever watches how a transaction went that began at that time.
func (w *writer) observed(t *tx, began time.Time, operations, claims int, err error) {
	w.health.noteTransaction(w.conn.domainError(err))
	w.watches.commits.tell(Commit{Operations: operations, Claims: claims, Duration: time.Since(began), Err: err, Tally: t.tally})
}
