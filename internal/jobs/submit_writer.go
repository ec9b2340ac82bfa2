package jobs

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// writerFor returns who stores these jobs: the writer beside the first, if they only add rows. While claims wait for jobs
// that are not there, the first writer stores them, for it hands them over in the same transaction. The turn of a job of a session depends on others, and one that an orchestration calls changes rows.
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
