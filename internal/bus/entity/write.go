package entity

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// PutMode says whether a put may create an entity, change one, or do either.
type PutMode int

const (
	PutAny      PutMode = iota
	PutNew              // only create: ErrExists if there is one of that name, whatever the case
	PutExisting         // only change: ErrNoQueue, ErrNoTopic or ErrNoSubscription if there is none
)

// PutOptions say how an entity is put.
type PutOptions struct {
	Limit int // how many of its kind there may be
	Mode  PutMode
	Keep  Keep              // of an entity that exists
	If    forebay.Condition // on what is there
}

// ErrExists refuses to create an entity whose name is taken.
var ErrExists = &forebay.Error{Code: forebay.CodeConflict, Field: "name", Message: "there is a queue, topic or subscription of that name already"}

// These say that an entity does not exist.
var (
	ErrNoQueue        = &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no such queue of messages"}
	ErrNoTopic        = &forebay.Error{Code: forebay.CodeNotFound, Field: "topic", Message: "there is no such topic"}
	ErrNoSubscription = &forebay.Error{Code: forebay.CodeNotFound, Field: "subscription", Message: "there is no such subscription"}
)

// Check compares the mode and the condition with what is there. That is the entity of exactly
// that name, if it was found, and whether there is one whose name differs in its case alone.
func (o PutOptions) Check(c driver.Conn, q, before Queue, found bool) error {
	if err := before.CheckCondition(o.If, found); err != nil {
		return err
	}
	switch {
	case o.Mode == PutNew && found:
		return ErrExists
	case o.Mode == PutNew:
		_, found, err := Folded(c, q.Tenant, q.Name)
		if err == nil && found {
			err = ErrExists
		}
		return err
	case o.Mode != PutExisting || found:
		return nil
	}
	return q.ErrUnknown()
}

// ErrUnknown says that there is no entity of that kind and name.
func (q Queue) ErrUnknown() error {
	switch {
	case q.IsTopic:
		return ErrNoTopic
	case q.Topic != 0:
		return ErrNoSubscription
	}
	return ErrNoQueue
}

// CheckTargets reports why a queue cannot forward to where its settings say.
func (q Queue) CheckTargets(c driver.Conn) error {
	for field, target := range map[string]string{"forward_to": q.ForwardTo, "forward_dead_lettered_messages_to": q.ForwardDeadLettersTo} {
		if target == "" {
			continue
		}
		if target == q.Name { // as forwardTarget says, for who stores without it
			return forebay.Invalid(field, "must not be the queue itself")
		}
		_, found, err := Named(c, target)
		if err == nil && !found {
			err = forebay.Invalid(field, "there is no such queue of messages")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Insert stores a new queue with its name alone, as one of at most limit of its kind. [Update]
// writes its settings.
func Insert(c driver.Conn, q Queue, limit int, now int64) (no int64, err error) {
	var count int64
	counting := c.Prep("SELECT count(*) FROM queues WHERE tenant = ? AND kind = 'messages' AND is_topic = ? AND topic IS NULL").Int(q.Tenant).Int(driver.BoolInt(q.IsTopic))
	if q.Topic != 0 {
		counting = c.Prep("SELECT count(*) FROM queues WHERE topic = ? AND kind = 'messages'").Int(q.Topic)
	}
	if _, err := counting.One(func(r driver.Row) { count = r.Int(0) }); err != nil {
		return 0, err
	}
	if count >= int64(limit) {
		return 0, q.ErrTooMany(limit)
	}
	_, err = c.Prep("SELECT max(no) FROM " + queue.UnusedQueueNo).One(func(r driver.Row) { no = r.Int(0) })
	if err != nil {
		return 0, err
	}
	return no, c.Prep("INSERT INTO queues (no, name, created_at, kind, tenant) VALUES (?, ?, ?, 'messages', ?)").
		Int(no).Text(q.Name).Int(now).Int(q.Tenant).Exec()
}

const sqlUpdate = `
UPDATE queues SET lock = ?, max_deliveries = ?, default_ttl = ?, dead_letter_expired = ?, duplicate_window = ?, requires_session = ?,
  forward_to = ?, forward_dead_letters_to = ?, idle = ?, delete_at = ?, due_at = ?,
  status = ?, max_message = ?, user_metadata = ?, attributes = ?, updated_at = ? WHERE no = ?`

// Update writes the settings, but for what only topics and subscriptions have. It also sets when
// the queue is deleted as idle and when something is due for it; 0: never.
func Update(c driver.Conn, q Queue, deleteAt, dueAt int64) error {
	return c.Prep(sqlUpdate).Int(q.Lock.Milliseconds()).Int(int64(q.MaxDeliveries)).IntOrNull(q.DefaultTTL.Milliseconds()).
		Int(driver.BoolInt(q.DeadLetterExpired)).IntOrNull(q.DuplicateWindow.Milliseconds()).Int(driver.BoolInt(q.RequiresSession)).
		TextOrNull(q.ForwardTo).TextOrNull(q.ForwardDeadLettersTo).IntOrNull(q.Idle.Milliseconds()).IntOrNull(deleteAt).IntOrNull(dueAt).
		Int(statusNumber(q.Status)).IntOrNull(q.MaxMessage).TextOrNull(q.UserMetadata).TextOrNull(q.Attributes).Int(driver.Millis(&q.UpdatedAt)).Int(q.No).Exec()
}

// UpdateTopic writes what only topics and subscriptions have.
func UpdateTopic(c driver.Conn, q Queue) error {
	return c.Prep("UPDATE queues SET is_topic = ?, topic = ?, dead_letter_filter_errors = ? WHERE no = ?").
		Int(driver.BoolInt(q.IsTopic)).IntOrNull(q.Topic).Int(driver.BoolInt(q.DeadLetterFilterErrors)).Int(q.No).Exec()
}

// SQLAccessed records when an entity was used.
var SQLAccessed = driver.BatchForm("UPDATE queues SET accessed_at = ? WHERE no = ?",
	"UPDATE queues q SET accessed_at = p1 FROM %s WHERE q.no = ANY (ARRAY[p2])")
