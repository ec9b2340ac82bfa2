package store

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// Where processes share a database, a second writer stores new jobs beside the first: on a connection of
// its own, in transactions that need not be alone, for they only add rows. It tells the first writer, as it
// tells other processes, what has become ready. So submissions do not wait for claims and settlements, nor
// those for them, and the server has two processors' work. While claims wait for jobs that are not there,
// the first writer stores them, for it hands them over in the same transaction.

// startSubmitter begins to store new jobs through a connection of its own.
func (s *Store) startSubmitter(c conn, share func(*news)) (err error) {
	w, err := newWriter(c, &s.watches, false, func(n *news) {
		s.writer.mail.put(n)
		share(n)
	})
	if err != nil {
		c.Close()
		return c.domainError(err)
	}
	w.apart, w.polling, w.audited, w.topics, w.company = true, forever, s.writer.audited, &s.topics, s.writer.company
	clear(w.lines) // nobody waits here
	clear(w.dueAt)
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
	wanted := s.writer.wanted.Load()
	for i := range jobs {
		if jobs[i].SessionID != "" || jobs[i].Caller != nil || wanted != nil && (*wanted)[int64(SubqueueOf(jobs[i].Queue, SubqueueMain))] {
			return s.writer
		}
	}
	return s.submitter
}

// noteWanted tells in which subqueues claims wait for jobs that are not there.
func (w *writer) noteWanted() {
	if w.share == nil {
		return
	}
	var now map[int64]bool
	for subqueue, claims := range w.parked {
		_, blocked := w.blocked[subqueue]
		if subqueue >= 0 && Subqueue(subqueue).Kind() == SubqueueMain && !blocked && slices.ContainsFunc(claims, func(c *claim) bool { return c.receive == nil && c.waits() }) {
			if now == nil {
				now = map[int64]bool{}
			}
			now[subqueue] = true
		}
	}
	if before := w.wanted.Load(); before == nil || !maps.Equal(*before, now) {
		w.wanted.Store(&now)
	}
}

// errNotAlone ends a transaction that turns out to need more than to add rows: it is made again, alone.
var errNotAlone = errors.New("the transaction must be alone")

// takesAnother reports whether the next try of a transaction that failed may be a success: it is to be alone,
// or another, beside it, has stored the same idempotency key, or wants to, which the next finds (PostgreSQL's
// manual, appendix A).
func takesAnother(err error) bool {
	const uniqueViolation, deadlockDetected = "23505", "40P01"
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return errors.Is(err, errNotAlone)
	}
	return refused.Code == deadlockDetected || refused.Code == uniqueViolation && refused.TableName == "idempotency"
}

// mailbox keeps news for a writer until it takes them.
type mailbox struct {
	mu   sync.Mutex
	news *news
	kick chan struct{}
}

func (m *mailbox) put(n *news) {
	m.mu.Lock()
	if m.news == nil {
		m.news = &news{}
	}
	m.news.add(n)
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// take returns what has come; nil: nothing.
func (m *mailbox) take() *news {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.news
	m.news = nil
	return n
}
