package messaging

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/queue"
)

// Settlements return forebay.ErrLockLost, and change nothing, once the lock has ended.

// maxDescriptionBytes bounds a dead-letter reason and its description (Service Bus documentation,
// "service-bus-dead-letter-queues").
const maxDescriptionBytes = 4096

// Complete deletes a message that has been processed.
func (s Messages) Complete(ctx context.Context, tenant, path, token string) error {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepComplete, forebay.Settlement{})
	if err != nil {
		return err
	}
	return s.store.Complete(ctx, e.subqueue(), lock)
}

// CompleteMany completes messages of one entity, each by itself, and returns an error for each
// that was not completed.
func (s Messages) CompleteMany(ctx context.Context, tenant, path string, tokens []string) []error {
	failed := make([]error, len(tokens))
	e, unknown := s.entity(ctx, tenant, path)
	if unknown == nil {
		unknown = bus.Used(ctx, s.store.Writer, e.MessageQueue)
	}
	locks, places := make([]queue.Lock, 0, len(tokens)), make([]int, 0, len(tokens)) // in failed
	for i, token := range tokens {
		var lock queue.Lock
		if failed[i] = unknown; unknown == nil {
			lock.Seq, lock.Token, failed[i] = message.ParseToken("lock_token", token)
		}
		if failed[i] == nil {
			locks, places = append(locks, lock), append(places, i)
		}
	}
	if len(locks) == 0 {
		return failed
	}
	each, err := s.store.CompleteMany(ctx, e.subqueue(), locks)
	for n, i := range places {
		if failed[i] = err; err == nil { // else there may be none for each
			failed[i] = each[n]
		}
	}
	return failed
}

// Abandon gives a message back at once. The delivery counts.
func (s Messages) Abandon(ctx context.Context, tenant, path, token string, how forebay.Settlement) error {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepAbandon, how)
	if err != nil {
		return err
	}
	return s.store.Abandon(ctx, e.MessageQueue, e.subqueue(), lock, how.Properties)
}

// Release gives a message back at once. The delivery does not count.
func (s Messages) Release(ctx context.Context, tenant, path, token string) error {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepRelease, forebay.Settlement{})
	if err != nil {
		return err
	}
	return s.store.ReleaseMessage(ctx, e.subqueue(), lock)
}

// Defer keeps a message in its queue, where only its sequence number finds it.
func (s Messages) Defer(ctx context.Context, tenant, path, token string, how forebay.Settlement) error {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepDefer, how)
	if err != nil {
		return err
	}
	return s.store.Defer(ctx, e.subqueue(), lock, how.Properties)
}

// DeadLetter moves a message to the dead-letter subqueue, with a reason and a description.
func (s Messages) DeadLetter(ctx context.Context, tenant, path, token string, how forebay.Settlement) error {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepDeadLetter, how)
	if err != nil {
		return err
	}
	return s.store.DeadLetter(ctx, e.subqueue(), lock, bus.DeadLettering{Reason: how.Reason, Description: how.Description}, how.Properties)
}

// Renew extends the lock by the queue's lock duration from now and returns when it will end.
func (s Messages) Renew(ctx context.Context, tenant, path, token string) (until time.Time, err error) {
	e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepRelease, forebay.Settlement{})
	if err != nil {
		return until, err
	}
	return s.store.RenewMessage(ctx, e.subqueue(), lock, e.Lock)
}

// delivery finds the queue and the lock of a settlement, and records that the queue is in use.
func (s Messages) delivery(ctx context.Context, tenant, path, token string, kind bus.StepKind, how forebay.Settlement) (e namedQueue, lock queue.Lock, err error) {
	if e, lock, err = s.settlement(ctx, tenant, path, token, kind, how); err != nil {
		return e, lock, err
	}
	return e, lock, bus.Used(ctx, s.store.Writer, e.MessageQueue)
}

// settlement finds the queue and the lock of a settlement, and checks how the message is settled.
// Changed properties are checked with the message's own later. Checking them here first keeps
// anything large from the store.
func (s *entities) settlement(ctx context.Context, tenant, path, token string, kind bus.StepKind, how forebay.Settlement) (e namedQueue, lock queue.Lock, err error) {
	if e, err = s.entity(ctx, tenant, path); err != nil {
		return e, lock, err
	}
	if lock.Seq, lock.Token, err = message.ParseToken("lock_token", token); err != nil {
		return e, lock, err
	}
	if err := how.Properties.Check(); err != nil {
		return e, lock, err
	}
	if kind != bus.StepDeadLetter {
		return e, lock, unexplained(how)
	}
	if e.deadLetter {
		return e, lock, forebay.Errorf(forebay.CodeNotSupported, "the message is in the dead-letter subqueue already")
	}
	for name, text := range map[string]string{"reason": how.Reason, "description": how.Description} {
		if len(text) > maxDescriptionBytes || !utf8.ValidString(text) {
			return e, lock, forebay.Invalid(name, "must be at most %d bytes of UTF-8", maxDescriptionBytes)
		}
	}
	return e, lock, nil
}

func unexplained(how forebay.Settlement) error {
	if how.Reason != "" || how.Description != "" {
		return forebay.Invalid("reason", "and description are for dead-letter only")
	}
	return nil
}

// Return gives messages back at once; their deliveries do not count. Messages whose lock has
// ended stay as they are.
func (s Messages) Return(ctx context.Context, tenant, path string, tokens []string) error {
	var subqueue queue.Subqueue
	locks := make([]queue.Lock, len(tokens))
	for i, token := range tokens {
		e, lock, err := s.delivery(ctx, tenant, path, token, bus.StepRelease, forebay.Settlement{})
		if err != nil {
			return err
		}
		subqueue, locks[i] = e.subqueue(), lock
	}
	if len(locks) == 0 {
		return nil
	}
	return s.store.Undeliver(ctx, subqueue, locks)
}
