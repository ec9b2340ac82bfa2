package orchestrate

import (
	"sync"

	"github.com/dapr/durabletask-go/api/protos"
)

// memory keeps the histories of instances that had a turn here lately, so that the next one need not read
// them. What it knows of an instance is true if it is as old as the turn: the number of turns that are
// over, which each changes.
type memory struct {
	mu     sync.Mutex
	of     map[int64]remembered // by instance
	events int                  // in all of them
}

type remembered struct {
	turn   int64
	events []*protos.HistoryEvent
	bytes  int // of the events
}

// maxRemembered bounds the events that are kept.
const maxRemembered = 200_000

func (m *memory) get(instance, turn int64) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.of[instance]
	if !ok || r.turn != turn {
		return remembered{}, false
	}
	return r, true
}

func (m *memory) put(instance int64, r remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
	for other := range m.of { // any: to read one again costs little
		if m.events+len(r.events) <= maxRemembered {
			break
		}
		m.drop(other)
	}
	if len(r.events) > maxRemembered {
		return
	}
	if m.of == nil {
		m.of = map[int64]remembered{}
	}
	m.of[instance] = r
	m.events += len(r.events)
}

func (m *memory) forget(instance int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
}

func (m *memory) drop(instance int64) {
	m.events -= len(m.of[instance].events)
	delete(m.of, instance)
}
