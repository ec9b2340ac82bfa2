package store

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/forebayhq/forebay"
)

// Subqueue is one ordered set of messages: a queue's main subqueue or one of its subqueues.
type Subqueue int64

// SubqueueKind says which of a queue's subqueues.
type SubqueueKind int64

const (
	SubqueueMain SubqueueKind = iota
	SubqueueRetry
	SubqueueDeadLetter
	SubqueueQuarantine
	subqueueKinds = 4
)

// SubqueueOf returns a queue's subqueue.
func SubqueueOf(queue int64, kind SubqueueKind) Subqueue {
	return Subqueue(queue*subqueueKinds + int64(kind))
}

// Queue returns the number of the subqueue's queue.
func (l Subqueue) Queue() int64 { return int64(l) / subqueueKinds }

// lasts reports whether the subqueue is a queue's. Others, with negative numbers, are sessions': they come and go.
func (l Subqueue) lasts() bool { return l >= 0 }

// Kind returns which of its queue's subqueues it is.
func (l Subqueue) Kind() SubqueueKind { return SubqueueKind(int64(l) % subqueueKinds) }

// QueueRow is a queue as stored.
type QueueRow struct {
	No     int64
	Name   string
	Paused bool
}

// TenantName returns the name of the tenant with that number.
func (s *QueueStore) TenantName(ctx context.Context, no int64) (name string, err error) {
	s.names.mu.RLock()
	name, ok := s.names.tenantNames[no]
	s.names.mu.RUnlock()
	if ok {
		return name, nil
	}
	err = s.read(ctx, func(c conn) error {
		found, err := c.prep("SELECT name FROM tenants WHERE no = ?").int(no).one(func(r row) { name = r.text(0) })
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
func (s *QueueStore) QueueRows(ctx context.Context) (queues []QueueRow, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep("SELECT no, name, paused FROM queues ORDER BY name").each(func(r row) error {
			queues = append(queues, QueueRow{No: r.int(0), Name: r.text(1), Paused: r.int(2) != 0})
			return nil
		})
		return err
	})
	return queues, err
}

// SetPaused stops or restarts deliveries from a queue's main and retry subqueues.
func (s *QueueStore) SetPaused(ctx context.Context, queue int64, paused bool, audit Audit) error {
	_, err := transactIn(ctx, queueKey, s.writer, op{stage: stageChange}, func(t *queueTx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.prep("UPDATE queues SET paused = ? WHERE no = ?").int(value).int(queue).exec(); err != nil {
			return struct{}{}, err
		}
		t.after = append(t.after, func() { t.w.paused[queue] = paused })
		t.notify(wordSettings, 0, 0, 0)
		t.wakes(SubqueueOf(queue, SubqueueMain), t.now)
		t.wakes(SubqueueOf(queue, SubqueueRetry), t.now)
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}

// Lock is the right to settle one delivery. A token is new at each delivery.
type Lock struct {
	Seq   int64
	Token int64
}

// newToken returns the right to settle one delivery, or to use a session.
func newToken() int64 { return 1 + rand.Int64N(math.MaxInt64) }
