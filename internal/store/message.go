package store

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/forebayhq/forebay"
)

// MessageContent is what the sender of a plain message says. "" and nil stand for nothing.
type MessageContent struct {
	MessageID     string
	CorrelationID string
	Subject       string
	To            string
	ReplyTo       string
	ContentType   string
	Properties    []byte // forebay.Properties in JSON
	Text          bool   // the body was sent as text
	Body          []byte
}

// Size is what the message counts for, in bytes.
func (c *MessageContent) Size() int64 {
	return int64(len(c.MessageID) + len(c.CorrelationID) + len(c.Subject) + len(c.To) + len(c.ReplyTo) + len(c.ContentType) +
		len(c.Properties) + len(c.Body))
}

// Message is a plain message in a queue.
type Message struct {
	Lock // the token is 0 where there is no lock to settle with
	MessageContent
	LockedUntil           *time.Time
	State                 forebay.MessageState
	Deliveries            int
	EnqueuedAt            time.Time
	DeadLetterReason      string
	DeadLetterDescription string
}

const messageColumns = `
SELECT m.seq, m.lane, m.visible, m.token, m.deliveries, m.size,
  b.message_id, b.correlation_id, b.subject, b.to_, b.reply_to, b.content_type, b.properties, b.is_text, b.body,
  b.enqueued_at, b.dead_letter_reason, b.dead_letter_description
`

// readMessage reads the row as a peek at that time sees it.
func readMessage(r row, at int64) Message {
	m := Message{
		Lock: Lock{Seq: r.int(0)}, State: forebay.MessageActive, Deliveries: int(r.int(4)),
		MessageContent: MessageContent{MessageID: r.text(6), CorrelationID: r.text(7), Subject: r.text(8), To: r.text(9), ReplyTo: r.text(10),
			ContentType: r.text(11), Properties: r.blob(12), Text: r.int(13) != 0, Body: r.blob(14)},
		EnqueuedAt: fromMillis(r.int(15)), DeadLetterReason: r.text(16), DeadLetterDescription: r.text(17),
	}
	lane, later, locked := Lane(r.int(1)), r.int(2) > at, !r.isNull(3)
	switch {
	case lane.deferred() == lane:
		m.State = forebay.MessageDeferred
	case later && !locked:
		m.State = forebay.MessageScheduled
	}
	if later && locked {
		m.LockedUntil = fromMillisOrNil(r, 2)
	}
	return m
}

const sqlInsertBody = `
INSERT INTO bodies (seq, lane, enqueued_at, message_id, correlation_id, subject, to_, reply_to, content_type, properties, is_text, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// Send stores the messages, all or none of them, and makes them ready. It returns their sequence
// numbers.
func (s *Store) Send(ctx context.Context, q MessageQueue, messages []MessageContent) (seqs []int64, err error) {
	size := 0
	for i := range messages {
		size += int(messages[i].Size())
	}
	return transactSized(ctx, s, stageChange, size, func(t *tx) ([]int64, error) {
		known, err := t.prep("SELECT 1 FROM queues WHERE no = ? AND kind = 'messages'").int(q.No).one(func(row) {})
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, errNoQueue
		}
		seqs := make([]int64, len(messages))
		for i := range messages {
			if seqs[i], err = t.send(q, &messages[i]); err != nil {
				return nil, err
			}
		}
		return seqs, nil
	})
}

func (t *tx) send(q MessageQueue, m *MessageContent) (int64, error) {
	lane := q.Lane(false)
	seq, err := t.newSeq()
	if err != nil {
		return 0, err
	}
	isText := int64(0)
	if m.Text {
		isText = 1
	}
	err = t.prep(sqlInsertBody).int(seq).int(int64(lane)).int(t.now).text(m.MessageID).textOrNull(m.CorrelationID).textOrNull(m.Subject).
		textOrNull(m.To).textOrNull(m.ReplyTo).textOrNull(m.ContentType).blob(m.Properties).int(isText).blob(m.Body).exec()
	if err != nil {
		return 0, err
	}
	err = t.prep("INSERT INTO messages (seq, lane, rank, visible, size, tenant) VALUES (?, ?, 0, ?, ?, ?)").
		int(seq).int(int64(lane)).int(t.now).int(m.Size()).int(q.Tenant).exec()
	t.due(lane, 0, t.now)
	return seq, err
}

// deleteMessage removes a plain message for good.
func (t *tx) deleteMessage(seq int64) error {
	if err := t.prep("DELETE FROM messages WHERE seq = ?").int(seq).exec(); err != nil {
		return err
	}
	return t.prep("DELETE FROM bodies WHERE seq = ?").int(seq).exec()
}

const sqlPeek = messageColumns + `FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.lane = ? AND b.seq >= ? ORDER BY b.seq LIMIT ? + 0`

// Peek returns messages of the lane, whatever their state, from a sequence number on and in its
// order, and the sequence number to go on from, 0 when there is no more. It returns at least one
// message, if there is one, and otherwise no more than maxBytes.
func (s *Store) Peek(ctx context.Context, lane Lane, from int64, limit int, maxBytes int64) (messages []Message, next int64, err error) {
	err = s.read(ctx, func(c conn) error {
		at := c.now()
		var bytes int64
		err := c.prep(sqlPeek).int(int64(lane)).int(from).int(int64(limit) + 1).each(func(r row) error {
			bytes += r.int(5)
			if len(messages) == limit || bytes > maxBytes && len(messages) > 0 {
				next = r.int(0)
				return errStop
			}
			messages = append(messages, readMessage(r, at))
			return nil
		})
		return unlessStopped(err)
	})
	return messages, next, err
}

// mergeProperties returns the message's properties with the changed ones in their place.
func mergeProperties(stored []byte, changed forebay.Properties) ([]byte, error) {
	merged := forebay.Properties{}
	if stored != nil {
		if err := json.Unmarshal(stored, &merged); err != nil {
			return nil, err
		}
	}
	maps.Copy(merged, changed)
	if err := merged.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(merged)
}
