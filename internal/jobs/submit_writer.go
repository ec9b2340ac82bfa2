package jobs

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// writerFor returns the writer that stores these jobs: the inserter if they only add rows. While
// claims wait in vain for such jobs, it is the main writer, which hands the jobs to them in the
// same transaction. A job with a session depends on others, and a caller's job changes rows.
func (s *Store) writerFor(jobs []NewJob) *db.Writer {
	if s.Inserter == nil {
		return s.Writer
	}
	wanted := Key.In(s.Writer).wantedSubqueues.Load()
	for i := range jobs {
		if jobs[i].SessionID != "" || jobs[i].Caller != nil || wanted != nil && (*wanted)[queue.SubqueueOf(jobs[i].Queue, queue.SubqueueMain)] {
			return s.Writer
		}
	}
	return s.Inserter
}
