package db

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// Commit is one transaction of the writer, once it is over.
type Commit struct {
	Operations int           // of callers: submits, settlements, changes, and claims that it served
	Duration   time.Duration // from BEGIN to the end of COMMIT
	Err        error         // of one that was rolled back
	RoundTrips int64         // to a database server, but for those that prepare statements
}

// JobTally counts what a transaction made of jobs.
type JobTally struct {
	Succeeded, Failed, Cancelled, Expired int // jobs that ended
	// Attempts that ended without their worker: lost with it, or to a stop; or cut off by a cancel.
	AttemptsLost, AttemptsCancelled int
}

// Count adds a job that ended.
func (c *JobTally) Count(status forebay.Status) {
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

// CountAttempt adds an attempt, if no worker will report it.
func (c *JobTally) CountAttempt(outcome forebay.Outcome) {
	switch outcome {
	case forebay.OutcomeLost:
		c.AttemptsLost++
	case forebay.OutcomeCancelled:
		c.AttemptsCancelled++
	}
}

// observed tells whoever watches how a transaction went that began at that time.
func (w *Writer) observed(t *Tx, began time.Time, err error) {
	w.health.noteTransaction(w.Conn.UserError(err))
	c := Commit{Operations: len(t.batch) + t.Served, Duration: time.Since(began), Err: err}
	if server, ok := w.Conn.Driver.(*postgres.Conn); ok {
		c.RoundTrips = server.RoundTrips() - t.tripsBefore
	}
	w.watches.commits.Notify(c)
}
