package messaging

import (
	"context"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Send stores the messages, all or none of them, and returns once they are on disk.
func (s Messages) Send(ctx context.Context, tenant, path string, messages []forebay.NewMessage) ([]forebay.SentMessage, error) {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return nil, err
	}
	if e.deadLetter {
		return nil, errSendsToDeadLetters
	}
	if e.Topic != 0 {
		return nil, errSendsToSubscription
	}
	return s.sendTo(ctx, tenant, e.MessageQueue, messages)
}

var (
	errSendsToDeadLetters  = forebay.Errorf(forebay.CodeNotSupported, "a dead-letter subqueue cannot be sent to; only dead-lettering fills it")
	errSendsToSubscription = forebay.Errorf(forebay.CodeNotSupported, "a subscription cannot be sent to; send to its topic")
)

// sendTo sends to a queue or a topic.
func (s Messages) sendTo(ctx context.Context, tenant string, q bus.MessageQueue, messages []forebay.NewMessage) ([]forebay.SentMessage, error) {
	if len(messages) < 1 || len(messages) > forebay.MaxMessagesPerCall {
		return nil, forebay.Invalid("messages", "must be 1 to %d", forebay.MaxMessagesPerCall)
	}
	contents := make([]bus.MessageContent, len(messages))
	for i := range messages {
		var err error
		if contents[i], err = message.New(&messages[i], s.maxBytes); err != nil {
			return nil, inMessage(err, i, len(messages))
		}
		if q.RequiresSession && contents[i].SessionID == "" {
			return nil, inMessage(bus.ErrNoSessionID, i, len(messages))
		}
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
	done, err := s.takeMessages(ctx, tenant, q, contents)
	if err != nil {
		return nil, err
	}
	defer done()
	seqs, err := s.store.Send(ctx, q, contents)
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue {
		s.changed(q.Name)
	}
	return seqs, err
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
