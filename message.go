package forebay

import "time"

// Limits on plain messages. They follow Azure Service Bus (service-bus-quotas).
const (
	DefaultMaxMessageBytes = 1 << 20 // body, properties and fields together; the configuration may change it
	MaxIDCharacters        = 128     // of message, session and correlation ids, and partition keys
	MaxEntityBytes         = 260     // of the name of a queue of messages or a topic
	MaxPropertyBytes       = 32 << 10
	MaxPropertiesBytes     = 64 << 10 // of one message together
	MaxMessagesPerCall     = 100      // sent, received or peeked at once
	MaxMessageQueues       = 1000     // of one tenant

	MaxBatchDelete       = 4000 // messages
	MaxSessionStateBytes = 256 << 10

	DefaultLockDuration     = time.Minute
	MinLockDuration         = time.Second
	MaxLockDuration         = 5 * time.Minute
	DefaultMaxDeliveryCount = 10
	MaxMaxDeliveryCount     = 2000
	MaxTimeToLive           = 100 * 365 * 24 * time.Hour
	DefaultDuplicateWindow  = 10 * time.Minute
	MinDuplicateWindow      = 20 * time.Second
	MaxDuplicateWindow      = 7 * 24 * time.Hour
	MinAutoDelete           = 5 * time.Minute
)

// The reasons for which a queue itself dead-letters a message, by Service Bus's names
// (service-bus-dead-letter-queues).
const (
	ReasonMaxDeliveries  = "MaxDeliveryCountExceeded"    // delivered as often as its queue allows and never completed
	ReasonExpired        = "TTLExpiredException"         // its time to live ended
	ReasonHeaderSize     = "HeaderSizeExceeded"          // its properties outgrew their limit on the way
	ReasonNoSession      = "Session ID is null."         // forwarded into a queue that requires sessions
	ReasonMaxHops        = "MaxTransferHopCountExceeded" // forwarded too often
	ReasonNoTarget       = "MessagingEntityNotFound"     // what its queue forwards to is gone
	ReasonTargetDisabled = "MessagingEntityDisabled"     // nobody may send to what its queue forwards to
	ReasonFilter         = "FilterException"             // a subscription's rule cannot be evaluated for it
	ReasonFanOut         = "QuotaExceededException"      // topics that forward to topics made too many copies of it
)

// MessageState says whether a message can be received.
type MessageState string

const (
	MessageActive    MessageState = "active"    // can be received
	MessageLocked    MessageState = "locked"    // a receiver holds it, until locked_until
	MessageDeferred  MessageState = "deferred"  // can be received by sequence number only
	MessageScheduled MessageState = "scheduled" // becomes active later
)

// NewMessage is a message to send. The body is Body or BodyBase64, and is returned in the same
// form. Without either it is the empty text.
type NewMessage struct {
	MessageID         string     `json:"message_id,omitempty" doc:"at most 128 characters; default: a new one"`
	SessionID         string     `json:"session_id,omitempty" doc:"at most 128 characters; messages of a session are received in order, by one receiver at a time"`
	CorrelationID     string     `json:"correlation_id,omitempty"`
	Subject           string     `json:"subject,omitempty"`
	To                string     `json:"to,omitempty"`
	ReplyTo           string     `json:"reply_to,omitempty"`
	ReplyToSessionID  string     `json:"reply_to_session_id,omitempty"`
	ContentType       string     `json:"content_type,omitempty"`
	PartitionKey      string     `json:"partition_key,omitempty" doc:"kept as it is; equal to session_id, if both are given"`
	TimeToLiveSeconds float64    `json:"time_to_live_seconds,omitempty" doc:"from when the message becomes active, at most the queue's default; default: the queue's"`
	ScheduledTime     *time.Time `json:"scheduled_enqueue_time,omitempty" doc:"when the message becomes active; default, and when that has passed: at once"`
	Properties        Properties `json:"application_properties,omitempty" doc:"name to string, number or boolean, or {\"type\",\"value\"} with one of the types string, int, float, bool, time, bytes (base64) and uuid"`
	Body              *string    `json:"body,omitempty" doc:"text"`
	BodyBase64        []byte     `json:"body_base64,omitzero" doc:"bytes; instead of body"`
}

// SentMessage is the sequence number that a sent message got.
type SentMessage struct {
	SequenceNumber int64  `json:"sequence_number" doc:"unique, and higher than that of any message before; a duplicate, which is dropped, gets that of the message it repeats"`
	MessageID      string `json:"message_id"`
}

// Message is a message as a receiver or a peek sees it.
type Message struct {
	SequenceNumber         int64 `json:"sequence_number"`
	EnqueuedSequenceNumber int64 `json:"enqueued_sequence_number" doc:"the number it was given first; a scheduled message gets a new one when it becomes active, a forwarded one in each queue"`
	NewMessage
	EnqueuedTime          time.Time    `json:"enqueued_time"`
	ExpiresAt             *time.Time   `json:"expires_at,omitempty" doc:"when its time to live ends, if it does"`
	DeliveryCount         int          `json:"delivery_count" doc:"this delivery included"`
	State                 MessageState `json:"state" enum:"active,locked,deferred,scheduled"`
	LockToken             string       `json:"lock_token,omitempty" doc:"settles this delivery; only under peek-lock"`
	LockedUntil           *time.Time   `json:"locked_until,omitempty" doc:"when the lock ends, if there is one"`
	DeadLetterSource      string       `json:"dead_letter_source,omitempty" doc:"the queue it was dead-lettered in, if that forwarded it here"`
	DeadLetterReason      string       `json:"dead_letter_reason,omitempty"`
	DeadLetterDescription string       `json:"dead_letter_error_description,omitempty"`
	// ETag is of its body and properties, where it is looked at alone.
	ETag         string `json:"etag,omitempty" doc:"entity tag of its body and properties, where one message is looked at: for If-Match of a redrive with an edit"`
	BodyWithheld bool   `json:"body_withheld,omitempty" doc:"the key may not open the bodies of another tenant's messages"`
}

// EntityTag returns the entity tag, or "" if there is none.
func (m Message) EntityTag() string { return m.ETag }

// ReceiveMode says what receiving does to a message.
type ReceiveMode string

const (
	PeekLock         ReceiveMode = "peek_lock"          // locks it until it is settled or the lock ends
	ReceiveAndDelete ReceiveMode = "receive_and_delete" // removes it; lost if the answer does not arrive
)

// ReceiveRequest asks for messages.
type ReceiveRequest struct {
	MaxMessages int         `json:"max_messages,omitempty" doc:"1 to 100; default 1"`
	Wait        string      `json:"wait,omitempty" doc:"how long to wait for a first message: up to 60s; default 0s" example:"30s"`
	WaitSeconds float64     `json:"wait_seconds,omitempty" doc:"the same as a number of seconds; not with wait"`
	Mode        ReceiveMode `json:"mode,omitempty" enum:"peek_lock,receive_and_delete" doc:"default peek_lock"`
	// DeferredSequenceNumbers are the deferred messages to receive. Those that are not deferred, or
	// are locked, are left out of the answer.
	DeferredSequenceNumbers []int64 `json:"deferred_sequence_numbers,omitempty" doc:"receive these deferred messages, up to 100, and no others; without max_messages and wait"`
}

// WaitTime returns how long to wait for a first message. Its error is CodeInvalidRequest.
func (r ReceiveRequest) WaitTime() (time.Duration, error) { return waitTime(r.Wait, r.WaitSeconds) }

// maxWait is the longest that a request waits.
const maxWait = time.Minute

// ParseWait parses how long a request waits, such as 30s. It returns CodeInvalidRequest unless
// the time is from 0s to 60s. "" is 0s.
func ParseWait(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(s)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, Invalid("wait", "must be a time from 0s to 60s, such as 30s")
	}
	return wait, nil
}

// waitTime reads either spelling of how long to wait.
func waitTime(wait string, seconds float64) (time.Duration, error) {
	switch {
	case wait != "" && seconds != 0:
		return 0, Invalid("wait_seconds", "does not go with wait, which says the same")
	case !(seconds >= 0 && seconds <= maxWait.Seconds()):
		return 0, Invalid("wait_seconds", "goes from 0 to %g", maxWait.Seconds())
	case seconds > 0:
		return time.Duration(seconds * float64(time.Second)), nil
	}
	return ParseWait(wait)
}

// Settlement holds the optional fields of abandoning, deferring or dead-lettering a message.
type Settlement struct {
	Properties  Properties `json:"application_properties,omitempty" doc:"added to the message's, or replacing those of the same name"`
	Reason      string     `json:"reason,omitempty" doc:"only for dead-letter"`
	Description string     `json:"description,omitempty" doc:"only for dead-letter"`
}

// DeleteMessagesRequest says which messages to remove from a queue, the oldest first.
type DeleteMessagesRequest struct {
	Before      time.Time `json:"enqueued_before" doc:"only messages enqueued before this time"`
	MaxMessages int       `json:"max_messages,omitempty" doc:"1 to 4000; default 4000"`
}

// DeletedMessages says how many messages were removed.
type DeletedMessages struct {
	Deleted int `json:"deleted"`
}

// MaxDeadMessagesPerCall bounds the dead letters that one call redrives or purges.
const MaxDeadMessagesPerCall = 4000

// DeadMessageFilter selects messages of a dead-letter subqueue: by number, by reason, or all. It
// never selects locked and deferred ones.
type DeadMessageFilter struct {
	SequenceNumbers []int64 `json:"sequence_numbers,omitempty" doc:"these messages, up to 100, and no others"`
	Reason          string  `json:"reason,omitempty" doc:"all with this dead_letter_reason"`
	All             bool    `json:"all,omitempty" doc:"all that there are"`
	MaxMessages     int     `json:"max_messages,omitempty" doc:"1 to 4,000; default 1,000"`
	UpTo            int64   `json:"up_to,omitempty" doc:"none with a higher sequence number; 0: up to the highest there is when the call begins"`
	DryRun          bool    `json:"dry_run,omitempty" doc:"only count them"`
}

// RedriveMessagesRequest sends dead-lettered messages back to their queue or subscription.
type RedriveMessagesRequest struct {
	DeadMessageFilter
	Edit *MessageEdit `json:"edit,omitempty" doc:"what is changed of the message; only with exactly one sequence number. With dry_run the change is checked, and not stored"`
	// RatePerSecond spreads the messages over time. Until its time comes, each is a scheduled message
	// of the queue or subscription.
	RatePerSecond float64    `json:"rate_per_second,omitempty" doc:"how many become active each second, from 0.001 to 1,000; 0: all at once"`
	FirstAt       *time.Time `json:"first_at,omitempty" doc:"with rate_per_second: when the first becomes active; default, and when that has passed: at once"`
}

// MessageEdit changes a dead-lettered message. A field that is left out stays as it is.
type MessageEdit struct {
	Body       *string    `json:"body,omitempty" doc:"text"`
	BodyBase64 []byte     `json:"body_base64,omitzero" doc:"bytes; instead of body"`
	Properties Properties `json:"application_properties,omitzero" doc:"replaces all properties; {} removes them"`
}

// RedrivenMessages is how many messages were sent back.
type RedrivenMessages struct {
	Redriven int   `json:"redriven" doc:"or, with dry_run, would be"`
	More     bool  `json:"more" doc:"there may be more that match: repeat the call, with this up_to"`
	UpTo     int64 `json:"up_to,omitempty" doc:"with more: what this call sent back and dies again has a higher sequence number"`
	// NextAt goes on with the rate in the next call.
	NextAt *time.Time `json:"next_at,omitempty" doc:"with more and a rate: first_at of the next call"`
}

// DeadMessageGroups counts the dead letters of a queue or subscription by reason, the most
// frequent first.
type DeadMessageGroups struct {
	Groups   []DeadMessageGroup `json:"groups"`
	Counted  int                `json:"counted" doc:"how many were looked at, locked and deferred ones too: the newest 20,000 at most"`
	Other    int                `json:"other" doc:"those of further reasons: 200 are told apart"`
	Complete bool               `json:"complete" doc:"these are all"`
	UpTo     int64              `json:"up_to,omitempty" doc:"the highest sequence number; a redrive or purge with it leaves out what is sent later"`
}

// DeadMessageGroup is the dead letters with one reason.
type DeadMessageGroup struct {
	Queue          string    `json:"queue,omitempty" doc:"their queue or subscription, as TOPIC/subscriptions/NAME; only in the answer about all of them"`
	Reason         string    `json:"reason" doc:"their dead_letter_reason; empty: they have none"`
	Count          int       `json:"count"`
	NewestEnqueued time.Time `json:"newest_enqueued_time"`
	OldestEnqueued time.Time `json:"oldest_enqueued_time"`
	Example        int64     `json:"example_sequence_number" doc:"one of them: the newest"`
}

// PurgedMessages is how many messages were removed for good.
type PurgedMessages struct {
	Purged int   `json:"purged" doc:"or, with dry_run, would be"`
	More   bool  `json:"more" doc:"there may be more that match: repeat the call, with this up_to"`
	UpTo   int64 `json:"up_to,omitempty" doc:"with more: the highest sequence number there was when the call began"`
}
