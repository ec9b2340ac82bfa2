package bridge

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// Closing a long item costs about what its events take, not their square. It is not parallel: it
// counts the memory of the whole process.
func TestInterruptedIsLinear(t *testing.T) {
	const pieces = 40_000
	events := []json.RawMessage{
		[]byte(`{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"message","content":[]}}`),
		[]byte(`{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}`),
	}
	for range pieces {
		events = append(events, []byte(`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"four"}`))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	closed, _ := Interrupted(events, State{pieces, 1})
	runtime.ReadMemStats(&after)
	if len(closed) != 1 || !strings.Contains(string(closed[0].Data), strings.Repeat("four", pieces)) {
		t.Fatalf("%d events", len(closed))
	}
	// Joined piece by piece, the texts alone would be 3.2 GB.
	if used := after.TotalAlloc - before.TotalAlloc; used > 500<<20 {
		t.Errorf("closing %d pieces took %d MiB", pieces, used>>20)
	}
}
