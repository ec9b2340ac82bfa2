package forebay

import "time"

// EntityStatus says what clients may do with a queue of plain messages, a topic or a subscription
// (Service Bus documentation, "entity-suspend"). Peeks, and acts of operators, are always allowed.
type EntityStatus string

// The statuses. A topic is never EntityReceiveDisabled, and a subscription never
// EntitySendDisabled.
const (
	EntityActive          EntityStatus = "active"
	EntityDisabled        EntityStatus = "disabled" // neither sends nor receives
	EntitySendDisabled    EntityStatus = "send_disabled"
	EntityReceiveDisabled EntityStatus = "receive_disabled"
)

// Sends reports whether clients may send to an entity of that status.
func (s EntityStatus) Sends() bool { return s != EntityDisabled && s != EntitySendDisabled }

// Receives reports whether clients may receive from an entity of that status.
func (s EntityStatus) Receives() bool { return s != EntityDisabled && s != EntityReceiveDisabled }

// Limits on what entities have.
const (
	MaxUserMetadata     = 1024      // characters of a note
	MaxEntityMessage    = 100 << 20 // bytes: the highest limit on the messages of one entity
	MaxEntityAttributes = 64 << 10  // bytes of what only Service Bus's management protocol keeps
)

// EntityChange changes a queue of plain messages, a topic or a subscription. What is left out
// stays.
type EntityChange struct {
	Status       EntityStatus `json:"status,omitempty" enum:"active,disabled,send_disabled,receive_disabled" doc:"who may use it: all, or nobody sends, nobody receives, or neither"`
	UserMetadata *string      `json:"user_metadata,omitempty" doc:"a note, at most 1,024 characters"`
}

// MessageQueueSettings create or change a queue of plain messages. Zero values stand for the
// defaults. nil stands for what an existing queue has, and so does a status that is left out.
type MessageQueueSettings struct {
	LockSeconds             float64 `json:"lock_seconds,omitempty" doc:"how long a receiver holds a message or a session: 1 to 300; default 60"`
	MaxDeliveryCount        int     `json:"max_delivery_count,omitempty" doc:"deliveries after which a message goes to the dead-letter subqueue: 1 to 2000; default 10"`
	DefaultTTLSeconds       float64 `json:"default_message_ttl_seconds,omitempty" doc:"time to live of messages that ask for none, and the most they may ask for; default: unlimited"`
	DeadLetterOnExpiration  bool    `json:"dead_letter_on_expiration,omitempty" doc:"expired messages go to the dead-letter subqueue; else they are dropped"`
	DetectsDuplicates       *bool   `json:"requires_duplicate_detection,omitempty" doc:"a message that repeats the message_id of another is dropped; settled when the queue is made; default false"`
	DuplicateWindowSeconds  float64 `json:"duplicate_detection_window_seconds,omitempty" doc:"for how long message ids are remembered: 20 to 604800; default 600"`
	RequiresSession         *bool   `json:"requires_session,omitempty" doc:"messages have a session_id and are received session by session; settled when the queue is made; default false"`
	ForwardTo               string  `json:"forward_to,omitempty" doc:"another queue of messages, to which all that arrives goes on"`
	ForwardDeadLettersTo    string  `json:"forward_dead_lettered_messages_to,omitempty" doc:"another queue of messages, to which dead-lettered messages go instead of the dead-letter subqueue"`
	AutoDeleteOnIdleSeconds float64 `json:"auto_delete_on_idle_seconds,omitempty" doc:"the queue is deleted once it has been idle for so long: no sends, receives, settlements, peeks or changes of it, nothing locked or scheduled in it; a subscription is not kept by the copies it gets. At least 300; default: never"`
	MaxMessageBytes         int64   `json:"max_message_bytes,omitempty" doc:"the largest message that may be sent to it, below what the server allows: 1 to 104857600; default: what the server allows"`
	EntityChange
}

// MessageQueue is a queue of plain messages with its settings and counts.
type MessageQueue struct {
	Name                    string   `json:"name"`
	Kind                    string   `json:"kind" enum:"messages"`
	Active                  int64    `json:"active" doc:"can be received now"`
	Scheduled               int64    `json:"scheduled" doc:"waits for a time"`
	Locked                  int64    `json:"locked" doc:"held by receivers"`
	Deferred                int64    `json:"deferred" doc:"can be received by sequence number"`
	DeadLetter              int64    `json:"dead_letter" doc:"in the dead-letter subqueue, whatever their state"`
	CountsCapped            bool     `json:"counts_capped,omitempty" doc:"a count stopped at its limit: there are at least so many"`
	OldestAgeSeconds        *float64 `json:"oldest_age_seconds" doc:"since the oldest active message became active; null when none is"`
	LockSeconds             float64  `json:"lock_seconds"`
	MaxDeliveryCount        int      `json:"max_delivery_count"`
	DefaultTTLSeconds       *float64 `json:"default_message_ttl_seconds" doc:"null: unlimited"`
	DeadLetterOnExpiration  bool     `json:"dead_letter_on_expiration"`
	DetectsDuplicates       bool     `json:"requires_duplicate_detection"`
	DuplicateWindowSeconds  *float64 `json:"duplicate_detection_window_seconds" doc:"null: duplicates are not detected"`
	RequiresSession         bool     `json:"requires_session"`
	ForwardTo               string   `json:"forward_to,omitempty"`
	ForwardDeadLettersTo    string   `json:"forward_dead_lettered_messages_to,omitempty"`
	AutoDeleteOnIdleSeconds *float64 `json:"auto_delete_on_idle_seconds" doc:"null: never"`
	MaxMessageBytes         int64    `json:"max_message_bytes,omitempty" doc:"left out: what the server allows"`
	EntityState
}

// EntityState is what queues of plain messages, topics and subscriptions have in common.
type EntityState struct {
	Status       EntityStatus `json:"status" enum:"active,disabled,send_disabled,receive_disabled"`
	UserMetadata string       `json:"user_metadata,omitempty"`
	SizeBytes    int64        `json:"size_bytes" doc:"of the messages that the counts are about; there are at least so many bytes"`
	CreatedAt    time.Time    `json:"created_at"`
	UpdatedAt    time.Time    `json:"updated_at" doc:"of the latest change of its settings"`
	AccessedAt   *time.Time   `json:"accessed_at" doc:"of the latest send, receive or accepted session, to the minute; null: none is known"`
	Tagged
}

// KindMessages is MessageQueue.Kind.
const KindMessages = "messages"
