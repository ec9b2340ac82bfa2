package bus

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// MessageContent is what the sender of a plain message says.
type MessageContent = message.Content

// Message is a plain message in a queue.
type Message struct {
	queue.Lock // the token is 0 where there is no lock to settle with
	MessageContent
	EnqueuedSeq           int64 // its first number: before it was activated or forwarded
	LockedUntil           *time.Time
	State                 forebay.MessageState
	Deliveries            int
	EnqueuedAt            time.Time
	ExpiresAt             *time.Time
	DeadLetterSource      string // the queue that dead-lettered it and forwarded it here
	DeadLetterReason      string
	DeadLetterDescription string
	hops                  int // how often it was forwarded
	flow                  int64
	visible               int64 // in a session only the end of its lock
	shared                int64 // row in shared_bodies with its body; 0: it has its own
}

// The lock of a session's message lasts as long as that of its session.
const messageSelect = `
SELECT m.seq, m.subqueue, CASE WHEN m.flow < 16 THEN m.visible_at ELSE (SELECT s.locked_until FROM sessions s WHERE s.no = m.flow - 16) END,
  m.lock_token, m.deliveries, m.size, b.message_id, b.correlation_id, b.subject, b.to_, b.reply_to, b.content_type,
  coalesce(b.properties, (SELECT s.properties FROM shared_bodies s WHERE s.no = b.shared)), b.is_text,
  CASE WHEN b.shared IS NULL THEN b.body ELSE (SELECT s.body FROM shared_bodies s WHERE s.no = b.shared) END,
  b.enqueued_at, b.dead_letter_reason, b.dead_letter_description, m.flow, b.session_id, b.reply_to_session_id, b.partition_key, b.ttl,
  b.scheduled_at, b.expires_at, b.enqueued_seq, b.hops, b.dead_letter_source, b.shared,
  CASE WHEN b.shared IS NULL THEN b.amqp ELSE (SELECT s.amqp FROM shared_bodies s WHERE s.no = b.shared) END
`

const messageColumns = messageSelect + "FROM messages m JOIN bodies b ON b.seq = m.seq\n"

// The columns that are read before the whole row is.
const (
	columnSeq   = 0
	columnUntil = 2
	columnSize  = 5
	columnPlace = 30 // of sqlReadyForMany
)

// readMessage reads the row; at is the time by which a lock counts as held.
func readMessage(r driver.Row, at int64) Message {
	m := Message{
		Lock: queue.Lock{Seq: r.Int(0)}, State: forebay.MessageActive, Deliveries: int(r.Int(4)),
		MessageContent: MessageContent{MessageID: r.Text(6), CorrelationID: r.Text(7), Subject: r.Text(8), To: r.Text(9), ReplyTo: r.Text(10),
			ContentType: r.Text(11), Properties: r.Blob(12), Text: r.Int(13) != 0, Body: r.Blob(14), SessionID: r.Text(19),
			ReplyToSessionID: r.Text(20), PartitionKey: r.Text(21), TTL: driver.FromMillisDuration(r.Int(22)), ScheduledAt: driver.FromMillisOrNil(r, 23), AMQP: r.Blob(29)},
		EnqueuedAt: driver.FromMillis(r.Int(15)), DeadLetterReason: r.Text(16), DeadLetterDescription: r.Text(17), flow: r.Int(18), visible: r.Int(columnUntil),
		ExpiresAt: driver.FromMillisOrNil(r, 24), EnqueuedSeq: r.Int(25), hops: int(r.Int(26)), DeadLetterSource: r.Text(27), shared: r.Int(28),
	}
	if m.EnqueuedSeq == 0 {
		m.EnqueuedSeq = m.Seq
	}
	subqueue, later, locked := queue.Subqueue(r.Int(1)), r.Int(2) > at, !r.IsNull(3)
	switch {
	case subqueue.Deferred() == subqueue:
		m.State = forebay.MessageDeferred
	case m.flow == scheduledFlow, m.flow == pendingFlow:
		m.State = forebay.MessageScheduled
	}
	if later && locked {
		m.LockedUntil = driver.FromMillisOrNil(r, 2)
	}
	return m
}

// expired reports whether the message's time to live has ended. It is not asked for dead letters.
func (m *Message) expired(at int64) bool { return m.ExpiresAt != nil && m.ExpiresAt.UnixMilli() <= at }

// DeleteMessage deletes a plain message.
func (t *Tx) DeleteMessage(seq int64) error {
	if err := t.Prep(queue.SQLDeleteMessage).Int(seq).Exec(); err != nil {
		return err
	}
	return t.Prep(sqlDeleteBody).Int(seq).Exec()
}

var sqlDeleteBody = driver.BatchForm("DELETE FROM bodies WHERE seq = ?", "DELETE FROM bodies b USING %s WHERE b.seq = ANY (ARRAY[p1])")
