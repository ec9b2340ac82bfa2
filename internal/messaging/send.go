package messaging

import (
	"context"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Send stores the messages, all or none of them, and returns once they are on disk.
func (s Messages) Send(ctx context.Context, tenant, path string, messages []forebay.NewMessage) (sent []forebay.SentMessage, err error) {
	err = s.again(tenant, func() error {
		e, err := s.entity(ctx, tenant, path)
		if err == nil {
			err = e.checkSend()
		}
		if err == nil {
			sent, err = s.sendTo(ctx, tenant, e.MessageQueue, messages)
		}
		return err
	})
	return sent, err
}

// checkSend refuses entities that nobody can send to.
func (e namedQueue) checkSend() error {
	switch {
	case e.deadLetter:
		return forebay.Errorf(forebay.CodeNotSupported, "a dead-letter subqueue cannot be sent to; only dead-lettering fills it")
	case e.Topic != 0:
		return forebay.Errorf(forebay.CodeNotSupported, "a subscription cannot be sent to; send to its topic")
	case e.IsTopic && entity.OnlyForebayPublishes(e.Name):
		return errOurTopic
	}
	return nil
}

// sendTo sends to a queue or a topic.
func (s Messages) sendTo(ctx context.Context, tenant string, q bus.MessageQueue, messages []forebay.NewMessage) ([]forebay.SentMessage, error) {
	if len(messages) < 1 || len(messages) > forebay.MaxMessagesPerCall {
		return nil, forebay.Invalid("messages", "must hold 1 to %d messages", forebay.MaxMessagesPerCall)
	}
	contents := make([]bus.MessageContent, len(messages))
	for i := range messages {
		var err error
		if contents[i], err = message.New(&messages[i], s.maxBytes); err != nil {
			return nil, inMessage(err, i, len(messages))
		}
	}
	if err := s.checkContents(q, contents); err != nil {
		return nil, err
	}
	seqs, err := s.sendChecked(ctx, tenant, q, contents)
	if err != nil {
		return nil, err
	}
	sent := make([]forebay.SentMessage, len(seqs))
	for i, seq := range seqs {
		sent[i] = forebay.SentMessage{SequenceNumber: seq, MessageID: contents[i].MessageID}
	}
	return sent, nil
}

// sendChecked sends messages that were checked.
func (s Messages) sendChecked(ctx context.Context, tenant string, q bus.MessageQueue, contents []bus.MessageContent) ([]int64, error) {
	done, err := s.takeMessages(ctx, tenant, toQueue{q, contents})
	if err != nil {
		return nil, err
	}
	defer done()
	seqs, err := s.store.Send(ctx, q, contents)
	s.noteGone(q, err)
	return seqs, err
}

// checkContents refuses messages that the queue or topic does not take.
func (s *entities) checkContents(q bus.MessageQueue, contents []bus.MessageContent) error {
	for i := range contents {
		most := s.maxBytes
		if contents[i].AMQP != nil { // which is partly stored twice
			most *= storedBySent
		}
		err := contents[i].CheckSize("body", most)
		if err == nil && q.RequiresSession && contents[i].SessionID == "" {
			err = bus.ErrNoSessionID
		}
		if err != nil {
			return inMessage(err, i, len(contents))
		}
	}
	return nil
}

// inMessage says in which of several messages the error is.
func inMessage(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return rules.InField(fmt.Sprintf("messages[%d]", i), err)
}

// CancelScheduled removes a message that was scheduled under that number and is not active yet.
func (s Messages) CancelScheduled(ctx context.Context, tenant, path string, seq int64) error {
	e, err := s.entityNow(ctx, tenant, path)
	if err != nil {
		return err
	}
	if e.deadLetter {
		return bus.ErrNotScheduled(e.MessageQueue)
	}
	cancelled, err := s.store.CancelScheduled(ctx, e.MessageQueue, seq)
	if err == nil && !cancelled {
		return bus.ErrNotScheduled(e.MessageQueue)
	}
	return err
}
