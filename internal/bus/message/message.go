// Package message has the content of plain messages: what the sender says, the checks on it, and
// the message as rules see it. It does no I/O.
package message

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/filter"
)

// Content is what the sender of a plain message says. "", nil and 0 stand for nothing.
type Content struct {
	MessageID        string
	SessionID        string
	CorrelationID    string
	Subject          string
	To               string
	ReplyTo          string
	ReplyToSessionID string
	ContentType      string
	PartitionKey     string
	TTL              time.Duration // from when the message becomes active
	ScheduledAt      *time.Time    // when it becomes active; a time that has passed: at once
	Properties       []byte        // forebay.Properties in JSON
	Text             bool          // the body was sent as text
	Body             []byte
	// AMQP has sections of the message as they were sent over AMQP; nil: it came otherwise. What the
	// fields above say goes first. See package servicebus/content.
	AMQP []byte
}

// Size is what the message counts for, in bytes.
func (c *Content) Size() int64 {
	return int64(len(c.MessageID) + len(c.SessionID) + len(c.CorrelationID) + len(c.Subject) + len(c.To) + len(c.ReplyTo) +
		len(c.ReplyToSessionID) + len(c.ContentType) + len(c.PartitionKey) + len(c.Properties) + len(c.Body) + len(c.AMQP))
}

// SetProperties replaces the application properties.
func (c *Content) SetProperties(p forebay.Properties) (err error) {
	c.Properties = nil
	if len(p) > 0 {
		c.Properties, err = json.Marshal(p)
	}
	return err
}

// MergeProperties returns stored properties with the changed ones in their place.
func MergeProperties(stored []byte, changed forebay.Properties) ([]byte, error) {
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

// View returns the message as rules see it, enqueued at that time in Unix milliseconds.
func (c *Content) View(at int64) (*filter.Message, error) {
	m := &filter.Message{
		MessageID: c.MessageID, CorrelationID: c.CorrelationID, SessionID: c.SessionID, Subject: c.Subject, To: c.To, ReplyTo: c.ReplyTo,
		ReplyToSessionID: c.ReplyToSessionID, ContentType: c.ContentType, PartitionKey: c.PartitionKey, TimeToLive: c.TTL,
		EnqueuedTime: time.UnixMilli(at).UTC(), Size: c.Size(),
	}
	if c.ScheduledAt != nil {
		m.ScheduledEnqueueTime = *c.ScheduledAt
	}
	if c.Properties == nil {
		return m, nil
	}
	return m, json.Unmarshal(c.Properties, &m.Properties)
}

// Changed returns the message as a rule's action left it.
func (c *Content) Changed(m *filter.Message) (*Content, error) {
	d := *c
	d.MessageID, d.CorrelationID, d.SessionID, d.Subject, d.To, d.ReplyTo = m.MessageID, m.CorrelationID, m.SessionID, m.Subject, m.To, m.ReplyTo
	d.ReplyToSessionID, d.ContentType, d.PartitionKey = m.ReplyToSessionID, m.ContentType, m.PartitionKey
	var err error
	d.Properties, err = json.Marshal(m.Properties)
	return &d, err
}

// Lifetime is a message's time to live: its own, but at most its queue's default; 0: it does not
// expire.
func Lifetime(byDefault, own time.Duration) time.Duration {
	if own == 0 || byDefault > 0 && byDefault < own {
		return byDefault
	}
	return own
}

// DeadLettering says why a message is dead-lettered.
type DeadLettering struct {
	Reason, Description string
}

// Exceeded says that a message has had all the deliveries that its queue allows.
func Exceeded(deliveries int) DeadLettering {
	return DeadLettering{forebay.ReasonMaxDeliveries, fmt.Sprintf("delivered %d times, which is all its queue allows, and never completed", deliveries)}
}
