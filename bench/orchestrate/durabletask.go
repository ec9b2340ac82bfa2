package orchestrate

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/backend/sqlite"
	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay/bench/measure"
)

// notDurable are the yardstick's kindest settings.
const notDurable = "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)"

// stockOrchestrator is the engine over its own backend.
type stockOrchestrator struct {
	*began
	client backend.TaskHubClient
	worker backend.TaskHubWorker
	dir    string
}

func stockOrchestrations(ctx context.Context, b *measure.Bench, settings string) (measure.Sample, error) {
	dir, err := os.MkdirTemp(b.Dir, "stock-")
	if err != nil {
		return nil, err
	}
	var g began
	registry, err := stockFunctions(&g)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log.SetOutput(io.Discard) // what its default logger writes to
	logger := quietLogger{backend.DefaultLogger()}
	be := sqlite.NewSqliteBackend(sqlite.NewSqliteOptions("file:"+filepath.Join(dir, "stock.db")+settings), logger)
	executor := task.NewTaskExecutorWithLogger(registry, logger)
	worker := backend.NewTaskHubWorker(be, backend.NewWorkflowWorker(backend.WorkflowWorkerOptions{Backend: be, Executor: executor, Logger: logger}),
		backend.NewActivityTaskWorker(be, executor, logger), logger)
	if err := worker.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return measureOrchestrations(ctx, b, stockOrchestrator{&g, backend.NewTaskHubClient(be), worker, dir}, &g)
}

// quietLogger leaves out what it would write for each instance.
type quietLogger struct{ backend.Logger }

func (quietLogger) Debug(...any)          {}
func (quietLogger) Debugf(string, ...any) {}
func (quietLogger) Info(...any)           {}
func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Warn(...any)           {}
func (quietLogger) Warnf(string, ...any)  {}

func stockFunctions(g *began) (*task.TaskRegistry, error) {
	r := task.NewTaskRegistry()
	var failures sync.Map // input → *atomic.Int32
	all := func(ctx *task.WorkflowContext, name string, n int, options ...task.CallActivityOption) (any, error) {
		tasks := make([]task.Task, n)
		for i := range tasks {
			tasks[i] = ctx.CallActivity(name, append(options, task.WithActivityInput(i))...)
		}
		for _, t := range tasks {
			if err := t.Await(nil); err != nil {
				return nil, err
			}
		}
		return n, ctx.CallActivity("end", task.WithActivityInput(string(ctx.ID))).Await(nil)
	}
	return r, errors.Join(
		r.AddActivityN("nothing", func(task.ActivityContext) (any, error) { return 0, nil }),
		r.AddActivityN("note", func(ctx task.ActivityContext) (any, error) {
			var in single
			if err := ctx.GetInput(&in); err != nil {
				return nil, err
			}
			g.note(in.Number)
			close(g.end(in.ID))
			return 0, nil
		}),
		r.AddActivityN("end", func(ctx task.ActivityContext) (any, error) {
			var id string
			if err := ctx.GetInput(&id); err != nil {
				return nil, err
			}
			close(g.end(id))
			return 0, nil
		}),
		r.AddActivityN("failing", func(ctx task.ActivityContext) (any, error) {
			var i int
			if err := ctx.GetInput(&i); err != nil {
				return nil, err
			}
			n, _ := failures.LoadOrStore(i, new(atomic.Int32))
			if n.(*atomic.Int32).Add(1) < 3 {
				return nil, errors.New("not yet")
			}
			return 0, nil
		}),
		r.AddWorkflowN("fan", func(ctx *task.WorkflowContext) (any, error) {
			var n int
			if err := ctx.GetInput(&n); err != nil {
				return nil, err
			}
			return all(ctx, "nothing", n)
		}),
		r.AddWorkflowN("single", func(ctx *task.WorkflowContext) (any, error) {
			var in single
			if err := ctx.GetInput(&in); err != nil {
				return nil, err
			}
			return 0, ctx.CallActivity("note", task.WithActivityInput(in)).Await(nil)
		}),
		r.AddWorkflowN("flaky", func(ctx *task.WorkflowContext) (any, error) {
			return all(ctx, "failing", flakyActivities, task.WithActivityRetryPolicy(&task.RetryPolicy{MaxAttempts: 3, InitialRetryInterval: flakyDelay, BackoffCoefficient: 1}))
		}),
	)
}

func (o stockOrchestrator) start(ctx context.Context, name, id string, input any) error {
	_, err := o.client.ScheduleNewWorkflow(ctx, name, api.WithInstanceID(api.InstanceID(id)), api.WithInput(input))
	return err
}

func (o stockOrchestrator) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(o.worker.Shutdown(ctx), os.RemoveAll(o.dir))
}
