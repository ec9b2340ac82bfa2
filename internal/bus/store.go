package bus

import (
	"context"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps plain messages, their queues and topics.
type Store struct {
	entity.Reader
	topics  rules.Cache[MessageQueue]
	endSlow func() // stops the goroutines that judge slow messages; nil: not started
}

// NewStore returns a store over the queues.
func NewStore(queues *queue.Store) *Store { return &Store{Reader: entity.Reader{Store: queues}} }

type (
	// SessionStore keeps the sessions of queues.
	SessionStore struct{ entity.Reader }
	// DeadLetterStore selects messages of dead-letter subqueues.
	DeadLetterStore struct{ *queue.Store }
	// RuleStore keeps the rules of subscriptions.
	RuleStore struct{ entity.Reader }
	// EntityStore keeps what queues, topics and subscriptions have in common.
	EntityStore struct{ entity.Reader }
)

func (s *Store) Sessions() SessionStore       { return SessionStore{s.Reader} }
func (s *Store) DeadLetters() DeadLetterStore { return DeadLetterStore{s.Store} }
func (s *Store) Rules() RuleStore             { return RuleStore{s.Reader} }
func (s *Store) Entities() EntityStore        { return EntityStore{s.Reader} }

func (s *Store) Attach(*db.DB)     {}
func (s *Store) Join(w *db.Writer) { Key.Join(w, newParticipant(w, queue.Key.In(w), &s.topics)) }

func (s *Store) Start(ctx context.Context, opts db.Options) error {
	slow := rules.NewSlow()
	Key.In(s.Writer).slow = slow
	s.endSlow = slow.Start(func(ctx context.Context, m rules.SlowMessage) {
		_ = s.activateSlow(ctx, m) // if it fails the writer tries the message again later
	})
	if opts.Serve {
		return s.PurgeDropped(ctx)
	}
	return nil
}

func (s *Store) Stop() {
	if s.endSlow != nil {
		s.endSlow()
	}
}

var Key = db.NewKey(newTx)
