package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// MessageQueue is a queue of plain messages as stored. It may be a topic or a subscription.
type MessageQueue = entity.Queue

const messageQueueColumns = `
SELECT no, tenant, name, lock, max_deliveries, created_at, default_ttl, dead_letter_expired, duplicate_window, requires_session,
  forward_to, forward_dead_letters_to, idle, is_topic, topic, version, dead_letter_filter_errors,
  (SELECT t.idle FROM queues t WHERE t.no = queues.topic),
  CASE WHEN is_topic = 1 THEN (SELECT 1 FROM messages m WHERE m.subqueue = queues.no * 4 AND m.flow = 2 LIMIT 1) END,
  status, max_message, user_metadata, attributes, coalesce(updated_at, created_at), accessed_at
FROM queues WHERE kind = 'messages' `

const (
	sqlQueueNo      = messageQueueColumns + "AND no = ?"
	sqlQueueName    = messageQueueColumns + "AND name = ?"
	sqlTenantQueues = messageQueueColumns + "AND tenant = ? AND is_topic = ? AND topic IS NULL ORDER BY name"
)

func readMessageQueue(r driver.Row) MessageQueue {
	return MessageQueue{No: r.Int(0), Tenant: r.Int(1), Name: r.Text(2), Lock: driver.FromMillisDuration(r.Int(3)), MaxDeliveries: int(r.Int(4)),
		CreatedAt: driver.FromMillis(r.Int(5)), DefaultTTL: driver.FromMillisDuration(r.Int(6)), DeadLetterExpired: r.Int(7) != 0,
		DuplicateWindow: driver.FromMillisDuration(r.Int(8)), RequiresSession: r.Int(9) != 0,
		ForwardTo: r.Text(10), ForwardDeadLettersTo: r.Text(11), Idle: driver.FromMillisDuration(r.Int(12)),
		IsTopic: r.Int(13) != 0, Topic: r.Int(14), Version: r.Int(15), DeadLetterFilterErrors: r.Int(16) != 0,
		TopicIdle: driver.FromMillisDuration(r.Int(17)), CopiesPending: r.Int(18) != 0, State: readState(r)}
}

// prefetchQueue is what MessageQueue asks.
func prefetchQueue(no int64) driver.Prefetch {
	q := driver.NewPrefetch(sqlQueueNo, driver.RowName{Of: "queues", No: no}).Int(no)
	q.Shared = true
	return q
}

func (t *Tx) MessageQueue(no int64) (q MessageQueue, found bool, err error) {
	found, err = t.Prep(sqlQueueNo).Int(no).One(func(r driver.Row) { q = readMessageQueue(r) })
	return q, found, err
}

func (t *Tx) MessageQueueNamed(name string) (q MessageQueue, found bool, err error) {
	found, err = t.Prep(sqlQueueName).Text(name).One(func(r driver.Row) { q = readMessageQueue(r) })
	return q, found, err
}

// entityTx creates, changes and deletes queues, topics, subscriptions and rules.
type entityTx struct{ *Tx }

const sqlUpdateQueue = `
UPDATE queues SET lock = ?, max_deliveries = ?, default_ttl = ?, dead_letter_expired = ?, duplicate_window = ?, requires_session = ?,
  forward_to = ?, forward_dead_letters_to = ?, idle = ?, delete_at = ?, due_at = ?,
  status = ?, max_message = ?, user_metadata = ?, attributes = ?, updated_at = ? WHERE no = ?`

// entityRows is about how many rows it takes to create or change a queue, a topic or a
// subscription.
const entityRows = 4

// PutMessageQueue creates the queue of that name and tenant, or changes its settings. A tenant
// may have at most limit queues. Whether a queue requires sessions or detects duplicates cannot
// be changed later. The queue that it forwards to must exist.
func (s *Store) PutMessageQueue(ctx context.Context, q MessageQueue, limit int) (stored MessageQueue, created bool, err error) {
	return s.Entities().Put(ctx, q, PutOptions{Limit: limit})
}

// Put is PutMessageQueue with options.
func (s EntityStore) Put(ctx context.Context, q MessageQueue, opts PutOptions) (stored MessageQueue, created bool, err error) {
	p, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows}, func(t *Tx) (Put, error) {
		p, err := t.Entities.put(q, opts)
		if err != nil || p.same {
			return p, err
		}
		return p, audit.Append(t.Tx, entityAudit(ctx, "put", p.MessageQueue, p.AuditDetail()))
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
	return t.put(q, PutOptions{Limit: limit})
}

func (t *entityTx) put(q MessageQueue, opts PutOptions) (p Put, err error) {
	before, found, err := t.MessageQueueNamed(q.Name)
	if err == nil {
		err = opts.check(q, found)
	}
	if err == nil && opts.Mode == PutNew {
		err = t.checkFolded(q)
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
	for field, target := range map[string]string{"forward_to": q.ForwardTo, "forward_dead_lettered_messages_to": q.ForwardDeadLettersTo} {
		if err := t.checkTarget(field, target, q.Name); err != nil {
			return p, err
		}
	}
	p.MessageQueue, p.created, p.same = q, !found, found && before.SameSettings(q)
	p.No, p.CreatedAt, p.UpdatedAt, p.AccessedAt = before.No, before.CreatedAt, before.UpdatedAt, before.AccessedAt
	if p.created {
		if p.No, err = t.insert(q, opts.Limit); err != nil {
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
	return t.Prep(sqlUpdateQueue).Int(q.Lock.Milliseconds()).Int(int64(q.MaxDeliveries)).IntOrNull(q.DefaultTTL.Milliseconds()).
		Int(driver.BoolInt(q.DeadLetterExpired)).IntOrNull(q.DuplicateWindow.Milliseconds()).Int(driver.BoolInt(q.RequiresSession)).
		TextOrNull(q.ForwardTo).TextOrNull(q.ForwardDeadLettersTo).IntOrNull(q.Idle.Milliseconds()).IntOrNull(deleteAt).IntOrNull(dueAt).
		Int(statusNumber(q.Status)).IntOrNull(q.MaxMessage).TextOrNull(q.UserMetadata).TextOrNull(q.Attributes).Int(driver.Millis(&q.UpdatedAt)).Int(q.No).Exec()
}

// checkTarget reports why a queue cannot forward to that name.
func (t *entityTx) checkTarget(field, target, from string) error {
	if target == "" {
		return nil
	}
	if target == from {
		return forebay.Invalid(field, "must not be the queue itself")
	}
	_, found, err := t.MessageQueueNamed(target)
	if err == nil && !found {
		return forebay.Invalid(field, "there is no such queue of messages")
	}
	return err
}

func (t *entityTx) insert(q MessageQueue, limit int) (no int64, err error) {
	var count int64
	counting := t.Prep("SELECT count(*) FROM queues WHERE tenant = ? AND kind = 'messages' AND is_topic = ? AND topic IS NULL").Int(q.Tenant).Int(driver.BoolInt(q.IsTopic))
	if q.Topic != 0 {
		counting = t.Prep("SELECT count(*) FROM queues WHERE topic = ? AND kind = 'messages'").Int(q.Topic)
	}
	if _, err := counting.One(func(r driver.Row) { count = r.Int(0) }); err != nil {
		return 0, err
	}
	if count >= int64(limit) {
		return 0, q.ErrTooMany(limit)
	}
	_, err = t.Prep("SELECT max(no) FROM " + queue.UnusedQueueNo).One(func(r driver.Row) { no = r.Int(0) })
	if err != nil {
		return 0, err
	}
	return no, t.Prep("INSERT INTO queues (no, name, created_at, kind, tenant) VALUES (?, ?, ?, 'messages', ?)").
		Int(no).Text(q.Name).Int(t.Now).Int(q.Tenant).Exec()
}

// MessageQueue returns the queue of that name, if there is one.
func (s *Store) MessageQueue(ctx context.Context, name string) (q MessageQueue, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlQueueName).Text(name).One(func(r driver.Row) { q = readMessageQueue(r) })
		return err
	})
	return q, found, err
}

// MessageQueues returns a tenant's queues by name.
func (s *Store) MessageQueues(ctx context.Context, tenant int64) (queues []MessageQueue, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlTenantQueues).Int(tenant).Int(0).Each(func(r driver.Row) error {
			queues = append(queues, readMessageQueue(r))
			return nil
		})
	})
	return queues, err
}
