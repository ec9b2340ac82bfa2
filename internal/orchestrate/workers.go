package orchestrate

import (
	"context"
	"errors"

	"github.com/dapr/durabletask-go/api/protos"
)

// Workers are processes that are connected and execute the work items of functions that this
// process does not have.
type Workers interface {
	// Connected reports whether a worker of the tenant waits for work items. It must be quick.
	Connected(tenant int64) bool
	// ExecuteOrchestrator has a worker run an orchestrator over the history and the events that have
	// arrived since. The response is checked: it can be applied.
	ExecuteOrchestrator(ctx context.Context, tenant int64, id string, past, arrived []*protos.HistoryEvent) (*protos.WorkflowResponse, error)
	// ExecuteActivity has a worker run an activity. It returns the event that ends it.
	ExecuteActivity(ctx context.Context, tenant int64, id string, scheduled *protos.HistoryEvent) (*protos.HistoryEvent, error)
	// OrchestrationDone tells that the response of an instance's work item is not needed any more.
	OrchestrationDone(tenant int64, id string)
	// ActivityDone tells that the response of an activity is not needed any more.
	ActivityDone(tenant int64, id string, eventID int32)
}

var (
	// ErrNoWorker is that no worker has begun with a work item and that none is connected.
	ErrNoWorker = errors.New("no process that is connected can carry it out")
	// ErrWorkerGone is that a worker has left while it executed a work item.
	ErrWorkerGone = errors.New("the process that carried it out is gone")
)

// noWorkers is for a process that no worker can connect to.
type noWorkers struct{}

func (noWorkers) Connected(int64) bool { return false }

func (noWorkers) ExecuteOrchestrator(context.Context, int64, string, []*protos.HistoryEvent, []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	return nil, ErrNoWorker
}

func (noWorkers) ExecuteActivity(context.Context, int64, string, *protos.HistoryEvent) (*protos.HistoryEvent, error) {
	return nil, ErrNoWorker
}

func (noWorkers) OrchestrationDone(int64, string)   {}
func (noWorkers) ActivityDone(int64, string, int32) {}

// UseWorkers sets the workers for functions that this process does not have. It must be called
// before Run.
func (s *Service) UseWorkers(w Workers) { s.workers = w }

// WorkersChanged has the waiting claims check again which work items can be executed here.
func (s *Service) WorkersChanged(ctx context.Context) error { return s.store.Reconsider(ctx) }

// Drained is closed once Run has stopped taking work items and those under way are over.
func (s *Service) Drained() <-chan any { return s.drained }
