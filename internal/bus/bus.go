// Package bus provides queues of plain messages with the semantics of Azure Service Bus. A
// message is received under a lock with a token of its own (peek-lock). It is then completed,
// abandoned, deferred or dead-lettered, or left until the lock ends.
//
// Every queue has a dead-letter subqueue at "<queue>/$deadletterqueue". Receivers read it like a
// queue; nobody can send to it. A queue may require sessions. Then a receiver first accepts a
// session, and gets its messages to itself.
//
// A [Service] validates, applies limits and defaults, and keeps tenants apart. A queue belongs to
// the tenant that created it, and its name is unique within the tenant. The [Store] makes each
// step durable before it returns. Package entity has names and settings, package message the
// content of messages, package rules the rules of subscriptions, and package clockmend the repair
// of times.
//
// # Plain messages
//
// Messages share the table messages and the writer with jobs. Their bodies and properties are in
// the table bodies. A queue is for jobs or for messages, never both. The column flow says what a
// message waits for:
//
//   - 0: a receiver.
//   - 1: the time for which it is scheduled.
//   - 2: its copies, in a topic.
//   - 16 + n: the receiver of session number n.
//
// So the same index finds the next message of a queue and of a session. Receivers do not see
// messages of flow 1 or 2.
//
// The column due_at of bodies says when the writer has something to do for a message. For example,
// it activates a scheduled message, under a new number, or lets a message expire. Only messages
// with such a time are in its index. The writer processes up to 256 of them in a transaction, and
// then serves receivers in the same transaction.
//
// A session is a row of the table sessions. Its visible_at is like a message's. So one search of
// an index finds the next session to accept, however many there are. The lock of a session holds
// its messages too. They are free again when the lock is given back, or when the session is
// accepted anew. Duplicate detection keeps message ids in the table message_ids, each with the
// time when it is forgotten.
//
// # Topics
//
// The sender judges its messages by the topic's rules before its transaction. Messages that would
// make too many copies are refused before they reach the writer. The transaction compares the
// topic's version with the one that was judged. If they differ, the sender judges again.
//
// Some messages must be judged inside a transaction: forwarded ones, those that become active, and
// events of jobs. They have a limit of about 8 ms. A few goroutines judge what takes longer, one
// message of a tenant at a time.
//
// Copies of a message share one row of shared_bodies if its body has 4 KiB or more. A trigger
// deletes the row with the last copy.
//
// A send of several messages may make more than 1,000 copies. All of its messages are then stored
// in the topic first, like scheduled ones. The sender makes the copies afterwards, in several
// transactions. If it fails, the writer does so ten seconds later.
//
// One sender compiles changed rules for all senders. Rules that have not changed stay compiled.
// Senders take turns at compiling and judging: see package turns. A transaction reads and compiles
// at most 64 rules. If a topic has more and they are not compiled yet, an event or a forwarded
// message waits in the topic until they are. Messages behind it wait too.
package bus

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/queue"
)

// Options are the settings of a Service.
type Options struct {
	Store           *Store
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
)

// entities finds queues, topics and subscriptions by name. It remembers them for a short time.
type entities struct {
	store    *Store
	maxBytes int64
	taken    func(ctx context.Context, tenant, name string) bool
	limits   *limits.Meter

	mu      sync.RWMutex
	queues  map[string]remembered // by their names in the store
	changes int                   // of queues, since the start
}

// New returns the service over the store.
func New(opts Options) *Service {
	s := &entities{store: opts.Store, maxBytes: opts.MaxMessageBytes, taken: opts.Taken, limits: opts.Limits, queues: map[string]remembered{}}
	if s.maxBytes <= 0 {
		s.maxBytes = forebay.DefaultMaxMessageBytes
	}
	if s.taken == nil {
		s.taken = func(context.Context, string, string) bool { return false }
	}
	return &Service{Queues{s}, Topics{s}, Subscriptions{s}, Rules{s}, Messages{s}, Sessions{s}, DeadLetters{s}}
}

// MaxBytes is the limit on one message.
func (s Messages) MaxBytes() int64 { return s.maxBytes }

// namedQueue is a queue or its dead-letter subqueue.
type namedQueue struct {
	MessageQueue
	deadLetter bool
}

func (e namedQueue) subqueue() queue.Subqueue { return e.Subqueue(e.deadLetter) }

// entity finds what a path names. Like Service Bus, it ignores the case of the subqueue's name.
func (s *entities) entity(ctx context.Context, tenant, path string) (namedQueue, error) {
	name, subscription, sub := forebay.CutEntityPath(path)
	if sub != "" && !strings.EqualFold(sub, forebay.SubqueueDeadLetter) {
		return namedQueue{}, ErrNoQueue
	}
	if subscription != "" {
		name = forebay.SubscriptionPath(name, subscription)
	}
	q, err := s.queue(ctx, tenant, name)
	return namedQueue{q, sub != ""}, err
}

// remembered is a queue as it was read at that time. It is used for a short time only: another
// process may have changed the queue, or the store may have deleted it as idle.
type remembered struct {
	MessageQueue
	at time.Time
}

const rememberFor = 5 * time.Second

// queue finds a tenant's queue, or a subscription by its path.
func (s *entities) queue(ctx context.Context, tenant, name string) (MessageQueue, error) {
	if !entity.ValidName(name) {
		return MessageQueue{}, ErrNoQueue
	}
	q, err := s.stored(ctx, entity.StoredName(tenant, name))
	if err == nil && q.IsTopic {
		err = ErrNoQueue
	}
	return q, err
}

// stored finds a queue, a topic or a subscription by its name in the store, from memory if
// possible.
func (s *entities) stored(ctx context.Context, key string) (MessageQueue, error) {
	s.mu.RLock()
	known, ok := s.queues[key]
	changes := s.changes
	s.mu.RUnlock()
	if ok && time.Since(known.at) < rememberFor {
		return known.MessageQueue, nil
	}
	q, found, err := s.store.MessageQueue(ctx, key)
	if err != nil {
		return q, err
	}
	if !found {
		if ok {
			s.changed(key)
		}
		return q, ErrNoQueue
	}
	s.remember(key, q, changes)
	return q, nil
}

// remember keeps what was read of a queue, unless a queue has changed since the read began.
func (s *entities) remember(key string, q MessageQueue, changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes {
		s.queues[key] = remembered{q, time.Now()}
	}
}

// changed forgets a queue, and keeps reads that are under way from being remembered.
func (s *entities) changed(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.queues, key)
}

// secondsOrNil is nil for none.
func secondsOrNil(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}
