package bus

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps plain messages, their queues and topics.
type Store struct {
	*queue.Store
	topics  topicRules
	endSlow func() // ends the goroutines that judge what takes long; nil: there are none
}

func (s *Store) Attach(*db.DB)     {}
func (s *Store) Join(w *db.Writer) { Key.Join(w, newBusPart(w, queue.Key.In(w), &s.topics)) }

func (s *Store) Start(ctx context.Context, opts db.Options) error {
	s.startJudging()
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

var Key = db.NewKey(newBusTx)
