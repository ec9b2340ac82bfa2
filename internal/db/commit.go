package db

import (
	"time"

	"github.com/forebayhq/forebay/internal/db/postgres"
)

// Commit is one transaction of the writer, once it is over.
type Commit struct {
	Operations int           // of callers: submits, settlements, changes, and claims that it served
	Duration   time.Duration // from BEGIN to the end of COMMIT
	Err        error         // of one that was rolled back
	RoundTrips int64         // to a database server
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
