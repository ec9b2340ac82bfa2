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
	bytes  int                  // of these
}

type remembered struct {
	turn   int64
	events []*protos.HistoryEvent
	bytes  int
}

// What is kept is bounded, in events and in bytes.
const (
	maxRemembered      = 200_000
	maxRememberedBytes = 128 << 20
)

func (m *memory) get(instance, turn int64) ([]*protos.HistoryEvent, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.of[instance]
	if !ok || r.turn != turn {
		return nil, false
	}
	return r.events, true
}

// sizeOf returns how many bytes the history of an instance has, which it was given as events. It counts only what it does not know.
func (m *memory) sizeOf(instance, turn int64, events []*protos.HistoryEvent) int {
	m.mu.Lock()
	r, ok := m.of[instance]
	m.mu.Unlock()
	if ok && r.turn == turn && len(r.events) == len(events) {
		return r.bytes
	}
	return sizeOf(events)
}

func (m *memory) put(instance, turn int64, events []*protos.HistoryEvent, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
	if len(events) > maxRemembered || bytes > maxRememberedBytes {
		return
	}
	for other := range m.of { // any: to read one again costs little
		if m.events+len(events) <= maxRemembered && m.bytes+bytes <= maxRememberedBytes {
			break
		}
		m.drop(other)
	}
	if m.of == nil {
		m.of = map[int64]remembered{}
	}
	m.of[instance] = remembered{turn, events, bytes}
	m.events += len(events)
	m.bytes += bytes
}

func (m *memory) forget(instance int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(instance)
}

func (m *memory) drop(instance int64) {
	m.events -= len(m.of[instance].events)
	m.bytes -= m.of[instance].bytes
	delete(m.of, instance)
}
