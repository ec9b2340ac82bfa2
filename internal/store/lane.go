package store

import (
	"context"

	"github.com/forebayhq/forebay"
)

// Lane is one ordered set of messages: a queue's main lane or one of its subqueues.
type Lane int64

// LaneKind says which of a queue's lanes.
type LaneKind int64

const (
	LaneMain LaneKind = iota
	LaneRetry
	LaneDeadLetter
	LaneQuarantine
	laneKinds = 4
)

// LaneOf returns a queue's lane.
func LaneOf(queue int64, kind LaneKind) Lane { return Lane(queue*laneKinds + int64(kind)) }

// Queue returns the number of the lane's queue.
func (l Lane) Queue() int64 { return int64(l) / laneKinds }

// Kind returns which of its queue's lanes it is.
func (l Lane) Kind() LaneKind { return LaneKind(int64(l) % laneKinds) }

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
func (s *Store) QueueRows(ctx context.Context) (queues []QueueRow, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep("SELECT no, name, paused FROM queues ORDER BY name").each(func(r row) error {
			queues = append(queues, QueueRow{No: r.int(0), Name: r.text(1), Paused: r.int(2) != 0})
			return nil
		})
		return err
	})
	return queues, err
}

// SetPaused stops or restarts deliveries from a queue's main and retry lanes.
func (s *Store) SetPaused(ctx context.Context, queue int64, paused bool, audit Audit) error {
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.prep("UPDATE queues SET paused = ? WHERE no = ?").int(value).int(queue).exec(); err != nil {
			return struct{}{}, err
		}
		t.after = append(t.after, func() { t.w.paused[queue] = paused })
		t.news.queues = true
		t.wakes(int64(LaneOf(queue, LaneMain)), t.now)
		t.wakes(int64(LaneOf(queue, LaneRetry)), t.now)
		return struct{}{}, t.audit(audit)
	})
	return err
}

// SetTenantPaused stops or restarts deliveries of a tenant's jobs from every queue.
func (s *Store) SetTenantPaused(ctx context.Context, tenant int64, paused bool, audit Audit) error {
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.prep("UPDATE tenants SET paused = ? WHERE no = ?").int(value).int(tenant).exec(); err != nil {
			return struct{}{}, err
		}
		t.after = append(t.after, func() {
			if delete(t.w.pausedTenants, tenant); paused {
				t.w.pausedTenants[tenant] = true
			}
			t.w.lookAgain(false, true)
		})
		t.news.queues = true
		return struct{}{}, t.audit(audit)
	})
	return err
}
