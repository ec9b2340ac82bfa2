package store

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// MessageQueue is a queue of plain messages as stored, with its settings. A duration of 0 stands for
// none.
type MessageQueue struct {
	No                   int64 // given once, never again, even after the queue is deleted
	Tenant               int64
	Name                 string // "<tenant>/<name>": no name of a queue of jobs holds a slash
	Lock                 time.Duration
	MaxDeliveries        int
	DefaultTTL           time.Duration // the most a message may ask for, and what it gets if it asks for none
	DeadLetterExpired    bool          // else expired messages are dropped
	DuplicateWindow      time.Duration // how long message ids are remembered to find duplicates
	RequiresSession      bool
	ForwardTo            string // a name like Name; "": nowhere
	ForwardDeadLettersTo string
	Idle                 time.Duration // after so long without use it is deleted
	CreatedAt            time.Time
	topicPart
}

// Subqueue returns the subqueue of the queue itself or of its dead-letter subqueue.
func (q MessageQueue) Subqueue(deadLetter bool) Subqueue {
	if deadLetter {
		return SubqueueOf(q.No, SubqueueDeadLetter)
	}
	return SubqueueOf(q.No, SubqueueMain)
}

// entity is the queue's name as its tenant knows it.
func (q MessageQueue) entity() string { return entityOf(q.Name) }

func entityOf(name string) string {
	_, entity, _ := strings.Cut(name, "/")
	return entity
}

// deferred returns the subqueue of the deferred messages of a subqueue, and of that subqueue itself.
func (l Subqueue) deferred() Subqueue { return l | 1 }

const messageQueueColumns = `
SELECT no, tenant, name, lock, max_deliveries, created_at, default_ttl, dead_letter_expired, duplicate_window, requires_session,
  forward_to, forward_dead_letters_to, idle, is_topic, topic, version, dead_letter_filter_errors,
  (SELECT t.idle FROM queues t WHERE t.no = queues.topic),
  CASE WHEN is_topic = 1 THEN (SELECT 1 FROM messages m WHERE m.lane = queues.no * 4 AND m.rank = 2 LIMIT 1) END
FROM queues WHERE kind = 'messages' `

const (
	sqlQueueNo      = messageQueueColumns + "AND no = ?"
	sqlQueueName    = messageQueueColumns + "AND name = ?"
	sqlTenantQueues = messageQueueColumns + "AND tenant = ? AND is_topic = ? AND topic IS NULL ORDER BY name"
)

func readMessageQueue(r row) MessageQueue {
	return MessageQueue{No: r.int(0), Tenant: r.int(1), Name: r.text(2), Lock: fromMillisDuration(r.int(3)), MaxDeliveries: int(r.int(4)),
		CreatedAt: fromMillis(r.int(5)), DefaultTTL: fromMillisDuration(r.int(6)), DeadLetterExpired: r.int(7) != 0,
		DuplicateWindow: fromMillisDuration(r.int(8)), RequiresSession: r.int(9) != 0,
		ForwardTo: r.text(10), ForwardDeadLettersTo: r.text(11), Idle: fromMillisDuration(r.int(12)),
		topicPart: topicPart{r.int(13) != 0, r.int(14), r.int(15), r.int(16) != 0, fromMillisDuration(r.int(17)), r.int(18) != 0}}
}

func (t *busTx) messageQueue(no int64) (q MessageQueue, found bool, err error) {
	found, err = t.prep(sqlQueueNo).int(no).one(func(r row) { q = readMessageQueue(r) })
	return q, found, err
}

func (t *busTx) messageQueueNamed(name string) (q MessageQueue, found bool, err error) {
	found, err = t.prep(sqlQueueName).text(name).one(func(r row) { q = readMessageQueue(r) })
	return q, found, err
}

const sqlUpdateQueue = `
UPDATE queues SET lock = ?, max_deliveries = ?, default_ttl = ?, dead_letter_expired = ?, duplicate_window = ?, requires_session = ?,
  forward_to = ?, forward_dead_letters_to = ?, idle = ?, delete_at = ?, due_at = ? WHERE no = ?`

// entityRows is what making or changing a queue, a topic or a subscription adds and looks at, about.
const entityRows = 4

// PutMessageQueue makes the queue of that name and tenant, or gives it new settings. A tenant may
// have at most limit of them. Whether a queue requires sessions, and whether it detects duplicates,
// is settled once it is made; what it forwards to must exist.
func (s *BusStore) PutMessageQueue(ctx context.Context, q MessageQueue, limit int) (stored MessageQueue, created bool, err error) {
	p, err := transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: q.Tenant, rows: entityRows}, func(t *busTx) (putResult, error) {
		p, err := t.putMessageQueue(q, limit)
		if err != nil || p.same {
			return p, err
		}
		return p, auditIn(t.tx, entityAudit(ctx, "put", p.MessageQueue, p.auditDetail()))
	})
	return p.MessageQueue, p.created, err
}

type putResult struct {
	MessageQueue
	created bool
	same    bool // it was so before
}

// putMessageQueue makes or changes a queue, a topic or a subscription.
func (t *busTx) putMessageQueue(q MessageQueue, limit int) (p putResult, err error) {
	before, found, err := t.messageQueueNamed(q.Name)
	if err != nil {
		return p, err
	}
	if found {
		if err := unchangeable(before, q); err != nil {
			return p, err
		}
	}
	for field, target := range map[string]string{"forward_to": q.ForwardTo, "forward_dead_lettered_messages_to": q.ForwardDeadLettersTo} {
		if err := t.checkTarget(field, target, q.Name); err != nil {
			return p, err
		}
	}
	p.MessageQueue, p.created, p.same = q, !found, found && sameSettings(before, q)
	if p.No, p.CreatedAt = before.No, before.CreatedAt; p.created {
		if p.No, err = t.insertMessageQueue(q, limit); err != nil {
			return p, err
		}
		p.CreatedAt = fromMillis(t.now)
	}
	if err := t.updateMessageQueue(p.MessageQueue); err != nil {
		return p, err
	}
	return p, t.updateTopicPart(p.MessageQueue)
}

func (t *busTx) updateMessageQueue(q MessageQueue) error {
	t.topics.targets = nil
	var deleteAt, dueAt int64
	if q.Idle > 0 {
		deleteAt = t.now + q.Idle.Milliseconds()
		t.dueBy(deleteAt)
	}
	if q.ForwardTo != "" { // what it holds goes there too
		dueAt = t.now
		t.dueBy(dueAt)
	}
	return t.prep(sqlUpdateQueue).int(q.Lock.Milliseconds()).int(int64(q.MaxDeliveries)).intOrNull(q.DefaultTTL.Milliseconds()).
		int(asInt(q.DeadLetterExpired)).intOrNull(q.DuplicateWindow.Milliseconds()).int(asInt(q.RequiresSession)).
		textOrNull(q.ForwardTo).textOrNull(q.ForwardDeadLettersTo).intOrNull(q.Idle.Milliseconds()).intOrNull(deleteAt).intOrNull(dueAt).int(q.No).exec()
}

// unchangeable refuses what would make the messages that a queue holds contradict its settings.
func unchangeable(before, after MessageQueue) error {
	field := ""
	switch {
	case before.IsTopic != after.IsTopic:
		return errOtherKind(before)
	case before.RequiresSession != after.RequiresSession:
		field = "requires_session"
	case (before.DuplicateWindow > 0) != (after.DuplicateWindow > 0):
		field = "requires_duplicate_detection"
	default:
		return nil
	}
	return &forebay.Error{Code: forebay.CodeConflict, Field: field, Message: "was settled when the queue was made; delete the queue and make it anew to change it"}
}

// checkTarget reports why a queue cannot forward to that name.
func (t *busTx) checkTarget(field, target, from string) error {
	if target == "" {
		return nil
	}
	if target == from {
		return forebay.Invalid(field, "must not be the queue itself")
	}
	_, found, err := t.messageQueueNamed(target)
	if err == nil && !found {
		return forebay.Invalid(field, "there is no such queue of messages")
	}
	return err
}

func (t *busTx) insertMessageQueue(q MessageQueue, limit int) (no int64, err error) {
	var count int64
	counting := t.prep("SELECT count(*) FROM queues WHERE tenant = ? AND kind = 'messages' AND is_topic = ? AND topic IS NULL").int(q.Tenant).int(asInt(q.IsTopic))
	if q.Topic != 0 {
		counting = t.prep("SELECT count(*) FROM queues WHERE topic = ? AND kind = 'messages'").int(q.Topic)
	}
	if _, err := counting.one(func(r row) { count = r.int(0) }); err != nil {
		return 0, err
	}
	if count >= int64(limit) {
		return 0, errTooMany(q, limit)
	}
	_, err = t.prep("SELECT max(no) FROM " + unusedQueueNo).one(func(r row) { no = r.int(0) })
	if err != nil {
		return 0, err
	}
	return no, t.prep("INSERT INTO queues (no, name, created_at, kind, tenant) VALUES (?, ?, ?, 'messages', ?)").
		int(no).text(q.Name).int(t.now).int(q.Tenant).exec()
}

// MessageQueue returns the queue of that name, if there is one.
func (s *BusStore) MessageQueue(ctx context.Context, name string) (q MessageQueue, found bool, err error) {
	err = s.read(ctx, func(c conn) error {
		found, err = c.prep(sqlQueueName).text(name).one(func(r row) { q = readMessageQueue(r) })
		return err
	})
	return q, found, err
}

// MessageQueues returns a tenant's queues by name.
func (s *BusStore) MessageQueues(ctx context.Context, tenant int64) (queues []MessageQueue, err error) {
	err = s.read(ctx, func(c conn) error {
		return c.prep(sqlTenantQueues).int(tenant).int(0).each(func(r row) error {
			queues = append(queues, readMessageQueue(r))
			return nil
		})
	})
	return queues, err
}
