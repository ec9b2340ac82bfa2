package message

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// New checks a message from outside and returns its content. A message without an id gets one.
// With its properties it may have at most maxBytes.
func New(m *forebay.NewMessage, maxBytes int64) (c Content, err error) {
	if err := checkFields(m); err != nil {
		return c, err
	}
	c = Content{MessageID: m.MessageID, SessionID: m.SessionID, CorrelationID: m.CorrelationID, Subject: m.Subject, To: m.To,
		ReplyTo: m.ReplyTo, ReplyToSessionID: m.ReplyToSessionID, ContentType: m.ContentType, PartitionKey: m.PartitionKey,
		TTL: max(Seconds(m.TimeToLiveSeconds), 0), ScheduledAt: m.ScheduledTime, Body: m.BodyBase64}
	if c.MessageID == "" {
		c.MessageID = NewID()
	}
	if m.TimeToLiveSeconds > 0 {
		c.TTL = max(c.TTL, time.Millisecond)
	}
	if m.Body != nil {
		if m.BodyBase64 != nil {
			return c, forebay.Invalid("body", "must not be given beside body_base64")
		}
		if !utf8.ValidString(*m.Body) {
			return c, forebay.Invalid("body", "is not valid UTF-8; send bytes as body_base64")
		}
		c.Text, c.Body = true, []byte(*m.Body)
	} else if m.BodyBase64 == nil {
		c.Text, c.Body = true, []byte{}
	}
	if len(m.Properties) > 0 {
		if err := m.Properties.Check(); err != nil {
			return c, err
		}
		if c.Properties, err = json.Marshal(m.Properties); err != nil {
			return c, err
		}
	}
	return c, c.CheckSize("body", maxBytes)
}

// NewID returns an id for a message that came without one: "msg_" and 26 of a-z and 2-7.
func NewID() string { return "msg_" + strings.ToLower(rand.Text()) }

// Check checks what came from outside otherwise than in JSON, but for its properties and its size.
func (c *Content) Check() error {
	return checkFields(&forebay.NewMessage{MessageID: c.MessageID, SessionID: c.SessionID, CorrelationID: c.CorrelationID, Subject: c.Subject, To: c.To,
		ReplyTo: c.ReplyTo, ReplyToSessionID: c.ReplyToSessionID, ContentType: c.ContentType, PartitionKey: c.PartitionKey,
		TimeToLiveSeconds: c.TTL.Seconds(), ScheduledTime: c.ScheduledAt})
}

// CheckSize refuses a message of more than maxBytes, because of that field.
func (c *Content) CheckSize(field string, maxBytes int64) error {
	if c.Size() <= maxBytes {
		return nil
	}
	return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: field,
		Message: fmt.Sprintf("makes the message %d bytes, with its properties; it may have at most %d", c.Size(), maxBytes)}
}

func checkFields(m *forebay.NewMessage) error {
	for _, id := range []struct{ name, value string }{
		{"message_id", m.MessageID}, {"session_id", m.SessionID}, {"correlation_id", m.CorrelationID},
		{"reply_to_session_id", m.ReplyToSessionID}, {"partition_key", m.PartitionKey},
	} {
		if id.value != "" && !ValidID(id.value) {
			return forebay.Invalid(id.name, "must be at most %d characters, none of them a control character", forebay.MaxIDCharacters)
		}
	}
	for _, field := range []struct{ name, value string }{
		{"subject", m.Subject}, {"to", m.To}, {"reply_to", m.ReplyTo}, {"content_type", m.ContentType},
	} {
		if field.value != "" && !forebay.ValidText(field.value, forebay.MaxPropertyBytes) {
			return forebay.Invalid(field.name, "must be at most %d bytes of text without control characters", forebay.MaxPropertyBytes)
		}
	}
	if m.SessionID != "" && m.PartitionKey != "" && m.SessionID != m.PartitionKey {
		return forebay.Invalid("partition_key", "must equal session_id when both are given")
	}
	if !(m.TimeToLiveSeconds >= 0 && m.TimeToLiveSeconds <= forebay.MaxTimeToLive.Seconds()) {
		return forebay.Invalid("time_to_live_seconds", "goes from 0, for the queue's default, to %g", forebay.MaxTimeToLive.Seconds())
	}
	if at := m.ScheduledTime; at != nil && (at.Year() < 1970 || at.Year() > 9999) {
		return forebay.Invalid("scheduled_enqueue_time", "lies outside the years 1970 to 9999")
	}
	return nil
}

// ValidID reports whether s can be the id of a message or a session.
func ValidID(s string) bool {
	return forebay.ValidText(s, utf8.UTFMax*forebay.MaxIDCharacters) && utf8.RuneCountInString(s) <= forebay.MaxIDCharacters
}

// Seconds is a duration given in seconds.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
