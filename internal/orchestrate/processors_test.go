package orchestrate

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// A turn that panics in the engine's part of it is tried again, whoever has its code, and the process lives.
func TestTurnThatPanicsInTheEngine(t *testing.T) {
	r := NewRegistry()
	addOrchestrator(t, r, "here", func(*task.WorkflowContext) (any, error) { return "done", nil })
	var mu sync.Mutex
	abandoned := map[string]int{}
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, Options{Registry: r, Remote: true, Observe: func(taken ProcessedItem) {
		if taken.Outcome == ItemAbandoned {
			mu.Lock()
			defer mu.Unlock()
			abandoned[taken.Name]++
		}
	}})
	panicked := map[string]bool{}
	p.beforeApply = func(id string) {
		mu.Lock()
		defer mu.Unlock()
		if !panicked[id] {
			panicked[id] = true
			panic("in the engine")
		}
	}
	carryOut(t, p.serve(t), 4<<20)
	for _, name := range []string{"here", "remote"} {
		id := p.start(t, StartRequest{Name: name})
		p.ends(t, id, forebay.OrchestrationCompleted)
		mu.Lock()
		if !panicked[id] || abandoned[name] != 1 {
			t.Errorf("%s: panicked %t, abandoned %d times", name, panicked[id], abandoned[name])
		}
		mu.Unlock()
	}
}
