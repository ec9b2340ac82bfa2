package store

// writerFor returns who stores these jobs: the writer beside the first, if they only add rows. While claims wait for jobs
// that are not there, the first writer stores them, for it hands them over in the same transaction. The turn of a job of a session depends on others, and one that an orchestration calls changes rows.
func (s *JobStore) writerFor(jobs []NewJob) *writer {
	if s.beside == nil {
		return s.writer
	}
	wanted := jobsKey.in(s.writer).wanted.Load()
	for i := range jobs {
		if jobs[i].SessionID != "" || jobs[i].Caller != nil || wanted != nil && (*wanted)[SubqueueOf(jobs[i].Queue, SubqueueMain)] {
			return s.writer
		}
	}
	return s.beside
}
