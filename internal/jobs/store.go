package jobs

import (
	"sync/atomic"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps jobs.
type Store struct {
	*queue.Store
	Admission     *admission.Store
	Audited       []forebay.EventType         // types of events that the audit log gets
	Process       atomic.Int64                // numbers this one, where several share the database; 0: it does not
	MaxReplyBytes atomic.Int64                // of one plain message; 0: forebay.MaxReplyBytes, which bounds a reply too
	ended         []func(*db.Tx, Ended) error // called within the transaction that ends a job
	redriven      []func(t *db.Tx, seq int64) error
	tallies       db.Listener[events.Tally]
	reader        *record.Reader
	cancelled     db.Listener[int64] // tokens of locks that a cancel in another process voided
}

func (s *Store) Attach(d *db.DB) { s.reader = record.NewReader(d) }

func (s *Store) Join(w *db.Writer) {
	admission := admission.Key.In(w)
	p := newJobsPart(w, queue.Key.In(w), admission, s)
	admission.Jobs = p
	Key.Join(w, p)
}

func (s *Store) Received(n *db.Notification) {
	n.Each(wordCancelled, func(token, _, _ int64) { s.cancelled.Notify(token) })
}

// OnJobsChanged sets the function that is called with what each transaction of this process did
// to jobs. It runs on the writer's goroutine, so it must be quick.
func (s *Store) OnJobsChanged(f func(events.Tally)) { s.tallies.Set(f) }

// Ended is a generation of a job that has ended.
type Ended struct {
	Seq           int64
	Task          string
	Status        forebay.Status
	Generation    int
	Failure       Failure
	CorrelationID string // of the job itself; "": none
	Result        []byte // of a job that has succeeded, if it is in the database
	Uncalled      bool   // it is known to be no activity of an orchestration
}

// WhenEnded has f called in each transaction that ends a generation of a job, before anything
// else is done about it. Each domain calls it at most once, before the database is opened.
func (s *Store) WhenEnded(f func(*db.Tx, Ended) error) { s.ended = append(s.ended, f) }

// WhenRedriven is WhenEnded for a job that is redriven.
func (s *Store) WhenRedriven(f func(t *db.Tx, seq int64) error) { s.redriven = append(s.redriven, f) }

// OnCancelled sets the function that is called with the token of each lock that a cancel in
// another process voided.
func (s *Store) OnCancelled(f func(token int64)) { s.cancelled.Set(f) }

var Key = db.NewKey(newJobsTx)
