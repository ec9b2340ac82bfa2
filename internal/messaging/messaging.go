// Package messaging is plain messages as clients see them. A [Service] validates, applies limits
// and defaults, and keeps tenants apart. A queue belongs to the tenant that created it. Its name
// is unique within the tenant. Package bus has the transitions and their SQL.
package messaging

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/queue"
)

// Options are the settings of a Service.
type Options struct {
	Store           *bus.Store
	MaxMessageBytes int64 // 0: forebay.DefaultMaxMessageBytes
	// Taken reports whether the tenant already knows a queue for jobs by that name; nil: never.
	Taken func(ctx context.Context, tenant, name string) bool
	// Limits bounds what tenants send and create; nil: nothing is limited.
	Limits *limits.Meter
}

// Service answers everything about queues of messages, each part one subject. All methods are
// safe for concurrent use. They return *forebay.Error values for a caller's mistakes. An entity
// is a queue's name or the path of its dead-letter subqueue.
type Service struct {
	Queues        Queues
	Topics        Topics
	Subscriptions Subscriptions
	Rules         Rules
	Messages      Messages
	Sessions      Sessions
	DeadLetters   DeadLetters
	Management    Management
	Raw           Raw
	Transactions  Transactions
}

type (
	// Queues creates, changes, shows and deletes queues.
	Queues struct{ *entities }
	// Topics creates, changes, shows and deletes topics.
	Topics struct{ *entities }
	// Subscriptions creates, changes, shows and deletes subscriptions of topics.
	Subscriptions struct{ *entities }
	// Rules creates, changes, shows and deletes rules of subscriptions.
	Rules struct{ *entities }
	// Messages sends, receives, settles and peeks at messages.
	Messages struct{ *entities }
	// Sessions accepts, renews and closes sessions, and keeps their states.
	Sessions struct{ *entities }
	// DeadLetters sends dead letters back to their queue, or deletes them.
	DeadLetters struct{ *entities }
	// Transactions does several steps over queues and topics as one.
	Transactions struct{ *entities }
)

// entities finds queues, topics and subscriptions by name. It remembers them for a short time.
type entities struct {
	store    *bus.Store
	maxBytes int64
	taken    func(ctx context.Context, tenant, name string) bool
	limits   *limits.Meter
	*caches
}

// New returns the service over the store.
func New(opts Options) *Service {
	s := &entities{store: opts.Store, maxBytes: opts.MaxMessageBytes, taken: opts.Taken, limits: opts.Limits, caches: newCaches()}
	if s.maxBytes <= 0 {
		s.maxBytes = forebay.DefaultMaxMessageBytes
	}
	if s.taken == nil {
		s.taken = func(context.Context, string, string) bool { return false }
	}
	return &Service{Queues{s}, Topics{s}, Subscriptions{s}, Rules{s}, Messages{s}, Sessions{s}, DeadLetters{s}, Management{s}, Raw{s}, Transactions{s}}
}

// MaxBytes is the limit on one message.
func (s Messages) MaxBytes() int64 { return s.maxBytes }

// namedQueue is a queue or its dead-letter subqueue.
type namedQueue struct {
	bus.MessageQueue
	deadLetter bool
}

func (e namedQueue) subqueue() queue.Subqueue { return e.Subqueue(e.deadLetter) }

// reading finds a queue, a topic or a subscription by its name in the store: stored or storedNow.
type reading func(ctx context.Context, key string) (bus.MessageQueue, error)

// entity finds what a path names, for those who send, receive and settle.
func (s *entities) entity(ctx context.Context, tenant, path string) (namedQueue, error) {
	return entityBy(ctx, tenant, path, s.stored)
}

// entityNow is entity by what is stored now.
func (s *entities) entityNow(ctx context.Context, tenant, path string) (namedQueue, error) {
	return entityBy(ctx, tenant, path, s.storedNow)
}

// entityBy finds what a path names. Like Service Bus, it ignores the case of the subqueue's name.
func entityBy(ctx context.Context, tenant, path string, by reading) (namedQueue, error) {
	name, subscription, sub := forebay.CutEntityPath(path)
	if sub != "" && !strings.EqualFold(sub, forebay.SubqueueDeadLetter) {
		return namedQueue{}, entity.ErrNoQueue
	}
	if subscription != "" {
		name = forebay.SubscriptionPath(name, subscription)
	}
	q, err := queueBy(ctx, tenant, name, by)
	return namedQueue{q, sub != ""}, err
}

// queueNow finds a tenant's queue, or a subscription by its path, by what is stored now.
func (s *entities) queueNow(ctx context.Context, tenant, name string) (bus.MessageQueue, error) {
	return queueBy(ctx, tenant, name, s.storedNow)
}

func queueBy(ctx context.Context, tenant, name string, by reading) (bus.MessageQueue, error) {
	if !entity.ValidName(name) {
		return bus.MessageQueue{}, entity.ErrNoQueue
	}
	q, err := by(ctx, entity.StoredName(tenant, name))
	if err == nil && q.IsTopic {
		err = entity.ErrNoQueue
	}
	return q, err
}

// stored is storedNow from memory, if possible.
func (s *entities) stored(ctx context.Context, key string) (bus.MessageQueue, error) {
	if q, ok := s.of(key).queue(key); ok {
		return q, nil
	}
	return s.storedNow(ctx, key)
}

// storedNow finds a queue, a topic or a subscription by its name in the store. Another process may
// have dropped what is remembered, or have made it anew.
func (s *entities) storedNow(ctx context.Context, key string) (bus.MessageQueue, error) {
	m, began := s.of(key), time.Now()
	changes := m.changesSoFar()
	q, found, err := s.store.MessageQueue(ctx, key)
	if err != nil {
		return q, err
	}
	if !found {
		if _, ok := m.queue(key); ok {
			s.changed(key)
		}
		return q, entity.ErrNoQueue
	}
	m.remember(key, remembered{q, began}, changes)
	return q, nil
}

// secondsOrNil is nil for none.
func secondsOrNil(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}
