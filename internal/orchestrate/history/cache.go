package history

import (
	"sync"

	"github.com/dapr/durabletask-go/api/protos"
)

// memory keeps the histories of instances that had a turn here lately, so that the next one need not read
// them. What it knows of an instance is true if it is as old as the turn: the number of turns that are
// over, which each changes.
type Cache struct {
	mu     sync.Mutex
	of     map[int64]Cached // by instance
	events int              // in all of them
	bytes  int
}

type Cached struct {
	Number int64
	Events []*protos.HistoryEvent
	Bytes  int // of the events
}

// What is kept is bounded, in events and in bytes.
const (
	maxCachedEvents = 200_000
	maxCachedBytes  = 128 << 20
)

func (m *Cache) Get(instance, item int64) (Cached, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.of[instance]
	if !ok || r.Number != item {
		return Cached{}, false
	}
	return r, true
}

func (m *Cache) Put(instance int64, r Cached) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
	if len(r.Events) > maxCachedEvents || r.Bytes > maxCachedBytes {
		return
	}
	for other := range m.of { // any: to read one again costs little
		if m.events+len(r.Events) <= maxCachedEvents && m.bytes+r.Bytes <= maxCachedBytes {
			break
		}
		m.drop(other)
	}
	if m.of == nil {
		m.of = map[int64]Cached{}
	}
	m.of[instance] = r
	m.events += len(r.Events)
	m.bytes += r.Bytes
}

func (m *Cache) Forget(instance int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
}

func (m *Cache) drop(instance int64) {
	m.events -= len(m.of[instance].Events)
	m.bytes -= m.of[instance].Bytes
	delete(m.of, instance)
}
