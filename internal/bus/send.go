package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// Send stores the messages, all or none of them, and returns once they are on disk.
func (s *Service) Send(ctx context.Context, tenant, path string, messages []forebay.NewMessage) ([]forebay.SentMessage, error) {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return nil, err
	}
	if e.deadLetter {
		return nil, forebay.Errorf(forebay.CodeNotSupported, "a dead-letter subqueue cannot be sent to; only dead-lettering fills it")
	}
	if e.Topic != 0 {
		return nil, forebay.Errorf(forebay.CodeNotSupported, "a subscription cannot be sent to; send to its topic")
	}
	return s.sendTo(ctx, tenant, e.MessageQueue, messages)
}

// sendTo sends to a queue or a topic.
func (s *Service) sendTo(ctx context.Context, tenant string, q MessageQueue, messages []forebay.NewMessage) ([]forebay.SentMessage, error) {
	if len(messages) < 1 || len(messages) > forebay.MaxMessagesPerCall {
		return nil, forebay.Invalid("messages", "must be 1 to %d", forebay.MaxMessagesPerCall)
	}
	contents := make([]MessageContent, len(messages))
	for i := range messages {
		var err error
		if contents[i], err = s.content(&messages[i]); err != nil {
			return nil, inMessage(err, i, len(messages))
		}
		if q.RequiresSession && contents[i].SessionID == "" {
			return nil, inMessage(ErrNoSessionID, i, len(messages))
		}
	}
	done, err := s.takeMessages(ctx, tenant, q, contents)
	if err != nil {
		return nil, err
	}
	defer done()
	seqs, err := s.store.Send(ctx, q, contents)
	if err != nil {
		if forebay.CodeOf(err) == forebay.CodeUnknownQueue {
			s.changed(q.Name)
		}
		return nil, err
	}
	sent := make([]forebay.SentMessage, len(seqs))
	for i, seq := range seqs {
		sent[i] = forebay.SentMessage{SequenceNumber: seq, MessageID: contents[i].MessageID}
	}
	return sent, nil
}

// inMessage says in which of several messages the error is.
func inMessage(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return inField(fmt.Sprintf("messages[%d]", i), err)
}

// inField puts the field an error is about below another.
func inField(field string, err error) error {
	var e *forebay.Error
	if !errors.As(err, &e) {
		return err
	}
	in := *e
	in.Field = strings.TrimSuffix(field+"."+e.Field, ".")
	return &in
}

func checkFields(m *forebay.NewMessage) error {
	for _, id := range []struct{ name, value string }{
		{"message_id", m.MessageID}, {"session_id", m.SessionID}, {"correlation_id", m.CorrelationID},
		{"reply_to_session_id", m.ReplyToSessionID}, {"partition_key", m.PartitionKey},
	} {
		if id.value != "" && !validID(id.value) {
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

// validID reports whether s can be the id of a message or a session.
func validID(s string) bool {
	return forebay.ValidText(s, utf8.UTFMax*forebay.MaxIDCharacters) && utf8.RuneCountInString(s) <= forebay.MaxIDCharacters
}

// content checks a message and brings it into the store's form.
func (s *Service) content(m *forebay.NewMessage) (c MessageContent, err error) {
	if err := checkFields(m); err != nil {
		return c, err
	}
	c = MessageContent{MessageID: m.MessageID, SessionID: m.SessionID, CorrelationID: m.CorrelationID, Subject: m.Subject, To: m.To,
		ReplyTo: m.ReplyTo, ReplyToSessionID: m.ReplyToSessionID, ContentType: m.ContentType, PartitionKey: m.PartitionKey,
		TTL: max(seconds(m.TimeToLiveSeconds), 0), ScheduledAt: m.ScheduledTime, Body: m.BodyBase64}
	if c.MessageID == "" {
		c.MessageID = newMessageID()
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
	if c.Size() > s.maxBytes {
		return c, &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "body",
			Message: fmt.Sprintf("makes the message %d bytes, with its properties; it may have at most %d", c.Size(), s.maxBytes)}
	}
	return c, nil
}

// CancelScheduled removes a message that was scheduled under that number and is not active yet.
func (s *Service) CancelScheduled(ctx context.Context, tenant, path string, seq int64) error {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return err
	}
	cancelled, err := s.store.CancelScheduled(ctx, e.MessageQueue, seq)
	if err == nil && (!cancelled || e.deadLetter) {
		return forebay.Errorf(forebay.CodeNotFound, "no message is scheduled under this number; once it is active it has another")
	}
	return err
}
