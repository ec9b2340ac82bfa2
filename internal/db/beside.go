package db

import (
	"errors"
	"math"
	"sync"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// Where processes share a database, a second writer stores new rows beside the first. It has
// its own connection. Its transactions only add rows, so they need not be alone. It tells the
// first writer, as it tells other processes, what has become ready. So what is new does not
// wait for claims and settlements, nor those for it, and the server has two processors' work.

// forever is how long a writer that nobody waits at goes without looking again.
const forever = math.MaxInt64

// startBeside begins to store new rows through a connection of its own.
func (s *DB) startBeside(c driver.Conn, publish func(*Notification)) error {
	w := newWriter(c, &s.watches, false, func(n *Notification) {
		s.Writer.mail.put(n)
		publish(n)
	})
	for _, d := range s.domains {
		d.Join(w)
	}
	if err := w.loadParts(); err != nil {
		c.Close()
		return c.UserError(err)
	}
	w.Inserter, w.Polling, w.Parties = true, forever, s.Writer.Parties
	w.health = &partHealth{name: "submitter", probe: s.checkBeside}
	s.health.parts = append(s.health.parts, w.health)
	s.Inserter = w
	go w.run()
	return nil
}

// ErrNotAlone ends a transaction that turns out to need more than to add rows: it is made
// again, alone.
var ErrNotAlone = errors.New("the transaction must be alone")

// takesAnother reports whether the next try of a failed transaction may succeed. Either it has
// to be alone, or a concurrent one stored the same idempotency key, or is about to. The next
// try finds that key. The codes are in PostgreSQL's manual, appendix A.
func (w *Writer) takesAnother(err error) bool {
	const uniqueViolation, deadlockDetected = "23505", "40P01"
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return errors.Is(err, ErrNotAlone)
	}
	return refused.Code == deadlockDetected || refused.Code == uniqueViolation && w.Racing[refused.TableName]
}

// mailbox keeps notifications for a writer until it takes them.
type mailbox struct {
	mu     sync.Mutex
	notice *Notification
	kick   chan struct{}
}

func (m *mailbox) put(n *Notification) {
	m.mu.Lock()
	if m.notice == nil {
		m.notice = &Notification{}
	}
	m.notice.addAll(n)
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// take returns what has come; nil: nothing.
func (m *mailbox) take() *Notification {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.notice
	m.notice = nil
	return n
}
