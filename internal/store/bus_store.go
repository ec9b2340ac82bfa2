package store

import "context"

// BusStore keeps plain messages, their queues and topics.
type BusStore struct {
	*QueueStore
	topics  topicRules
	endSlow func() // ends the goroutines that judge what takes long; nil: there are none
}

func (s *BusStore) attach(*DB)     {}
func (s *BusStore) join(w *writer) { busKey.join(w, newBusPart(w, queueKey.in(w), &s.topics)) }

func (s *BusStore) start(ctx context.Context, opts Options) error {
	s.startJudging()
	if opts.Serve {
		return s.PurgeDropped(ctx)
	}
	return nil
}

func (s *BusStore) stop() {
	if s.endSlow != nil {
		s.endSlow()
	}
}

var busKey = newPartKey(newBusTx)
