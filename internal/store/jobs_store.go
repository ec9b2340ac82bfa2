package store

import "github.com/forebayhq/forebay"

// JobStore keeps jobs.
type JobStore struct {
	*QueueStore
	admission *AdmissionStore
	audited   []forebay.EventType      // events that the audit log is to have
	ended     []func(*tx, Ended) error // called within the transaction that ends a job
	redriven  []func(t *tx, seq int64) error
	tallies   listener[JobTally]
	cancelled listener[int64] // tokens of locks that a cancel in another process voided
}

func (s *JobStore) attach(*DB) {}

func (s *JobStore) join(w *writer) {
	admission := admissionKey.in(w)
	p := newJobsPart(w, queueKey.in(w), admission, s)
	admission.jobs = p
	jobsKey.join(w, p)
}

func (s *JobStore) received(n *notification) {
	n.each(wordCancelled, func(token, _, _ int64) { s.cancelled.tell(token) })
}

// OnJobsChanged makes f hear what each transaction of this process made of jobs. It runs on the goroutine that made it,
// so it must be quick.
func (s *JobStore) OnJobsChanged(f func(JobTally)) { s.tallies.set(f) }

// Ended is a generation of a job that has ended.
type Ended struct {
	Seq        int64
	Status     forebay.Status
	Generation int
	Failure    Failure
	Uncalled   bool // it is known to be no activity of an orchestration
}

// WhenEnded has f called in each transaction that ends a generation of a job, before anything else of the database is
// told. It is called once for each domain that has to know, before the database is opened.
func (s *JobStore) WhenEnded(f func(*tx, Ended) error) { s.ended = append(s.ended, f) }

// WhenRedriven is WhenEnded for a job that is sent back.
func (s *JobStore) WhenRedriven(f func(t *tx, seq int64) error) { s.redriven = append(s.redriven, f) }

// OnCancelled makes f hear of the locks that a cancel in another process voided.
func (s *JobStore) OnCancelled(f func(token int64)) { s.cancelled.set(f) }

var jobsKey = newPartKey(newJobsTx)
