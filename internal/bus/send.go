package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
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
	if len(messages) < 1 || len(messages) > forebay.MaxMessagesPerCall {
		return nil, forebay.Invalid("messages", "must be 1 to %d", forebay.MaxMessagesPerCall)
	}
	contents := make([]store.MessageContent, len(messages))
	for i := range messages {
		if contents[i], err = s.content(&messages[i]); err != nil {
			return nil, inMessage(err, i, len(messages))
		}
	}
	seqs, err := s.store.Send(ctx, e.MessageQueue, contents)
	if err != nil {
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
	var e *forebay.Error
	if !errors.As(err, &e) || of == 1 {
		return err
	}
	in := *e
	in.Field = fmt.Sprintf("messages[%d]", i)
	if e.Field != "" {
		in.Field += "." + e.Field
	}
	return &in
}

// content checks a message and brings it into the store's form.
func (s *Service) content(m *forebay.NewMessage) (c store.MessageContent, err error) {
	for _, field := range []struct {
		name, value string
		max         int
	}{
		{"message_id", m.MessageID, forebay.MaxMessageIDBytes},
		{"correlation_id", m.CorrelationID, forebay.MaxCorrelationBytes},
		{"subject", m.Subject, forebay.MaxPropertyBytes},
		{"to", m.To, forebay.MaxPropertyBytes},
		{"reply_to", m.ReplyTo, forebay.MaxPropertyBytes},
		{"content_type", m.ContentType, forebay.MaxPropertyBytes},
	} {
		if field.value != "" && !forebay.ValidText(field.value, field.max) {
			return c, forebay.Invalid(field.name, "must be at most %d bytes of text without control characters", field.max)
		}
	}
	c = store.MessageContent{MessageID: m.MessageID, CorrelationID: m.CorrelationID, Subject: m.Subject, To: m.To, ReplyTo: m.ReplyTo,
		ContentType: m.ContentType, Body: m.BodyBase64}
	if c.MessageID == "" {
		c.MessageID = newMessageID()
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
