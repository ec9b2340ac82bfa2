package store

import (
	"context"
	"sync"
)

// One goroutine judges scheduled messages that take too long to judge for a transaction. It takes one of each tenant in turn, so
// that a tenant with many, or with costly rules, delays nobody else by more than one of them.

// maxSlow is how many messages of a tenant may wait to be judged. The others are looked at again after a while.
const maxSlow = 256

// slowMessage is a scheduled message that is due and takes too long to judge for a transaction.
type slowMessage struct{ tenant, topic, seq int64 }

// slowMessages are those that wait to be judged. It is safe for concurrent use.
type slowMessages struct {
	mu      sync.Mutex
	waiting map[int64][]slowMessage // by tenant, oldest first
	turns   []int64                 // tenants that have some, the next first
	known   map[slowMessage]bool    // those that wait or are being judged
	more    chan struct{}
}

func newSlowMessages() *slowMessages {
	return &slowMessages{waiting: map[int64][]slowMessage{}, known: map[slowMessage]bool{}, more: make(chan struct{}, 1)}
}

// put adds a message unless it is there already, or as many of its tenant are as may be.
func (s *slowMessages) put(m slowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.waiting[m.tenant]
	if s.known[m] || len(of) >= maxSlow {
		return
	}
	if len(of) == 0 {
		s.turns = append(s.turns, m.tenant)
	}
	s.known[m], s.waiting[m.tenant] = true, append(of, m)
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
		s.waiting[tenant], s.turns = of, append(s.turns, tenant)
	}
	return m, true
}

// judged has a message that was taken be put again.
func (s *slowMessages) judged(m slowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, m)
}

// startJudging starts the goroutine that judges what takes long.
func (s *Store) startJudging() {
	slow, done := newSlowMessages(), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	s.writer.slow = slow
	go func() {
		defer close(done)
		s.judgeSlow(ctx, slow)
	}()
	s.endSlow = func() {
		cancel()
		<-done
	}
}

// judgeSlow activates such messages, one after the other, until ctx ends.
func (s *Store) judgeSlow(ctx context.Context, slow *slowMessages) {
	for {
		m, ok := slow.next(ctx)
		if !ok {
			return
		}
		_ = s.activateSlow(ctx, m) // it is looked at again after a while
		slow.judged(m)
	}
}
