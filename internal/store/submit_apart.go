package store

import (
	"errors"
	"math"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// Where processes share a database, a second writer stores new jobs beside the first: on a connection of
// its own, in transactions that need not be alone, for they only add rows. It tells the first writer, as it
// tells other processes, what has become ready. So submissions do not wait for claims and settlements, nor
// those for them, and the server has two processors' work. While claims wait for jobs that are not there,
// the first writer stores them, for it hands them over in the same transaction.

// forever is how long a writer that nobody waits at goes without looking again.
const forever = math.MaxInt64

// startSubmitter begins to store new jobs through a connection of its own.
func (s *Store) startSubmitter(c conn, opts Options, publish func(*notification)) error {
	w := newWriter(c, &s.watches, false, func(n *notification) {
		s.writer.mail.put(n)
		publish(n)
	})
	joinAll(w, s, opts)
	if err := w.loadParts(); err != nil {
		c.Close()
		return c.domainError(err)
	}
	w.apart, w.polling, w.company = true, forever, s.writer.company
	w.health = &partHealth{name: "submitter", probe: s.checkSubmitter}
	s.health.parts = append(s.health.parts, w.health)
	s.submitter = w
	go w.run()
	return nil
}

// writerFor returns who stores these jobs. The turn of a job of a session depends on others, and one that an orchestration calls changes rows.
func (s *Store) writerFor(jobs []NewJob) *writer {
	if s.submitter == nil {
		return s.writer
	}
	wanted := jobsKey.in(s.writer).wanted.Load()
	for i := range jobs {
		if jobs[i].SessionID != "" || jobs[i].Caller != nil || wanted != nil && (*wanted)[SubqueueOf(jobs[i].Queue, SubqueueMain)] {
			return s.writer
		}
	}
	return s.submitter
}

// errNotAlone ends a transaction that turns out to need more than to add rows: it is made again, alone.
var errNotAlone = errors.New("the transaction must be alone")

// takesAnother reports whether the next try of a transaction that failed may be a success: it is to be alone,
// or another, beside it, has stored the same idempotency key, or wants to, which the next finds (PostgreSQL's
// manual, appendix A).
func (w *writer) takesAnother(err error) bool {
	const uniqueViolation, deadlockDetected = "23505", "40P01"
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return errors.Is(err, errNotAlone)
	}
	return refused.Code == deadlockDetected || refused.Code == uniqueViolation && w.racing[refused.TableName]
}

// mailbox keeps notifications for a writer until it takes them.
type mailbox struct {
	mu     sync.Mutex
	notice *notification
	kick   chan struct{}
}

func (m *mailbox) put(n *notification) {
	m.mu.Lock()
	if m.notice == nil {
		m.notice = &notification{}
	}
	m.notice.addAll(n)
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// take returns what has come; nil: nothing.
func (m *mailbox) take() *notification {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.notice
	m.notice = nil
	return n
}
