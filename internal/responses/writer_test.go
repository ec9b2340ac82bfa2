package responses

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// event is one with a text of that length.
func event(n, length int) bridge.Event {
	return bridge.Event{Type: "x", Data: fmt.Appendf(nil, `{"type":"x","n":%d,"text":%q}`, n, strings.Repeat("t", length))}
}

// Events that come fast are stored in groups, all of them and in order, and what is left at the
// end is stored with it.
func TestWriterGroups(t *testing.T) {
	onEngines(t, func(m *maker) {
		const many = 3000
		row := m.add()
		w := newWriter(m.Context(), m.Responses, m.begin(row, 1), row.State)
		state := row.State
		for i := range many {
			state.Sequence++
			m.check(w.add([]bridge.Event{event(i, 200)}, state))
		}
		rest, err := w.rest()
		m.check(err)
		m.check(m.Responses.Finish(m.Context(), w.of, rest, bridge.StatusCompleted, object))
		rows, err := m.Responses.Events(m.Context(), row, 2, many)
		m.check(err)
		if len(rows) > many/10 {
			m.Errorf("%d events are in %d groups", many, len(rows))
		}
		next := int64(2)
		for _, group := range rows {
			if group.First != next {
				m.Fatalf("a group begins with %d, not %d", group.First, next)
			}
			for line := range bytes.Lines(group.Data) {
				if want := fmt.Sprintf(`"n":%d,`, next-2); !strings.Contains(string(line), want) {
					m.Fatalf("event %d is %.50s", next, line)
				}
				next++
			}
		}
		if next != many+2 {
			m.Errorf("%d events are stored", next-2)
		}
	})
}

// Whoever writes on is told once the response has ended, also while the writer is full.
func TestWriterIsFenced(t *testing.T) {
	onEngines(t, func(m *maker) {
		row := m.add()
		w := newWriter(m.Context(), m.Responses, m.begin(row, 1), row.State)
		m.begin(row, 2)
		state, limit := row.State, time.Now().Add(time.Minute)
		var err error
		for i := 0; err == nil; i++ {
			if time.Now().After(limit) {
				m.Fatal("nobody tells")
			}
			state.Sequence++
			err = w.add([]bridge.Event{event(i, 64<<10)}, state)
		}
		if _, last := w.rest(); !errors.Is(err, forebay.ErrLockLost) || !errors.Is(last, forebay.ErrLockLost) {
			m.Errorf("%v, %v", err, last)
		}
		if rows, err := m.Responses.Events(m.Context(), row, 0, 10); err != nil || len(rows) != 1 {
			m.Errorf("%d groups, %v", len(rows), err)
		}
	})
}
