package queue

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Subqueue is one ordered set of messages: the main one of a queue, or another one.
type Subqueue int64

// SubqueueKind says which of a queue's subqueues.
type SubqueueKind int64

const (
	SubqueueMain SubqueueKind = iota
	SubqueueRetry
	SubqueueDeadLetter
	SubqueueQuarantine
	SubqueueKinds = 4
)

// SubqueueOf returns a queue's subqueue.
func SubqueueOf(queue int64, kind SubqueueKind) Subqueue {
	return Subqueue(queue*SubqueueKinds + int64(kind))
}

// Queue returns the number of the subqueue's queue.
func (l Subqueue) Queue() int64 { return int64(l) / SubqueueKinds }

// IsOfQueue reports whether the subqueue belongs to a queue. Negative numbers are for the
// receivers of sessions, which come and go.
func (l Subqueue) IsOfQueue() bool { return l >= 0 }

// Deferred returns the subqueue for the deferred messages of a subqueue. It is its own deferred
// subqueue.
func (l Subqueue) Deferred() Subqueue { return l | 1 }

// Kind returns which of its queue's subqueues it is.
func (l Subqueue) Kind() SubqueueKind { return SubqueueKind(int64(l) % SubqueueKinds) }

// QueueRow is a queue as stored.
type QueueRow struct {
	No     int64
	Name   string
	Paused bool
}

// TenantName returns the name of the tenant with that number.
func (s *Store) TenantName(ctx context.Context, no int64) (name string, err error) {
	s.names.mu.RLock()
	name, ok := s.names.tenantNames[no]
	s.names.mu.RUnlock()
	if ok {
		return name, nil
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep("SELECT name FROM tenants WHERE no = ?").Int(no).One(func(r driver.Row) { name = r.Text(0) })
		if err == nil && !found {
			return forebay.ErrNotFound
		}
		return err
	})
	if err != nil {
		return "", err
	}
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	if s.names.tenantNames == nil {
		s.names.tenantNames = map[int64]string{}
	}
	s.names.tenantNames[no] = name
	return name, nil
}

// QueueRows returns all queues by name.
func (s *Store) QueueRows(ctx context.Context) (queues []QueueRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		err := c.Prep("SELECT no, name, paused FROM queues ORDER BY name").Each(func(r driver.Row) error {
			queues = append(queues, QueueRow{No: r.Int(0), Name: r.Text(1), Paused: r.Int(2) != 0})
			return nil
		})
		return err
	})
	return queues, err
}

// SetPaused stops or restarts deliveries from a queue's main and retry subqueues.
func (s *Store) SetPaused(ctx context.Context, queue int64, paused bool, entry audit.Act) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.Prep("UPDATE queues SET paused = ? WHERE no = ?").Int(value).Int(queue).Exec(); err != nil {
			return struct{}{}, err
		}
		t.After = append(t.After, func() { t.w.Paused[queue] = paused })
		t.Notify(db.WordSettings, 0, 0, 0)
		t.WakeAt(SubqueueOf(queue, SubqueueMain), t.Now)
		t.WakeAt(SubqueueOf(queue, SubqueueRetry), t.Now)
		return struct{}{}, audit.Append(t.Tx, entry)
	})
	return err
}

// Lock is the right to settle one delivery. The token is new at each delivery.
type Lock struct {
	Seq   int64
	Token int64
}

// NewToken returns the right to settle one delivery, or to use a session.
func NewToken() int64 { return 1 + rand.Int64N(math.MaxInt64) }
