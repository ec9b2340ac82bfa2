package history

import (
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
)

// The cache is bounded in events and in bytes.
func TestCacheIsBounded(t *testing.T) {
	event := TaskCompleted(1, "", Value(make([]byte, 1000)))
	several := func(n int) []*protos.HistoryEvent {
		events := make([]*protos.HistoryEvent, n)
		for i := range events {
			events[i] = event
		}
		return events
	}
	kept := func(m *Cache) (n int) {
		for instance := range int64(10) {
			if _, ok := m.Get(instance, 1); ok {
				n++
			}
		}
		return n
	}
	for what, c := range map[string]struct{ events, bytes, want int }{
		"events":         {maxCachedEvents / 3, 1000, 3},
		"bytes":          {10, maxCachedBytes / 3, 3},
		"few":            {10, 1000, 10},
		"too many":       {maxCachedEvents + 1, 1000, 0},
		"too many bytes": {10, maxCachedBytes + 1, 0},
	} {
		var m Cache
		for range 2 {
			for instance := range int64(10) {
				m.Put(instance, Cached{1, several(c.events), c.bytes})
			}
		}
		if n := kept(&m); n != c.want || m.events != n*c.events || m.bytes != n*c.bytes {
			t.Errorf("%s: %d histories of %d events and %d bytes are kept", what, n, m.events, m.bytes)
		}
	}

	var m Cache
	m.Put(1, Cached{5, several(3), 77})
	m.Put(2, Cached{1, several(maxCachedEvents), maxCachedBytes}) // which makes room first
	m.Put(1, Cached{5, several(3), 77})
	if _, ok := m.Get(2, 1); ok || len(m.of) != 1 || m.events != 3 || m.bytes != 77 {
		t.Errorf("%d histories, %d events, %d bytes are kept", len(m.of), m.events, m.bytes)
	}
	m.Put(1, Cached{6, several(maxCachedEvents + 1), 1})
	if len(m.of) != 0 || m.events != 0 || m.bytes != 0 {
		t.Errorf("what is too long left %d histories, %d events, %d bytes", len(m.of), m.events, m.bytes)
	}
}
