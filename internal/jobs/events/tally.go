package events

import "github.com/forebayhq/forebay"

// Tally counts the jobs and attempts that a transaction ended.
type Tally struct {
	Succeeded, Failed, Cancelled, Expired int // jobs that ended
	// Attempts that ended without their worker: its lock expired, it stopped, or the job was
	// cancelled.
	AttemptsLost, AttemptsCancelled int
	Answered                        int          // messages whose jobs have answered them
	Unanswered                      int          // jobs whose answer could not be sent
	FirstUnanswered                 string       // the id of one of these
	FirstUnansweredBy               forebay.Code // why it could not
}

// Count adds a job that ended.
func (c *Tally) Count(status forebay.Status) {
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

// CountUnanswered adds a job whose answer could not be sent.
func (c *Tally) CountUnanswered(id string, why forebay.Code) {
	if c.Unanswered++; c.Unanswered == 1 {
		c.FirstUnanswered, c.FirstUnansweredBy = id, why
	}
}

// CountAttempt adds an attempt, if no worker will report it.
func (c *Tally) CountAttempt(outcome forebay.Outcome) {
	switch outcome {
	case forebay.OutcomeLost:
		c.AttemptsLost++
	case forebay.OutcomeCancelled:
		c.AttemptsCancelled++
	}
}
