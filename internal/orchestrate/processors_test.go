package orchestrate

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// completing are workers whose orchestrators complete at once.
type completing struct{ noWorkers }

func (completing) Connected(int64) bool { return true }

func (completing) ExecuteOrchestrator(_ context.Context, _ int64, id string, _, _ []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	return &protos.WorkflowResponse{InstanceId: id, Actions: []*protos.WorkflowAction{{WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{
		CompleteWorkflow: &protos.CompleteWorkflowAction{WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED}}}}}, nil
}

// A work item that panics in the engine is retried, in Go and in workers, and the process lives.
func TestItemThatPanicsInTheEngine(t *testing.T) {
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
	p.UseWorkers(completing{})
	panicked := map[string]bool{}
	p.beforeApply = func(id string) {
		mu.Lock()
		defer mu.Unlock()
		if !panicked[id] {
			panicked[id] = true
			panic("in the engine")
		}
	}
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
