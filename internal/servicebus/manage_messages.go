package servicebus

import (
	"context"
	"errors"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
)

const (
	// maxLocks is how many locks one request may name.
	maxLocks = 1000
	// answerBytes is the size at which an answer gets no more messages.
	answerBytes = 1 << 20
)

// locks returns the tokens of the locks that a request names.
func (m *managed) locks() ([]string, error) {
	elements, err := m.list("lock-tokens", maxLocks)
	if err != nil {
		return nil, err
	}
	tokens := make([]string, len(elements))
	for i, e := range elements {
		u, ok := e.(wire.UUID)
		if !ok {
			return nil, badArgument("The field lock-tokens must hold UUIDs.")
		}
		l := content.LockOf(u)
		tokens[i] = message.NewToken(l.Seq, l.Token)
	}
	return tokens, nil
}

func renewLocks(ctx context.Context, m *managed) (wire.Map, error) {
	tokens, err := m.locks()
	if err != nil {
		return nil, err
	}
	expirations := make([]any, len(tokens))
	for i, token := range tokens {
		until, err := m.messages.Messages.Renew(ctx, m.tenant, m.entity.Path, token)
		if err != nil {
			return nil, err
		}
		expirations[i] = until
	}
	return wire.Map{{Key: "expirations", Value: wire.ArrayOf(wire.ConstructorTimestamp, expirations...)}}, nil
}

// updateDisposition settles messages whose link may be gone.
func updateDisposition(ctx context.Context, m *managed) (wire.Map, error) {
	tokens, err := m.locks()
	if err != nil {
		return nil, err
	}
	changed, _ := m.field("properties-to-modify").(wire.Map)
	properties, err := propertiesOf(changed)
	if err != nil {
		return nil, err
	}
	step := messaging.Step{Path: m.entity.Path, How: forebay.Settlement{Properties: properties}}
	switch m.text("disposition-status") {
	case "completed":
		step.Kind, step.How = bus.StepComplete, forebay.Settlement{}
	case "abandoned":
		step.Kind = bus.StepAbandon
	case "defered", "deferred": // the former is how it is spelt on the wire
		step.Kind = bus.StepDefer
	case "suspended":
		step.Kind = bus.StepDeadLetter
		step.How.Reason, step.How.Description = m.text("deadletter-reason"), m.text("deadletter-description")
	default:
		return nil, badArgument("The disposition-status must be completed, abandoned, defered or suspended.")
	}
	for _, step.Token = range tokens {
		if m.transaction != nil {
			err = m.add(ctx, step)
		} else {
			err = m.settleAlone(ctx, m.tenant, step)
		}
		if err != nil {
			if session := m.text("session-id"); session != "" && errors.Is(err, forebay.ErrLockLost) {
				if _, lost := m.heldSession(m.entity.Path, session); lost != nil {
					return nil, lost
				}
			}
			return nil, err
		}
	}
	return wire.Map{}, nil
}

func peek(ctx context.Context, m *managed) (wire.Map, error) {
	from, err := m.integer("from-sequence-number", 0, 1<<63-1)
	if err != nil {
		return nil, err
	}
	count, err := m.integer("message-count", 1, 1<<31-1)
	if err != nil {
		return nil, err
	}
	if count < 1 {
		return nil, badArgument("The field message-count must be at least 1.")
	}
	found, _, err := m.messages.Raw.Peek(ctx, m.tenant, m.entity.Path, m.peekedSession(), from, int(min(count, messaging.MaxRawReceived)))
	if err != nil {
		return nil, err
	}
	var told wire.List
	size := 0
	for i := range found {
		encoded, err := encode(&found[i], m.entity, nil, content.Options{Peek: true})
		if err != nil {
			return nil, err
		}
		if size += len(encoded); size > answerBytes && i > 0 {
			break
		}
		told = append(told, wire.Map{{Key: "message", Value: encoded}})
	}
	if told == nil {
		return nil, nil
	}
	return wire.Map{{Key: "messages", Value: told}}, nil
}

func receiveDeferred(ctx context.Context, m *managed) (wire.Map, error) {
	numbers, err := m.numbers(messaging.MaxRawDeferred)
	if err != nil {
		return nil, err
	}
	mode, err := m.integer("receiver-settle-mode", 1, 1)
	if err != nil {
		return nil, err
	}
	want := messaging.Received{Mode: forebay.PeekLock}
	if mode == 0 {
		want.Mode = forebay.ReceiveAndDelete
		if m.transaction != nil {
			return nil, errNotInTransaction
		}
	}
	m.transaction = nil // a lock is no step
	var held *heldSession
	if m.entity.RequiresSession {
		if held, err = m.ownSession(); err != nil {
			return nil, err
		}
		want.Session = held.token
	}
	// Once the messages are taken the answer must not be refused.
	if err := memory.Grow(ctx, min(int64(len(numbers))*m.messages.Messages.MaxBytes(), messaging.MaxRawBytes)); err != nil {
		return nil, err
	}
	found, err := m.messages.Raw.ReceiveDeferred(ctx, m.tenant, m.entity.Path, want, numbers)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNoMessage
	}
	told := make(wire.List, len(found))
	for i := range found {
		if told[i], err = m.deferred(&found[i], want.Mode, held); err != nil {
			return nil, err
		}
	}
	return wire.Map{{Key: "messages", Value: told}}, nil
}

// deferred is a message as an answer holds it.
func (m *managed) deferred(found *bus.Message, mode forebay.ReceiveMode, held *heldSession) (wire.Map, error) {
	var lock wire.UUID
	if mode == forebay.PeekLock {
		lock = content.LockToken(found.Lock)
	}
	encoded, err := encode(found, m.entity, held, content.Options{LockToken: mode == forebay.PeekLock})
	return wire.Map{{Key: "message", Value: encoded}, {Key: "lock-token", Value: lock}}, err
}

// schedule stores messages that become active later. The time is in each of them.
func schedule(ctx context.Context, m *managed) (wire.Map, error) {
	elements, err := m.list("messages", messaging.MaxRawMessages)
	if err != nil {
		return nil, err
	}
	if err := takesMessages(m.entity); err != nil {
		return nil, err
	}
	var contents []message.Content
	for _, e := range elements {
		entry, _ := e.(wire.Map)
		encoded, _ := entry.Get("message")
		payload, ok := encoded.([]byte)
		if !ok {
			return nil, badArgument("Each of the messages must be a map that holds one, encoded, as message.")
		}
		c, err := content.FromAMQP(content.FormatMessage, payload)
		if err != nil {
			return nil, err
		}
		contents = append(contents, c...)
	}
	var numbers []int64
	if m.transaction != nil {
		numbers, err = m.transactions.Schedule(ctx, m.tenant, m.transaction, m.entity.Path, contents,
			m.stillAllowed(m.needs, m.entity.Path, m.tenant))
	} else {
		numbers, err = m.messages.Raw.Send(ctx, m.tenant, m.entity.Path, contents)
	}
	if err != nil {
		return nil, err
	}
	told := make([]any, len(numbers))
	for i, n := range numbers {
		told[i] = n
	}
	return wire.Map{{Key: "sequence-numbers", Value: wire.ArrayOf(wire.ConstructorLong, told...)}}, nil
}

// takesMessages refuses an entity that cannot be sent to.
func takesMessages(e messaging.Entity) error {
	switch {
	case e.DeadLetter:
		return errNotToSubqueue
	case e.Kind == messaging.KindSubscription:
		return errNeedsTopic
	}
	return nil
}

// cancelScheduled cancels as many messages as one request may schedule. If one is not found, the
// others are cancelled nevertheless. A transaction learns that when it is committed.
func cancelScheduled(ctx context.Context, m *managed) (wire.Map, error) {
	numbers, err := m.numbers(messaging.MaxRawMessages)
	if err != nil {
		return nil, err
	}
	if m.transaction != nil {
		for _, n := range numbers {
			if err := m.add(ctx, messaging.Step{Kind: bus.StepCancel, Path: m.entity.Path, Seq: n}); err != nil {
				return nil, err
			}
		}
		return wire.Map{}, nil
	}
	cancel := m.messages.Messages.CancelScheduled
	if m.entity.Kind == messaging.KindTopic {
		cancel = m.messages.Messages.CancelPublished
	}
	var cancelling sync.WaitGroup
	w, errs := m.workers(maxSettling, &cancelling), make([]error, len(numbers))
	for i, n := range numbers {
		w.do(func() { errs[i] = cancel(ctx, m.tenant, m.entity.Path, n) })
	}
	cancelling.Wait()
	return wire.Map{}, notCancelled(errs)
}

// notCancelled is what a client is told of the errors of its messages. One that was not there is
// gone for good. Anything else may be tried again, so it is told first.
func notCancelled(errs []error) (told error) {
	for _, err := range errs {
		switch {
		case forebay.CodeOf(err) == forebay.CodeNotFound:
			told = errNoMessage
		case err != nil:
			return err
		}
	}
	return told
}

func deleteMessages(ctx context.Context, m *managed) (wire.Map, error) {
	count, err := m.integer("message-count", 1, forebay.MaxBatchDelete)
	if err != nil {
		return nil, err
	}
	if session, _ := m.body.Get("session-id"); session != nil {
		return nil, badArgument("session-id is not supported: messages are deleted in all sessions of an entity")
	}
	before, err := m.time("enqueued-time-utc")
	if err != nil {
		return nil, err
	}
	deleted, err := m.messages.Messages.DeleteBefore(ctx, m.tenant, m.entity.Path, forebay.DeleteMessagesRequest{Before: before, MaxMessages: int(count)})
	if err != nil || deleted == 0 {
		return nil, err
	}
	return wire.Map{{Key: "message-count", Value: int32(deleted)}}, nil
}
