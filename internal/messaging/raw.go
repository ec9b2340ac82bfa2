package messaging

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// Raw is messages as another protocol carries them. Entities are named by path: a queue, a
// topic, TOPIC/subscriptions/NAME, or the dead-letter subqueue of a queue or a subscription.
// Names match without regard to case. A name that matches exactly goes before others, and of
// these the first by name.
type Raw struct{ *entities }

// Limits on one call of Raw. The number of messages that are sent is that of Service Bus
// (service-bus-quotas, "Maximum number of messages per batch").
const (
	MaxRawMessages = 4500 // sent at once
	MaxRawReceived = 1000 // received or peeked at once
	MaxRawDeferred = 1000 // deferred messages received at once
	// MaxRawBytes is the size at which a receive takes no more messages, after the first.
	MaxRawBytes  = maxAnswerBytes
	storedBySent = 4 // how many bytes are stored at most for each that may be sent
)

// Entity is what a path names.
type Entity struct {
	Path            string // as the entity is spelled, for the other methods of the service
	Kind            EntityKind
	DeadLetter      bool // the dead-letter subqueue of the queue or subscription
	RequiresSession bool // never of a dead-letter subqueue
	Lock            time.Duration
	MaxDeliveries   int
	ForwardTo       string // where a queue or subscription sends what arrives; "": it keeps it
	Refusal         error  // why nobody may receive from it; nil: they may
}

// EntityKind says what kind of entity a path names.
type EntityKind string

const (
	KindQueue        EntityKind = "queue"
	KindTopic        EntityKind = "topic"
	KindSubscription EntityKind = "subscription"
)

// Entity returns what the path names. It returns CodeUnknownQueue if there is no such entity.
func (s Raw) Entity(ctx context.Context, tenant, path string) (Entity, error) {
	e, err := s.find(ctx, tenant, path)
	if err != nil {
		return Entity{}, err
	}
	return entityOf(e), nil
}

// Current is Entity by what is stored now. What is remembered another process may have dropped.
func (s Raw) Current(ctx context.Context, tenant, path string) (Entity, error) {
	e, err := s.found(ctx, tenant, path, s.read)
	if err != nil {
		return Entity{}, err
	}
	return entityOf(e), nil
}

func entityOf(e namedQueue) Entity {
	name := entity.NameOf(e.Name)
	found := Entity{Path: name, Kind: KindQueue, DeadLetter: e.deadLetter, RequiresSession: e.RequiresSession && !e.deadLetter, Lock: e.Lock,
		MaxDeliveries: e.MaxDeliveries, ForwardTo: entity.NameOf(e.ForwardTo)}
	if !e.Status.Receives() {
		found.Refusal = entity.ErrReceiveDisabled
	}
	switch {
	case e.IsTopic:
		found.Kind = KindTopic
	case e.Topic != 0:
		found.Kind = KindSubscription
	}
	if e.deadLetter {
		found.Path += "/" + forebay.SubqueueDeadLetter
		found.ForwardTo = ""
	}
	return found
}

// find finds what a path names, whatever its case.
func (s Raw) find(ctx context.Context, tenant, path string) (namedQueue, error) {
	return s.found(ctx, tenant, path, s.folded)
}

// found is find by a function that finds an entity by its name in the store, in any case.
func (s Raw) found(ctx context.Context, tenant, path string, by func(ctx context.Context, tenant, key string) (bus.MessageQueue, error)) (namedQueue, error) {
	name, subscription, sub := forebay.CutEntityPath(path)
	if sub != "" && !strings.EqualFold(sub, forebay.SubqueueDeadLetter) {
		return namedQueue{}, entity.ErrNoQueue
	}
	if subscription != "" {
		name = forebay.SubscriptionPath(name, subscription)
	}
	if !entity.ValidName(name) {
		return namedQueue{}, entity.ErrNoQueue
	}
	q, err := by(ctx, tenant, entity.StoredName(tenant, name))
	if err == nil && q.IsTopic && sub != "" {
		err = entity.ErrNoQueue
	}
	return namedQueue{q, sub != ""}, err
}

// folded finds a queue, a topic or a subscription by its name in the store in any case, from
// memory if possible.
func (s *entities) folded(ctx context.Context, tenant, key string) (bus.MessageQueue, error) {
	if name, known := s.of(key).spelling(key); known {
		if q, err := s.stored(ctx, name); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			return q, err
		}
	}
	return s.read(ctx, tenant, key)
}

// read is folded by what is stored now.
func (s *entities) read(ctx context.Context, tenant, key string) (bus.MessageQueue, error) {
	m, began := s.of(key), time.Now()
	changes := m.changesSoFar()
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return bus.MessageQueue{}, err
	}
	q, found, err := s.store.Entities().Folded(ctx, no, key)
	if err != nil {
		return q, err
	}
	if !found {
		return q, entity.ErrNoQueue
	}
	m.remember(q.Name, remembered{q, began}, changes)
	m.rememberSpelling(key, spelling{q.Name, began}, changes)
	return q, nil
}

// Send stores messages in a queue or a topic, all or none of them, and returns their sequence
// numbers once they are on disk. It takes up to MaxRawMessages messages. As they are stored,
// they may have four times as many bytes as MaxBytes allows one message: what came over AMQP is
// partly stored twice. The caller bounds what is sent.
func (s Raw) Send(ctx context.Context, tenant, path string, messages []message.Content) (numbers []int64, err error) {
	err = s.again(tenant, func() error {
		numbers, err = s.send(ctx, tenant, path, messages)
		return err
	})
	return numbers, err
}

func (s Raw) send(ctx context.Context, tenant, path string, messages []message.Content) ([]int64, error) {
	e, err := s.find(ctx, tenant, path)
	if err == nil {
		err = e.checkSend()
	}
	switch {
	case err != nil:
		return nil, err
	case len(messages) < 1 || len(messages) > MaxRawMessages:
		return nil, forebay.Invalid("messages", "must be 1 to %d", MaxRawMessages)
	}
	size, most := int64(0), storedBySent*s.maxBytes
	for i := range messages {
		if e.RequiresSession && messages[i].SessionID == "" {
			return nil, inMessage(bus.ErrNoSessionID, i, len(messages))
		}
		if size += messages[i].Size(); size > most {
			return nil, forebay.Errorf(forebay.CodePayloadTooLarge, "the messages take more than %d bytes as they are stored; send fewer at a time", most)
		}
	}
	return Messages(s).sendChecked(ctx, tenant, e.MessageQueue, messages)
}

// Received says which messages Receive, ReceiveDeferred or Peek is to return.
type Received struct {
	Session string // the token of the session that was accepted, of a queue that requires sessions
	Mode    forebay.ReceiveMode
	Max     int           // 1 to MaxRawReceived
	Wait    time.Duration // for a first message; 0: not at all
}

// Receive takes messages of an entity, those that became ready first, or those of a session in
// the order of their numbers. It returns fewer than Max if there are fewer, or if they are
// large. It waits for a first message, and returns none if none comes. If ctx ends meanwhile,
// messages that were locked are given back.
func (s Raw) Receive(ctx context.Context, tenant, path string, r Received) ([]bus.Message, error) {
	if r.Max < 1 || r.Max > MaxRawReceived {
		return nil, forebay.Invalid("max_messages", "goes from 1 to %d", MaxRawReceived)
	}
	return s.receive(ctx, tenant, path, r, nil)
}

// ReceiveDeferred takes deferred messages by their numbers, up to MaxRawDeferred. It leaves out
// those that are not deferred, or are locked.
func (s Raw) ReceiveDeferred(ctx context.Context, tenant, path string, r Received, numbers []int64) ([]bus.Message, error) {
	if len(numbers) < 1 || len(numbers) > MaxRawDeferred {
		return nil, forebay.Invalid("deferred_sequence_numbers", "must be 1 to %d", MaxRawDeferred)
	}
	return s.receive(ctx, tenant, path, r, numbers)
}

func (s Raw) receive(ctx context.Context, tenant, path string, r Received, deferred []int64) ([]bus.Message, error) {
	e, err := s.find(ctx, tenant, path)
	if err != nil {
		return nil, err
	}
	if r.Mode != "" && r.Mode != forebay.PeekLock && r.Mode != forebay.ReceiveAndDelete {
		return nil, forebay.Invalid("mode", "must be %s or %s", forebay.PeekLock, forebay.ReceiveAndDelete)
	}
	var session *bus.SessionLock
	switch needs := e.RequiresSession && !e.deadLetter; {
	case e.IsTopic:
		return nil, forebay.Errorf(forebay.CodeNotSupported, "a topic cannot be received from; receive from its subscriptions")
	case needs && r.Session == "":
		return nil, errNeedsSession
	case !needs && r.Session != "":
		return nil, errNoSessions
	case needs:
		session = &bus.SessionLock{}
		if session.No, session.Token, err = message.ParseToken("session_token", r.Session); err != nil {
			return nil, err
		}
	case e.ForwardTo != "" && !e.deadLetter:
		return nil, errForwards
	}
	want := bus.ReceiveRequest{Queue: e.MessageQueue, DeadLetter: e.deadLetter, Session: session, Max: r.Max, MaxBytes: maxAnswerBytes,
		Wait: r.Wait > 0, Delete: r.Mode == forebay.ReceiveAndDelete}
	m := Messages(s)
	got, err := m.take(ctx, want, deferred, r.Wait)
	s.noteGone(e.MessageQueue, err)
	if err == nil && ctx.Err() != nil && !want.Delete { // nobody would ever see the locks
		err = errors.Join(ctx.Err(), m.undeliver(ctx, want, got))
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

// Peek returns messages in any state, from that sequence number on, without locking them, in
// the order of their numbers. next is the number to continue with, 0 at the end. With the id of
// a session it returns only what that session has, without what is scheduled.
func (s Raw) Peek(ctx context.Context, tenant, path, session string, from int64, most int) (messages []bus.Message, next int64, err error) {
	e, err := s.find(ctx, tenant, path)
	if err != nil {
		return nil, 0, err
	}
	if most < 1 || most > MaxRawReceived {
		return nil, 0, forebay.Invalid("limit", "goes from 1 to %d", MaxRawReceived)
	}
	if from < 0 {
		return nil, 0, forebay.Invalid("from_sequence_number", "must not be negative")
	}
	if session != "" && (!e.RequiresSession || e.deadLetter) {
		return nil, 0, errNoSessions
	}
	if err := bus.Used(ctx, s.store.Writer, e.MessageQueue); err != nil {
		return nil, 0, err
	}
	return Messages(s).peek(ctx, bus.PeekQuery{Subqueue: e.subqueue(), From: from, Session: session, Limit: most, MaxBytes: freeBytes})
}
