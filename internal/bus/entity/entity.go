// Package entity has what Service Bus calls entities: queues, topics and subscriptions, with the
// rules of these. It has their names and settings, the checks and defaults of both, and reads and
// writes their rows.
//
// The store keeps every entity as a [Queue]. A topic is a queue that keeps only scheduled and
// pending messages: active ones go to its subscriptions at once. A subscription is a queue that
// cannot be sent to.
package entity

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/queue"
)

// Queue is a queue of plain messages as stored, with its settings. It may be a topic or a
// subscription. A duration of 0 stands for none.
type Queue struct {
	No                   int64 // never given again, even after the queue is deleted
	Tenant               int64
	Name                 string // "<tenant>/<name>": no name of a queue of jobs holds a slash
	Lock                 time.Duration
	MaxDeliveries        int
	DefaultTTL           time.Duration // the longest time to live, and the one of messages that ask for none
	DeadLetterExpired    bool          // else expired messages are dropped
	DuplicateWindow      time.Duration // how long duplicates are detected
	RequiresSession      bool
	ForwardTo            string // a name like Name; "": nowhere
	ForwardDeadLettersTo string
	Idle                 time.Duration // it is deleted after that long without use; 0: never
	CreatedAt            time.Time
	State

	// Only topics and subscriptions use these.
	IsTopic                bool
	Topic                  int64         // of a subscription: its topic's number
	Version                int64         // of a topic: new with every change of it, its subscriptions or their rules
	DeadLetterFilterErrors bool          // of a subscription: dead-letter messages that its rules cannot judge
	TopicIdle              time.Duration // of a subscription: Idle of its topic, whose use is recorded with its own
	CopiesPending          bool          // of a topic: messages wait in it for their copies
}

// Subqueue returns the main subqueue of the queue, or its dead-letter subqueue.
func (q Queue) Subqueue(deadLetter bool) queue.Subqueue {
	if deadLetter {
		return queue.SubqueueOf(q.No, queue.SubqueueDeadLetter)
	}
	return queue.SubqueueOf(q.No, queue.SubqueueMain)
}

// SameSettings reports whether a put changes nothing. Programs often put their queue each time
// they start.
func (q Queue) SameSettings(after Queue) bool {
	q.UpdatedAt, q.AccessedAt = after.UpdatedAt, after.AccessedAt
	q.No, q.CreatedAt, q.Version, q.TopicIdle, q.CopiesPending = after.No, after.CreatedAt, after.Version, after.TopicIdle, after.CopiesPending
	return q == after
}

// ETag returns the entity tag of the settings. It tells a queue from one that was made anew under
// the same name. Use, and changes of a topic's subscriptions, do not change it.
func (q Queue) ETag() string {
	created, updated := q.CreatedAt.UnixMilli(), q.UpdatedAt.UnixMilli()
	q.CreatedAt, q.UpdatedAt, q.AccessedAt = time.Time{}, time.Time{}, time.Time{}
	q.Version, q.TopicIdle, q.CopiesPending = 0, 0, false
	for _, d := range []*time.Duration{&q.Lock, &q.DefaultTTL, &q.DuplicateWindow, &q.Idle} {
		*d = d.Truncate(time.Millisecond) // as it is stored
	}
	return forebay.ETagOf(q, created, updated)
}

// CheckCondition compares a condition with what is there.
func (q Queue) CheckCondition(c forebay.Condition, found bool) error {
	if c.Empty() || !found {
		return c.Check("")
	}
	return c.Check(q.ETag())
}

// CheckPresent compares what is to be changed with what is there.
func (q Queue) CheckPresent(present Queue, found bool, condition forebay.Condition) error {
	if !found {
		return q.ErrUnknown()
	}
	return present.CheckCondition(condition, true)
}

// CheckChange refuses changes after which the messages of a queue would contradict its settings.
func (q Queue) CheckChange(after Queue) error {
	field := ""
	switch {
	case q.IsTopic != after.IsTopic:
		return q.ErrOtherKind()
	case q.RequiresSession != after.RequiresSession:
		field = "requires_session"
	case (q.DuplicateWindow > 0) != (after.DuplicateWindow > 0):
		field = "requires_duplicate_detection"
	default:
		return nil
	}
	return &forebay.Error{Code: forebay.CodeConflict, Field: field, Message: "was settled when the queue was made; delete the queue and make it anew to change it"}
}

// ErrOtherKind says that the name belongs to this queue and not a topic, or the other way round.
func (q Queue) ErrOtherKind() error {
	kind := "queue of messages"
	if q.IsTopic {
		kind = "topic"
	}
	return forebay.Errorf(forebay.CodeConflict, "there is a %s of that name", kind)
}

// ErrTooMany says that there are as many of the queue's kind as there may be.
func (q Queue) ErrTooMany(limit int) error {
	switch {
	case q.Topic != 0:
		return forebay.Errorf(forebay.CodeConflict, "a topic may have at most %d subscriptions", limit)
	case q.IsTopic:
		return forebay.Errorf(forebay.CodeConflict, "a tenant may have at most %d topics", limit)
	}
	return forebay.Errorf(forebay.CodeConflict, "a tenant may have at most %d queues of messages", limit)
}

// AuditDetail returns a queue's settings as the audit log shows them.
func (q Queue) AuditDetail() any {
	var change forebay.EntityChange
	if q.Status != forebay.EntityActive {
		change.Status = q.Status
	}
	if q.UserMetadata != "" {
		change.UserMetadata = &q.UserMetadata
	}
	return struct {
		forebay.MessageQueueSettings
		DeadLetterFilterErrors bool `json:"dead_letter_filter_errors,omitempty"`
	}{forebay.MessageQueueSettings{
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DefaultTTLSeconds: q.DefaultTTL.Seconds(),
		DeadLetterOnExpiration: q.DeadLetterExpired, DuplicateWindowSeconds: q.DuplicateWindow.Seconds(), RequiresSession: &q.RequiresSession,
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: q.Idle.Seconds(),
		MaxMessageBytes: q.MaxMessage, EntityChange: change,
	}, q.DeadLetterFilterErrors}
}
