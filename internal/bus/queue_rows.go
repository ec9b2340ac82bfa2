package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// MessageQueue is a queue of plain messages as stored. It may be a topic or a subscription.
type MessageQueue = entity.Queue

func (t *Tx) MessageQueue(no int64) (q MessageQueue, found bool, err error) {
	return entity.Numbered(t.Conn, no)
}

func (t *Tx) MessageQueueNamed(name string) (q MessageQueue, found bool, err error) {
	return entity.Named(t.Conn, name)
}

// entityTx creates, changes and deletes queues, topics, subscriptions and rules.
type entityTx struct {
	*Tx
	drops  *entity.Drops // as the stage ends; nil: none
	purged bool          // an operation has purged
}

// entityRows is about how many rows it takes to create or change a queue, a topic or a
// subscription.
const entityRows = 4

// PutMessageQueue creates the queue of that name and tenant, or changes its settings. A tenant
// may have at most limit queues. Whether a queue requires sessions or detects duplicates cannot
// be changed later. The queue that it forwards to must exist.
func (s *Store) PutMessageQueue(ctx context.Context, q MessageQueue, limit int) (stored MessageQueue, created bool, err error) {
	return s.Entities().Put(ctx, q, entity.PutOptions{Limit: limit})
}

// Put is PutMessageQueue with options.
func (s EntityStore) Put(ctx context.Context, q MessageQueue, opts entity.PutOptions) (stored MessageQueue, created bool, err error) {
	p, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows}, func(t *Tx) (Put, error) {
		p, err := t.Entities.put(q, opts)
		if err != nil || p.same {
			return p, err
		}
		return p, audit.Append(t.Tx, p.Act(ctx, "put", p.AuditDetail()))
	})
	return p.MessageQueue, p.created, err
}

// Put is the result of putting a queue, a topic or a subscription.
type Put struct {
	MessageQueue
	created bool
	same    bool // nothing changed
}

// Put creates or changes a queue, a topic or a subscription.
func (t *entityTx) Put(q MessageQueue, limit int) (p Put, err error) {
	return t.put(q, entity.PutOptions{Limit: limit})
}

func (t *entityTx) put(q MessageQueue, opts entity.PutOptions) (p Put, err error) {
	if err := t.DropNow(); err != nil {
		return p, err
	}
	before, found, err := t.MessageQueueNamed(q.Name)
	if err == nil {
		err = opts.Check(t.Conn, q, before, found)
	}
	if err != nil {
		return p, err
	}
	if q.Status == "" {
		q.Status = forebay.EntityActive
	}
	if found {
		opts.Keep.From(before, &q)
		if err := before.CheckChange(q); err != nil {
			return p, err
		}
	}
	if err := q.CheckTargets(t.Conn); err != nil {
		return p, err
	}
	p.MessageQueue, p.created, p.same = q, !found, found && before.SameSettings(q)
	p.No, p.CreatedAt, p.UpdatedAt, p.AccessedAt = before.No, before.CreatedAt, before.UpdatedAt, before.AccessedAt
	if p.created {
		if p.No, err = entity.Insert(t.Conn, q, opts.Limit, t.Now); err != nil {
			return p, err
		}
		p.CreatedAt = driver.FromMillis(t.Now)
	}
	if !p.same {
		p.UpdatedAt = driver.FromMillis(t.Now)
	}
	if err := t.update(p.MessageQueue); err != nil {
		return p, err
	}
	t.statusChanged(before, p.MessageQueue)
	return p, t.updateTopic(p.MessageQueue)
}

// update writes the settings, but for what only topics and subscriptions have.
func (t *entityTx) update(q MessageQueue) error {
	t.forwarding.targets, t.forwarding.held = nil, nil
	var deleteAt, dueAt int64
	if q.Idle > 0 {
		deleteAt = t.Now + q.Idle.Milliseconds()
		t.DueBy(deleteAt)
	}
	if q.ForwardTo != "" { // its messages are forwarded too
		dueAt = t.Now
		t.DueBy(dueAt)
	}
	return entity.Update(t.Conn, q, deleteAt, dueAt)
}
