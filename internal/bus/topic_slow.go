package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/forebayhq/forebay/internal/turns"
)

// A few goroutines judge messages that take too long to judge for a transaction, or whose rules take too long to compile. They
// take those of each tenant one after the other, and tenants in turn. So a tenant with many, or with costly rules, delays nobody
// else by more than one of them. They compute in turns of their tenants, as senders do.

// judges is how many there are.
const judges = 4

// maxSlow is how many messages of a tenant may wait to be judged. The others are looked at again after a while.
const maxSlow = 256

// slowMessage is a message that is due, or waits in its topic for its copies, and takes too long to judge for a transaction.
type slowMessage struct{ tenant, topic, seq int64 }

// slowMessages are those that wait to be judged. It is safe for concurrent use.
type slowMessages struct {
	mu      sync.Mutex
	waiting map[int64][]slowMessage // by tenant, oldest first
	turns   []int64                 // tenants that have some and of which none is being judged, the next first
	judging map[int64]bool          // tenants of which one is
	known   map[slowMessage]bool    // those that wait or are being judged
	more    chan struct{}
}

func newSlowMessages() *slowMessages {
	return &slowMessages{waiting: map[int64][]slowMessage{}, known: map[slowMessage]bool{}, judging: map[int64]bool{}, more: make(chan struct{}, 1)}
}

// put adds a message unless it is there already, or as many of its tenant are as may be.
func (s *slowMessages) put(m slowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.waiting[m.tenant]
	if s.known[m] || len(of) >= maxSlow {
		return
	}
	if len(of) == 0 && !s.judging[m.tenant] {
		s.turns = append(s.turns, m.tenant)
	}
	s.known[m], s.waiting[m.tenant] = true, append(of, m)
	s.call()
}

// call has one who waits look whether there are any.
func (s *slowMessages) call() {
	if len(s.turns) == 0 {
		return
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// has reports whether a message waits or is being judged.
func (s *slowMessages) has(m slowMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[m]
}

// room reports whether one more message of the tenant may wait.
func (s *slowMessages) room(tenant int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting[tenant]) < maxSlow
}

// next waits for a message of the tenant whose turn it is. It reports false once ctx has ended.
func (s *slowMessages) next(ctx context.Context) (m slowMessage, ok bool) {
	for ctx.Err() == nil {
		if m, ok = s.take(); ok {
			return m, true
		}
		select {
		case <-s.more:
		case <-ctx.Done():
		}
	}
	return m, false
}

func (s *slowMessages) take() (m slowMessage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) == 0 {
		return m, false
	}
	tenant := s.turns[0]
	of := s.waiting[tenant]
	m, s.turns = of[0], s.turns[1:]
	if of = of[1:]; len(of) == 0 {
		delete(s.waiting, tenant)
	} else {
		s.waiting[tenant] = of
	}
	s.judging[tenant] = true
	s.call() // another, as there may be more
	return m, true
}

// judged has a message that was taken be put again.
func (s *slowMessages) judged(m slowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, m)
	delete(s.judging, m.tenant)
	if len(s.waiting[m.tenant]) > 0 {
		s.turns = append(s.turns, m.tenant)
	}
	s.call()
}

// startJudging starts the goroutines that judge what takes long.
func (s *Store) startJudging() {
	slow := newSlowMessages()
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	Key.In(s.Writer).slow = slow
	for range judges {
		running.Go(func() { s.judgeSlow(ctx, slow) })
	}
	s.endSlow = func() {
		cancel()
		running.Wait()
	}
}

// judgeSlow activates such messages, one after the other, until ctx ends.
func (s *Store) judgeSlow(ctx context.Context, slow *slowMessages) {
	for {
		m, ok := slow.next(ctx)
		if !ok {
			return
		}
		of := turns.With(ctx, fmt.Sprint("store tenant ", m.tenant))
		_ = s.activateSlow(of, m) // it is looked at again after a while
		slow.judged(m)
	}
}
