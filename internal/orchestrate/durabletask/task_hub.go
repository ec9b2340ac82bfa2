package durabletask

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/local"

	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// taskHub serves the clients and workers of one tenant: an instance id is unique only within a
// tenant. It is the backend of the engine's gRPC executor.
type taskHub struct {
	*local.TasksBackend
	managementOnly
	*Server
	tenant   int64
	name     string   // of the tenant
	open     sync.Map // *protos.ActivityRequest or *protos.WorkflowRequest → *dispatched: those that somebody waits for
	sent     sync.Map // completion token → func(error), which gives an item that was sent back
	receipts sync.Map // what responses are expected for → *receipt

	mu       sync.Mutex
	executor backend.Executor // dispatches work items to the streams of workers
	streams  int              // of workers
	present  context.Context  // ends once no worker has been connected for absenceTime
	leave    context.CancelCauseFunc
	absence  *time.Timer // since the last worker left
}

var _ backend.Backend = (*taskHub)(nil)

func newTaskHub(s *Server, tenant int64, name string) *taskHub {
	h := &taskHub{TasksBackend: local.NewTasksBackend(), Server: s, tenant: tenant, name: name}
	h.executor = h.newExecutor()
	return h
}

func (h *taskHub) newExecutor() (x backend.Executor) {
	x, _ = backend.NewGrpcExecutor(h, orchestrate.EngineLog{Logger: h.log},
		backend.WithSkipWaitForInstanceStart(), backend.WithStreamShutdownChannel(h.service.Drained()),
		backend.WithOnGetWorkItemsConnectionCallback(func(ctx context.Context) error { return h.workerConnected(ctx, x) }),
		backend.WithOnGetWorkItemsDisconnectCallback(h.workerLeft))
	return x
}

// current is the executor that gets new work items.
func (h *taskHub) current() backend.Executor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.executor
}

// taskHub returns the task hub of a tenant, and makes it if there is none.
func (s *Server) taskHub(tenant int64, name string) *taskHub {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.taskHubs[tenant]
	if h == nil {
		h = newTaskHub(s, tenant, name)
		s.taskHubs[tenant] = h
	}
	return h
}

// known returns the task hub of a tenant; nil: the tenant has made no call yet.
func (s *Server) known(tenant int64) *taskHub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taskHubs[tenant]
}

func (s *Server) Connected(tenant int64) bool {
	h := s.known(tenant)
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams > 0
}

func (s *Server) ExecuteOrchestrator(ctx context.Context, tenant int64, id string, past, arrived []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	past, arrived = withoutRedundantSuspends(past, arrived)
	request := &protos.WorkflowRequest{InstanceId: id, PastEvents: past, NewEvents: arrived}
	if why := s.tooLargeToSend(request, "the history and what has arrived have"); why != "" {
		return failed(id, past, arrived, failureMessageTooLarge, why), nil
	}
	h := s.known(tenant)
	if h == nil {
		return nil, orchestrate.ErrNoWorker
	}
	ctx, cancel := context.WithTimeout(ctx, orchestratorTime)
	defer cancel()
	resp, err := handOut(ctx, h, func(ctx context.Context) (*protos.WorkflowResponse, error) {
		return h.current().ExecuteWorkflow(ctx, api.InstanceID(id), withWorkerStepIDs(past), withWorkerStepIDs(arrived), backend.ExecuteOptions{})
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, orchestrate.ErrNoWorker) {
		err = orchestrate.ErrWorkerGone
	}
	if err != nil {
		return nil, err
	}
	resp = s.checkedResponse(resp, id, past, arrived)
	renumberReusedSteps(resp, past, arrived)
	return resp, nil
}

func (s *Server) ExecuteActivity(ctx context.Context, tenant int64, id string, e *protos.HistoryEvent) (*protos.HistoryEvent, error) {
	scheduled := e.GetTaskScheduled()
	request := &protos.ActivityRequest{Name: scheduled.Name, Version: scheduled.Version, Input: scheduled.Input, TaskExecutionId: scheduled.TaskExecutionId,
		ParentTraceContext: scheduled.ParentTraceContext, WorkflowInstance: &protos.WorkflowInstance{InstanceId: id}}
	if why := s.tooLargeToSend(request, "the activity and its input have"); why != "" {
		return history.TaskFailed(e.EventId, scheduled.TaskExecutionId, &protos.TaskFailureDetails{ErrorType: failureMessageTooLarge, ErrorMessage: why, IsNonRetriable: true}), nil
	}
	h := s.known(tenant)
	if h == nil {
		return nil, orchestrate.ErrNoWorker
	}
	return handOut(ctx, h, func(ctx context.Context) (*protos.HistoryEvent, error) {
		return h.current().ExecuteActivity(ctx, api.InstanceID(id), e, backend.ExecuteOptions{})
	})
}

func (s *Server) OrchestrationDone(tenant int64, id string) {
	if h := s.known(tenant); h != nil {
		h.answered(id)
	}
}

func (s *Server) ActivityDone(tenant int64, id string, eventID int32) {
	if h := s.known(tenant); h != nil {
		h.answered(backend.GetActivityExecutionKey(id, eventID))
	}
}

// orchestratorTime bounds how long a worker may take for an orchestrator. Orchestrator code
// decides and does not wait.
const orchestratorTime = time.Minute

// failed returns a response that fails the instance, in place of a worker's.
func failed(id string, past, arrived []*protos.HistoryEvent, kind, why string) *protos.WorkflowResponse {
	p := history.NewScheduled()
	p.TakeFrom(past)
	p.TakeFrom(arrived)
	return history.Failed(api.InstanceID(id), p.Last+1, kind, why)
}
