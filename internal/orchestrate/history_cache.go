package orchestrate

import (
	"sync"

	"github.com/dapr/durabletask-go/api/protos"
)

// memory keeps the histories of instances that had a turn here lately, so that the next one need not read
// them. What it knows of an instance is true if it is as old as the turn: the number of turns that are
// over, which each changes.
type historyCache struct {
	mu     sync.Mutex
	of     map[int64]cachedHistory // by instance
	events int                     // in all of them
	bytes  int
}

type cachedHistory struct {
	number int64
	events []*protos.HistoryEvent
	bytes  int // of the events
}

// What is kept is bounded, in events and in bytes.
const (
	maxCachedEvents = 200_000
	maxCachedBytes  = 128 << 20
)

func (m *historyCache) get(instance, item int64) (cachedHistory, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.of[instance]
	if !ok || r.number != item {
		return cachedHistory{}, false
	}
	return r, true
}

func (m *historyCache) put(instance int64, r cachedHistory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
	if len(r.events) > maxCachedEvents || r.bytes > maxCachedBytes {
		return
	}
	for other := range m.of { // any: to read one again costs little
		if m.events+len(r.events) <= maxCachedEvents && m.bytes+r.bytes <= maxCachedBytes {
			break
		}
		m.drop(other)
	}
	if m.of == nil {
		m.of = map[int64]cachedHistory{}
	}
	m.of[instance] = r
	m.events += len(r.events)
	m.bytes += r.bytes
}

func (m *historyCache) forget(instance int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
}

func (m *historyCache) drop(instance int64) {
	m.events -= len(m.of[instance].events)
	m.bytes -= m.of[instance].bytes
	delete(m.of, instance)
}
