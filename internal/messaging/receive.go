package messaging

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/turns"
)

const (
	// maxAnswerBytes is the size at which a receive or a peek adds no more messages.
	maxAnswerBytes = 2 << 20
	// freeBytes is how many bytes a peek reads without asking for memory or a turn.
	freeBytes     = turns.LargeBytes
	undeliverTime = 10 * time.Second
)

// Receive takes up to MaxMessages messages, those that became ready first. It returns fewer if
// there are fewer, or if they are large. It waits for a first message as long as the request
// says, and returns none if none comes. Under peek-lock each message carries the token that
// settles it.
func (s Messages) Receive(ctx context.Context, tenant, path string, req forebay.ReceiveRequest) (got []forebay.Message, err error) {
	err = s.again(tenant, func() error {
		got, err = s.receiveOf(ctx, tenant, path, req)
		return err
	})
	return got, err
}

func (s Messages) receiveOf(ctx context.Context, tenant, path string, req forebay.ReceiveRequest) ([]forebay.Message, error) {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return nil, err
	}
	if err := checkReceive(req); err != nil {
		return nil, err
	}
	if e.RequiresSession && !e.deadLetter {
		return nil, errNeedsSession
	}
	if e.ForwardTo != "" && !e.deadLetter {
		return nil, errForwards
	}
	return s.receive(ctx, e, nil, req)
}

var (
	errNeedsSession = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "this queue requires sessions: accept one and receive its messages"}
	errForwards     = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "this queue forwards its messages: receive them where they go"}
)

func (s Messages) receive(ctx context.Context, e namedQueue, session *bus.SessionLock, req forebay.ReceiveRequest) (_ []forebay.Message, err error) {
	wait, err := req.WaitTime()
	if err != nil {
		return nil, err
	}
	want := bus.ReceiveRequest{
		Queue: e.MessageQueue, DeadLetter: e.deadLetter, Session: session, Max: cmp.Or(req.MaxMessages, 1), MaxBytes: maxAnswerBytes,
		Wait: wait > 0, Delete: req.Mode == forebay.ReceiveAndDelete,
	}
	got, err := s.take(ctx, want, req.DeferredSequenceNumbers, wait)
	if err != nil {
		s.noteGone(e.MessageQueue, err)
		return nil, err
	}
	return s.answer(ctx, want, got)
}

// take receives the deferred messages of these numbers or, without numbers, those that are ready.
func (s Messages) take(ctx context.Context, want bus.ReceiveRequest, deferred []int64, wait time.Duration) ([]bus.Message, error) {
	switch {
	case deferred != nil:
		return s.store.ReceiveDeferred(ctx, want, deferred)
	case want.Wait:
		return s.wait(ctx, want, wait)
	}
	return s.store.Receive(ctx, want)
}

// answer returns what was received. If the caller has gone it gives the messages back: nobody
// would ever see their locks.
func (s Messages) answer(ctx context.Context, want bus.ReceiveRequest, got []bus.Message) ([]forebay.Message, error) {
	if ctx.Err() != nil && !want.Delete {
		return nil, errors.Join(ctx.Err(), s.undeliver(ctx, want, got))
	}
	return messagesOf(got)
}

func checkReceive(req forebay.ReceiveRequest) error {
	if req.Mode != "" && req.Mode != forebay.PeekLock && req.Mode != forebay.ReceiveAndDelete {
		return forebay.Invalid("mode", "must be %s or %s", forebay.PeekLock, forebay.ReceiveAndDelete)
	}
	wait, err := req.WaitTime()
	if err != nil {
		return err
	}
	if req.MaxMessages < 0 || req.MaxMessages > forebay.MaxMessagesPerCall {
		return forebay.Invalid("max_messages", "goes from 1 to %d", forebay.MaxMessagesPerCall)
	}
	if req.DeferredSequenceNumbers == nil {
		return nil
	}
	if n := len(req.DeferredSequenceNumbers); n < 1 || n > forebay.MaxMessagesPerCall {
		return forebay.Invalid("deferred_sequence_numbers", "must be 1 to %d", forebay.MaxMessagesPerCall)
	}
	if req.MaxMessages != 0 || wait != 0 {
		return forebay.Invalid("deferred_sequence_numbers", "does not go with max_messages or wait")
	}
	return nil
}

// wait receives until there is a message, the time has passed, or the caller is gone.
func (s Messages) wait(ctx context.Context, want bus.ReceiveRequest, limit time.Duration) ([]bus.Message, error) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got, err := s.store.Receive(waiting, want)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return got, err
}

func (s Messages) undeliver(ctx context.Context, want bus.ReceiveRequest, messages []bus.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undeliverTime)
	defer cancel()
	locks := make([]queue.Lock, len(messages))
	for i, m := range messages {
		locks[i] = m.Lock
	}
	return s.store.Undeliver(ctx, want.Queue.Subqueue(want.DeadLetter), locks)
}

// PeekFilter selects messages to peek at.
type PeekFilter struct {
	From   int64  // the first sequence number
	Reason string // only dead letters with this dead_letter_reason; "": all messages
	Limit  int    // 0: DefaultPageSize
}

// Peek returns messages in any state without locking them. next is the number to continue with, 0
// at the end. A page may be empty although more follow.
func (s Messages) Peek(ctx context.Context, tenant, path string, f PeekFilter) (messages []forebay.Message, next int64, err error) {
	e, err := s.entityNow(ctx, tenant, path)
	if err != nil {
		return nil, 0, err
	}
	if f.Limit < 0 || f.Limit > forebay.MaxMessagesPerCall {
		return nil, 0, forebay.Invalid("limit", "goes from 1 to %d", forebay.MaxMessagesPerCall)
	}
	if f.From < 0 {
		return nil, 0, forebay.Invalid("from_sequence_number", "must not be negative")
	}
	if err := bus.Used(ctx, s.store.Writer, e.MessageQueue); err != nil {
		return nil, 0, err
	}
	if f.Reason != "" && !e.deadLetter {
		return nil, 0, forebay.Invalid("reason", "is only for dead letters: look at the queue's %s", forebay.SubqueueDeadLetter)
	}
	got, next, err := s.peek(ctx, bus.PeekQuery{Subqueue: e.subqueue(), From: f.From, Reason: f.Reason, Limit: cmp.Or(f.Limit, forebay.DefaultPageSize), MaxBytes: freeBytes})
	if err != nil {
		return nil, 0, err
	}
	messages, err = messagesOf(got)
	return messages, next, err
}

// peek reads a page. A page larger than freeBytes is read again, with memory reserved and in a
// turn. So only so many large pages are read at once.
func (s Messages) peek(ctx context.Context, q bus.PeekQuery) (messages []bus.Message, next int64, err error) {
	messages, next, cut, err := s.store.Peek(ctx, q)
	if err != nil || !cut {
		return messages, next, err
	}
	if err := memory.Grow(ctx, maxAnswerBytes); err != nil {
		return nil, 0, err
	}
	q.MaxBytes, q.AtLeast = maxAnswerBytes, 1
	messages, next, _, err = s.store.PeekMany(ctx, q)
	return messages, next, err
}

func messagesOf(stored []bus.Message) ([]forebay.Message, error) {
	messages := make([]forebay.Message, len(stored))
	for i := range stored {
		var err error
		if messages[i], err = messageOf(&stored[i]); err != nil {
			return nil, fmt.Errorf("read message %d: %w", stored[i].Seq, err)
		}
	}
	return messages, nil
}

func messageOf(s *bus.Message) (forebay.Message, error) {
	m := forebay.Message{
		SequenceNumber: s.Seq, EnqueuedSequenceNumber: s.EnqueuedSeq,
		NewMessage: forebay.NewMessage{MessageID: s.MessageID, SessionID: s.SessionID, CorrelationID: s.CorrelationID, Subject: s.Subject, To: s.To,
			ReplyTo: s.ReplyTo, ReplyToSessionID: s.ReplyToSessionID, ContentType: s.ContentType, PartitionKey: s.PartitionKey,
			TimeToLiveSeconds: s.TTL.Seconds(), ScheduledTime: s.ScheduledAt},
		EnqueuedTime: s.EnqueuedAt, ExpiresAt: s.ExpiresAt, DeliveryCount: s.Deliveries, State: s.State, LockedUntil: s.LockedUntil,
		DeadLetterSource: s.DeadLetterSource, DeadLetterReason: s.DeadLetterReason, DeadLetterDescription: s.DeadLetterDescription,
	}
	// A peek shows a locked deferred message as locked. Its receiver sees it as deferred, the
	// state it returns to.
	if m.State == forebay.MessageActive && s.Token != 0 || m.State != forebay.MessageScheduled && s.Token == 0 && s.LockedUntil != nil {
		m.State = forebay.MessageLocked
	}
	if s.Token != 0 {
		m.LockToken = message.NewToken(s.Seq, s.Token)
	}
	if s.Text {
		body := string(s.Body)
		m.Body = &body
	} else {
		m.BodyBase64 = s.Body
		if m.BodyBase64 == nil { // nil would be no body
			m.BodyBase64 = []byte{}
		}
	}
	if s.Properties == nil {
		return m, nil
	}
	return m, json.Unmarshal(s.Properties, &m.Properties)
}

// DeleteBefore deletes active messages that were enqueued before a time, the oldest first, and
// returns how many.
func (s Messages) DeleteBefore(ctx context.Context, tenant, path string, req forebay.DeleteMessagesRequest) (deleted int, err error) {
	e, err := s.entityNow(ctx, tenant, path)
	if err != nil {
		return 0, err
	}
	if req.Before.IsZero() {
		return 0, forebay.Invalid("enqueued_before", "is missing")
	}
	limit := cmp.Or(req.MaxMessages, forebay.MaxBatchDelete)
	if limit < 1 || limit > forebay.MaxBatchDelete {
		return 0, forebay.Invalid("max_messages", "goes from 1 to %d", forebay.MaxBatchDelete)
	}
	if err := bus.Used(ctx, s.store.Writer, e.MessageQueue); err != nil {
		return 0, err
	}
	return s.store.DeleteBefore(ctx, e.subqueue(), req.Before, limit)
}
