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
	bytes  int
}

type remembered struct {
	turn   int64
	events []*protos.HistoryEvent
	bytes  int // of the events
}

// What is kept is bounded, in events and in bytes.
const (
	maxRemembered      = 200_000
	maxRememberedBytes = 128 << 20
)

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
	if len(r.events) > maxRemembered || r.bytes > maxRememberedBytes {
		return
	}
	for other := range m.of { // any: to read one again costs little
		if m.events+len(r.events) <= maxRemembered && m.bytes+r.bytes <= maxRememberedBytes {
			break
		}
		m.drop(other)
	}
	if m.of == nil {
		m.of = map[int64]remembered{}
	}
	m.of[instance] = r
	m.events += len(r.events)
	m.bytes += r.bytes
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
