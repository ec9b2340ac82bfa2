package rules

import (
	"context"
	"fmt"
	"sync"

	"github.com/forebayhq/forebay/internal/turns"
)

const (
	// slowWorkers is how many goroutines judge slow messages.
	slowWorkers = 4
	// maxSlow is how many messages of a tenant may wait to be judged. Others are tried again
	// later.
	maxSlow = 256
)

// SlowMessage is a message that takes too long to judge in a transaction, or whose rules take too
// long to compile there. It is due, or waits in its topic for its copies.
type SlowMessage struct{ Tenant, Topic, Seq int64 }

// Slow is the queue of slow messages. One message of each tenant is judged at a time, and tenants
// take turns. So a tenant with many messages, or with slow rules, delays each other tenant by one
// message. It is safe for concurrent use.
type Slow struct {
	mu      sync.Mutex
	waiting map[int64][]SlowMessage // by tenant, oldest first
	tenants []int64                 // tenants with waiting messages of which none is being judged, the next first
	judging map[int64]bool          // tenants with a message that is being judged
	known   map[SlowMessage]bool    // messages that wait or are being judged
	more    chan struct{}
}

// NewSlow returns an empty queue.
func NewSlow() *Slow {
	return &Slow{waiting: map[int64][]SlowMessage{}, known: map[SlowMessage]bool{}, judging: map[int64]bool{}, more: make(chan struct{}, 1)}
}

// Put adds a message, unless it is in the queue or its tenant has too many there.
func (s *Slow) Put(m SlowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting[m.Tenant]
	if s.known[m] || len(waiting) >= maxSlow {
		return
	}
	if len(waiting) == 0 && !s.judging[m.Tenant] {
		s.tenants = append(s.tenants, m.Tenant)
	}
	s.known[m], s.waiting[m.Tenant] = true, append(waiting, m)
	s.wake()
}

// wake wakes a waiting goroutine if there is a message to take.
func (s *Slow) wake() {
	if len(s.tenants) == 0 {
		return
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Has reports whether a message waits or is being judged.
func (s *Slow) Has(m SlowMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[m]
}

// Room reports whether one more message of the tenant may wait.
func (s *Slow) Room(tenant int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting[tenant]) < maxSlow
}

// next waits for a message of the tenant whose turn it is. It reports false once ctx has ended.
func (s *Slow) next(ctx context.Context) (m SlowMessage, ok bool) {
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

func (s *Slow) take() (m SlowMessage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tenants) == 0 {
		return m, false
	}
	tenant := s.tenants[0]
	waiting := s.waiting[tenant]
	m, s.tenants = waiting[0], s.tenants[1:]
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(s.waiting, tenant)
	} else {
		s.waiting[tenant] = waiting
	}
	s.judging[tenant] = true
	s.wake() // another goroutine, as there may be more
	return m, true
}

// judged lets a message that was taken be put again.
func (s *Slow) judged(m SlowMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, m)
	delete(s.judging, m.Tenant)
	if len(s.waiting[m.Tenant]) > 0 {
		s.tenants = append(s.tenants, m.Tenant)
	}
	s.wake()
}

// Start has a few goroutines call judge for the messages of the queue. Its context has the turns
// of the message's tenant. stop ends the context and waits for the goroutines.
func (s *Slow) Start(judge func(context.Context, SlowMessage)) (stop func()) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range slowWorkers {
		running.Go(func() {
			for {
				m, ok := s.next(ctx)
				if !ok {
					return
				}
				judge(turns.With(ctx, fmt.Sprint("store tenant ", m.Tenant)), m)
				s.judged(m)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}
