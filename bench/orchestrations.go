package main

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// The orchestrators. "fan" calls so many activities that do nothing. "single" calls one that
// notes when it began. "flaky" calls ten that fail twice each and are retried after half a
// second.
const (
	fanInstances, fanActivities = 100, 100
	flakyActivities             = 10
	flakyDelay                  = 500 * time.Millisecond
	singlePace                  = 20 // instances a second
)

// orchestrator runs instances.
type orchestrator interface {
	start(ctx context.Context, name, id string, input any) error
	wait(ctx context.Context, id string) error
	stop() error
}

// began notes when the activities of single instances began, and when the last activity of each
// instance ended. The yardstick polls for ended instances only now and then, and its polling is
// not to be measured.
type began struct {
	at    sync.Map // number of an instance → time.Time
	ended sync.Map // id of an instance → chan struct{}
}

func (g *began) note(i int) { g.at.Store(i, time.Now()) }

func (g *began) end(id string) chan struct{} {
	c, _ := g.ended.LoadOrStore(id, make(chan struct{}))
	return c.(chan struct{})
}

func (g *began) wait(ctx context.Context, id string) error {
	select {
	case <-g.end(id):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// orchestrations measures durable orchestrations.
func orchestrations(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Orchestrations",
		text: fmt.Sprintf(`In process. Fan-out: %d instances of %d activities that do nothing, and one that says so at the end, all started at once; eight at a time: the next when one is done, so that
little waits in the tables. Single: instances of one activity, from 32 callers that each wait for theirs. Start to activity: instances of one activity, %d a second, from before the start until the activity begins. Flaky: %d activities side by side, each of which fails
twice and is tried again after %v. Idle: processor time of the process over 5 s afterwards. The yardstick is dapr/durabletask-go v0.14.0 with its own SQLite backend, which
is at its best with a write-ahead log and no fsync at all, as it is here: as it comes, each of its operations waits for the disk, and it does some 40 to 100 activities a second. Forebay is durable.`,
			fanInstances, fanActivities, singlePace, flakyActivities, flakyDelay),
		columns: []string{"activities/s", "CPU µs/activity", "eight at a time/s", "single/s", "start to activity p50 ms", "p99 ms", "flaky s", "idle CPU ms/s"},
	}
	pg, err := b.postgres(ctx)
	if err != nil {
		return t, err
	}
	const ours, theirs = "Forebay on SQLite", "durabletask-go on SQLite, not durable"
	contenders := []contender{
		{ours, func(ctx context.Context) (sample, error) { return forebayOrchestrations(ctx, b, b.sqlite(), 0) }},
		{"Forebay on PostgreSQL", func(ctx context.Context) (sample, error) { return forebayOrchestrations(ctx, b, pg, 0) }},
		{"… with a second process", func(ctx context.Context) (sample, error) { return forebayOrchestrations(ctx, b, pg, 1) }},
	}
	if b.peers {
		contenders = append(contenders, contender{theirs, func(ctx context.Context) (sample, error) { return stockOrchestrations(ctx, b, notDurable) }})
	}
	if err := t.takeTurns(ctx, b.rounds, contenders...); err != nil {
		return t, err
	}
	t.expect("activities/s on SQLite, as a multiple of the yardstick's", t.median(ours, "activities/s")/t.median(theirs, "activities/s"), "≥", 4)
	t.expect("… as a multiple of what the yardstick reaches eight at a time", t.median(ours, "activities/s")/t.median(theirs, "eight at a time/s"), "≥", 4)
	t.expect("processor time of the yardstick for an activity, as a multiple of Forebay's", t.median(theirs, "CPU µs/activity")/t.median(ours, "CPU µs/activity"), "≥", 4)
	t.expect("start to activity on SQLite, p99 in ms", t.median(ours, "p99 ms"), "<", 10)
	t.expect("flaky activities on SQLite, s", t.median(ours, "flaky s"), "<", 1.5)
	t.expect("idle processor time on SQLite, ms/s", t.median(ours, "idle CPU ms/s"), "<", 2)
	return t, nil
}

// measureOrchestrations is a round.
func measureOrchestrations(ctx context.Context, b *bench, o orchestrator, g *began) (s sample, err error) {
	defer func() { err = errors.Join(err, o.stop()) }()
	s = sample{}
	instances := b.size(fanInstances, fanInstances/2)
	cpu, begun := cpuTime(), time.Now()
	if err := runAll(ctx, o, "fan", "fan", instances, instances, fanActivities); err != nil {
		return nil, err
	}
	n := float64(instances * fanActivities)
	s["activities/s"], s["CPU µs/activity"] = n/time.Since(begun).Seconds(), float64((cpuTime()-cpu).Microseconds())/n
	begun = time.Now()
	if err := runAll(ctx, o, "fan", "eight", instances, 8, fanActivities); err != nil {
		return nil, err
	}
	s["eight at a time/s"] = n / time.Since(begun).Seconds()
	singles := b.size(1000, 300)
	begun = time.Now()
	if err := runAll(ctx, o, "single", "single", singles, 32, -1); err != nil {
		return nil, err
	}
	s["single/s"] = float64(singles) / time.Since(begun).Seconds()
	if err := measureStarts(ctx, b, o, g, s); err != nil {
		return nil, err
	}
	begun = time.Now()
	if err := runAll(ctx, o, "flaky", "flaky", 1, 1, 0); err != nil {
		return nil, err
	}
	s["flaky s"] = time.Since(begun).Seconds()
	const span = 5 * time.Second
	cpu = cpuTime()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s["idle CPU ms/s"] = float64((cpuTime() - cpu).Milliseconds()) / span.Seconds()
	return s, nil
}

// runAll runs so many instances, from callers that each wait for theirs.
func runAll(ctx context.Context, o orchestrator, name, prefix string, instances, callers, input int) error {
	id := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	var next atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for i := int(next.Add(1)) - 1; i < instances && err == nil; i = int(next.Add(1)) - 1 {
				in := any(input)
				if name == "single" {
					in = single{-1, id(i)}
				}
				if err = o.start(ctx, name, id(i), in); err == nil {
					err = o.wait(ctx, id(i))
				}
			}
			errs <- err
		}()
	}
	var err error
	for range callers {
		err = errors.Join(err, <-errs)
	}
	return err
}

func measureStarts(ctx context.Context, b *bench, o orchestrator, g *began, s sample) error {
	n := b.size(100, 40)
	var waited []time.Duration
	begun := make([]time.Time, n)
	err := paced(ctx, singlePace, n, func(i int, _ time.Time) error {
		id := fmt.Sprintf("start-%d", i)
		begun[i] = time.Now()
		if err := o.start(ctx, "single", id, single{i, id}); err != nil {
			return err
		}
		return o.wait(ctx, id)
	})
	if err != nil {
		return err
	}
	for i := n / 10; i < n; i++ { // the first find nothing prepared
		if at, ok := g.at.Load(i); ok { // else it ran in another process
			waited = append(waited, at.(time.Time).Sub(begun[i]))
		}
	}
	if len(waited) == n-n/10 {
		w := waits(waited)
		s["start to activity p50 ms"], s["p99 ms"] = w["p50 ms"], w["p99 ms"]
	}
	return nil
}

// single is the input of a single instance.
type single struct {
	Number int
	ID     string
}

// durableFunctions are the orchestrators and activities of a Forebay.
func durableFunctions(g *began) []server.DurableFunction {
	nothing := server.NewActivity("nothing", func(context.Context, int) (int, error) { return 0, nil })
	note := server.NewActivity("note", func(_ context.Context, in single) (int, error) {
		g.note(in.Number)
		close(g.end(in.ID))
		return 0, nil
	})
	failing := server.NewActivity("failing", func(ctx context.Context, _ int) (int, error) {
		if server.ActivityCallOf(ctx).Attempt < 3 {
			return 0, errors.New("not yet")
		}
		return 0, nil
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 3, First: flakyDelay, Coefficient: 1})
	end := server.NewActivity("end", func(_ context.Context, id string) (int, error) {
		close(g.end(id))
		return 0, nil
	})
	all := func(o *server.Orchestration, a server.Activity[int, int], n int) (int, error) {
		futures := make([]server.Future[int], n)
		for i := range futures {
			futures[i] = a.Start(o, i)
		}
		if _, err := server.AwaitAll(futures); err != nil {
			return 0, err
		}
		return end.Call(o, o.ID())
	}
	return []server.DurableFunction{
		nothing, note, failing, end,
		server.NewOrchestrator("fan", func(o *server.Orchestration, n int) (int, error) { return all(o, nothing, n) }),
		server.NewOrchestrator("single", func(o *server.Orchestration, in single) (int, error) { return note.Call(o, in) }),
		server.NewOrchestrator("flaky", func(o *server.Orchestration, _ int) (int, error) { return all(o, failing, flakyActivities) }),
	}
}

// forebayOrchestrator is a server in this process.
type forebayOrchestrator struct {
	*embedded
	*began
	others []*child
}

func forebayOrchestrations(ctx context.Context, b *bench, on engine, others int) (sample, error) {
	var g began
	e, err := startEmbeddedAs(ctx, b, on, func(o *server.Options) { o.Durable = durableFunctions(&g) })
	if err != nil {
		return nil, err
	}
	o := forebayOrchestrator{embedded: e, began: &g}
	for range others {
		c, err := startChild(ctx, childSpec{Role: "orchestrations", Database: e.place.database, Blobs: filepath.Join(e.place.dir, "blobs")})
		if err != nil {
			return nil, errors.Join(err, o.stop())
		}
		o.others = append(o.others, c)
	}
	s, err := measureOrchestrations(ctx, b, o, &g)
	if others > 0 && err == nil {
		for _, column := range []string{"CPU µs/activity", "idle CPU ms/s"} { // of this process alone
			delete(s, column)
		}
	}
	return s, err
}

func (o forebayOrchestrator) start(ctx context.Context, name, id string, input any) error {
	_, err := o.StartOrchestration(ctx, forebay.DefaultTenant, name, id, input)
	return err
}

func (o forebayOrchestrator) wait(ctx context.Context, id string) error {
	if len(o.others) == 0 {
		return o.began.wait(ctx, id)
	}
	instance, err := o.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
	if err == nil && instance.Status != forebay.OrchestrationCompleted {
		err = fmt.Errorf("instance %s is %s", id, instance.Status)
	}
	return err
}

func (o forebayOrchestrator) stop() error {
	var err error
	for _, c := range o.others {
		err = errors.Join(err, c.stop())
	}
	return errors.Join(err, o.embedded.stop())
}

// serveOrchestrations is a process beside another.
func serveOrchestrations(ctx context.Context, spec childSpec) error {
	s, err := server.New(server.Options{Database: spec.Database, Blob: spec.Blobs, Role: server.RoleWorker, Log: server.Log{Level: "error"},
		ShutdownTimeout: time.Second, Durable: durableFunctions(&began{})})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Run(ctx)
}

// notDurable are the yardstick's kindest settings.
const notDurable = "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)"

// stockOrchestrator is the engine over its own backend.
type stockOrchestrator struct {
	*began
	client backend.TaskHubClient
	worker backend.TaskHubWorker
	dir    string
}

func stockOrchestrations(ctx context.Context, b *bench, settings string) (sample, error) {
	dir, err := os.MkdirTemp(b.dir, "stock-")
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
