package forebay

import "time"

// Limits on plain messages. They follow Azure Service Bus (service-bus-quotas).
const (
	DefaultMaxMessageBytes = 1 << 20 // body, properties and fields together; the configuration may change it
	MaxMessageIDBytes      = 128     //
	MaxPropertyBytes       = 32 << 10
	MaxPropertiesBytes     = 64 << 10 // of one message together
	MaxMessagesPerCall     = 100      // sent, received or peeked at once
	MaxMessageQueues       = 1000     // of one tenant

	DefaultLockDuration     = time.Minute
	MinLockDuration         = time.Second
	MaxLockDuration         = 5 * time.Minute
	DefaultMaxDeliveryCount = 10
	MaxMaxDeliveryCount     = 2000
)

// The reasons for which a queue dead-letters a message of its own accord, as Service Bus names them
// (service-bus-dead-letter-queues).
const (
	ReasonMaxDeliveries = "MaxDeliveryCountExceeded"    // delivered as often as its queue allows and never completed
	ReasonExpired       = "TTLExpiredException"         // its time to live ended
	ReasonHeaderSize    = "HeaderSizeExceeded"          // its properties outgrew their limit on the way
	ReasonNoSession     = "Session ID is null."         // forwarded into a queue that requires sessions
	ReasonMaxHops       = "MaxTransferHopCountExceeded" // forwarded too often
	ReasonNoTarget      = "MessagingEntityNotFound"     // what its queue forwards to is gone
	ReasonFilter        = "FilterException"             // a subscription's rule cannot be evaluated for it
	ReasonFanOut        = "QuotaExceededException"      // topics that forward to topics made too many copies of it
)

// MessageQueueSettings are what a queue of plain messages is made with. Zero values stand for the
// defaults.
type MessageQueueSettings struct {
	LockSeconds      float64 `json:"lock_seconds,omitempty" doc:"how long a receiver holds a message: 1 to 300; default 60"`
	MaxDeliveryCount int     `json:"max_delivery_count,omitempty" doc:"deliveries after which a message goes to the dead-letter subqueue: 1 to 2000; default 10"`
}

// MessageQueue is a queue of plain messages and what stands in it.
type MessageQueue struct {
	Name             string    `json:"name"`
	Kind             string    `json:"kind" enum:"messages"`
	Active           int64     `json:"active" doc:"can be received now"`
	Scheduled        int64     `json:"scheduled" doc:"waits for a time"`
	Locked           int64     `json:"locked" doc:"held by receivers"`
	Deferred         int64     `json:"deferred" doc:"can be received by sequence number"`
	DeadLetter       int64     `json:"dead_letter" doc:"in the dead-letter subqueue, whatever their state"`
	OldestAgeSeconds *float64  `json:"oldest_age_seconds" doc:"since the oldest active message became active; null when none is"`
	LockSeconds      float64   `json:"lock_seconds"`
	MaxDeliveryCount int       `json:"max_delivery_count"`
	CreatedAt        time.Time `json:"created_at"`
}

// KindMessages is MessageQueue.Kind.
const KindMessages = "messages"

// MessageState says whether a message can be received.
type MessageState string

const (
	MessageActive    MessageState = "active"    // can be received, or is locked
	MessageDeferred  MessageState = "deferred"  // can be received by sequence number only
	MessageScheduled MessageState = "scheduled" // becomes active later
)

// NewMessage is a message to send. The body is Body or BodyBase64, and comes back in the same form;
// without either it is the empty text.
type NewMessage struct {
	MessageID     string     `json:"message_id,omitempty" doc:"at most 128 bytes; default: a new one"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	Subject       string     `json:"subject,omitempty"`
	To            string     `json:"to,omitempty"`
	ReplyTo       string     `json:"reply_to,omitempty"`
	ContentType   string     `json:"content_type,omitempty"`
	Properties    Properties `json:"application_properties,omitempty" doc:"name to string, number or boolean, or {\"type\",\"value\"} with one of the types string, int, float, bool, time, bytes (base64) and uuid"`
	Body          *string    `json:"body,omitempty" doc:"text"`
	BodyBase64    []byte     `json:"body_base64,omitzero" doc:"bytes; instead of body"`
}

// SentMessage says which number a sent message was given.
type SentMessage struct {
	SequenceNumber int64  `json:"sequence_number" doc:"unique, and higher than that of any message before"`
	MessageID      string `json:"message_id"`
}

// Message is a message as a receiver or a peek sees it.
type Message struct {
	SequenceNumber int64 `json:"sequence_number"`
	NewMessage
	EnqueuedTime          time.Time    `json:"enqueued_time"`
	DeliveryCount         int          `json:"delivery_count" doc:"this delivery included"`
	State                 MessageState `json:"state" enum:"active,deferred,scheduled"`
	LockToken             string       `json:"lock_token,omitempty" doc:"settles this delivery; only under peek-lock"`
	LockedUntil           *time.Time   `json:"locked_until,omitempty" doc:"when the lock ends, if there is one"`
	DeadLetterReason      string       `json:"dead_letter_reason,omitempty"`
	DeadLetterDescription string       `json:"dead_letter_error_description,omitempty"`
}

// ReceiveMode says what receiving does to a message.
type ReceiveMode string

const (
	PeekLock         ReceiveMode = "peek_lock"          // locks it until it is settled or the lock ends
	ReceiveAndDelete ReceiveMode = "receive_and_delete" // removes it; lost if the answer does not arrive
)

// ReceiveRequest asks for messages.
type ReceiveRequest struct {
	MaxMessages int         `json:"max_messages,omitempty" doc:"1 to 100; default 1"`
	WaitSeconds float64     `json:"wait_seconds,omitempty" doc:"0 to 60: how long to wait for a first message; default 0"`
	Mode        ReceiveMode `json:"mode,omitempty" enum:"peek_lock,receive_and_delete" doc:"default peek_lock"`
	// DeferredSequenceNumbers are the deferred messages to receive. Those that are not deferred, or
	// are locked, are left out of the answer.
	DeferredSequenceNumbers []int64 `json:"deferred_sequence_numbers,omitempty" doc:"receive these deferred messages, up to 100, and no others; without max_messages and wait_seconds"`
}

// Settlement is what may be said when a message is given back or set aside.
type Settlement struct {
	Properties  Properties `json:"application_properties,omitempty" doc:"added to the message's, or replacing those of the same name"`
	Reason      string     `json:"reason,omitempty" doc:"only for dead-letter"`
	Description string     `json:"description,omitempty" doc:"only for dead-letter"`
}
