package history

import (
	"sync"

	"github.com/dapr/durabletask-go/api/protos"
)

// Cache keeps the histories of instances that had a work item here lately, so that the next item
// need not read them. An entry is current if its number is that of the work item: each item
// increments it.
type Cache struct {
	mu     sync.Mutex
	of     map[int64]Cached // by instance
	events int              // in all of them
	bytes  int
}

// Cached is a history in a Cache.
type Cached struct {
	Number int64
	Events []*protos.HistoryEvent
	Bytes  int // of the events
}

// Bounds of the cache, in events and in bytes.
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
	for other := range m.of { // any entry: reading a history again is cheap
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
