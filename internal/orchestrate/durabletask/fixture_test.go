package durabletask

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
	"github.com/forebayhq/forebay/internal/stores"
)

const tenant = "default"

func onBoth(t *testing.T, test func(*testing.T, db.Options)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, db.Options{Path: dbtest.SQLite(t), Serve: true})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, db.Options{URL: dbtest.Postgres(t), Serve: true})
	})
}

// process is a service and its server over their own connection, as in a process of its own.
type process struct {
	*orchestrate.Service
	server *Server
	store  *stores.Stores
	stop   func()
}

// run starts a process. change may change the options of its server.
func run(t *testing.T, where db.Options, opts orchestrate.Options, change ...func(*Options)) *process {
	t.Helper()
	s, err := stores.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	return runOn(t, s, opts, change...)
}

// runOn is run over stores that are open.
func runOn(t *testing.T, s *stores.Stores, opts orchestrate.Options, change ...func(*Options)) *process {
	t.Helper()
	opts.Store = s.Orchestrations
	p := &process{Service: orchestrate.New(opts), store: s}
	server := Options{Service: p.Service, MaxBytes: opts.MaxBytes, Limits: opts.Limits}
	for _, f := range change {
		f(&server)
	}
	p.server = New(server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

func (p *process) start(t *testing.T, req orchestrate.StartRequest) string {
	t.Helper()
	id, err := p.Start(t.Context(), tenant, req)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (p *process) ends(t *testing.T, id string, want forebay.OrchestrationStatus) forebay.Orchestration {
	t.Helper()
	o, err := p.Wait(t.Context(), tenant, id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if o.Status != want {
		past, _ := p.History(t.Context(), tenant, id)
		for _, e := range past {
			t.Logf("%+v", e)
		}
		t.Fatalf("%s is %s (%+v), not %s", id, o.Status, o.Failure, want)
	}
	return o
}

func (p *process) get(t *testing.T, id string) forebay.Orchestration {
	t.Helper()
	o, err := p.Get(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (p *process) sees(t *testing.T, id, what string, done func(orchestrate.OrchestrationRow) bool) {
	t.Helper()
	no, err := p.store.Queues.EnsureTenant(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Watch(ctx, no, id, func(row orchestrate.OrchestrationRow) (bool, error) { return done(row), nil }); err != nil {
		t.Fatalf("%s of %s is not seen: %v", what, id, err)
	}
}

func (p *process) until(t *testing.T, id string, want forebay.OrchestrationStatus) {
	t.Helper()
	p.sees(t, id, string(want), func(row orchestrate.OrchestrationRow) bool { return row.Status == want })
}

func (p *process) waitsFor(t *testing.T, id, event string) {
	t.Helper()
	p.sees(t, id, event, func(orchestrate.OrchestrationRow) bool {
		past, err := p.History(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(past, func(e forebay.OrchestrationEvent) bool { return e.Type == event })
	})
}

func (p *process) types(t *testing.T, id string) string {
	t.Helper()
	past, err := p.History(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range past {
		if e.Type != "OrchestratorStarted" {
			types = append(types, e.Type)
		}
	}
	return strings.Join(types, " ")
}

func add[T any](t testing.TB, r *orchestrate.Registry, name string, f func(context.Context, T) (any, error)) {
	t.Helper()
	err := r.AddActivity(name, func(ctx context.Context, input json.RawMessage) (any, error) {
		var in T
		if len(input) > 0 {
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
		}
		return f(ctx, in)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addOrchestrator(t testing.TB, r *orchestrate.Registry, name string, f task.Workflow) {
	t.Helper()
	if err := r.AddOrchestrator(name, "", f); err != nil {
		t.Fatal(err)
	}
}

func activity(ctx *task.WorkflowContext, name string, input any, p forebay.RetryPolicy) task.Task {
	return ctx.CallActivity(name, task.WithRawActivityInput(policy.ActivityInput(input, p)))
}

func waiting(ctx *task.WorkflowContext) (any, error) {
	var got json.RawMessage
	err := ctx.WaitForSingleEvent("go", -1).Await(&got)
	return got, err
}

func large(mark string) string { return mark + strings.Repeat("x", forebay.InlineBytes) }

func quoted(s string) json.RawMessage {
	encoded, _ := json.Marshal(s)
	return encoded
}

// serve has a process answer any caller by gRPC, and returns the address.
func (p *process) serve(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return serveAt(ctx, t, &running, p.server, ServeOptions{Authenticate: anybody})
}

func anybody(context.Context, string) (forebay.Caller, bool, error) {
	return forebay.Caller{Tenant: tenant, Scopes: []forebay.Scope{forebay.ScopeOperate, forebay.ScopeSubmit, forebay.ScopeRead}}, true, nil
}

// serveAt serves gRPC until ctx ends, and returns the address.
func serveAt(ctx context.Context, t testing.TB, running *sync.WaitGroup, s *Server, o ServeOptions) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := s.Serve(ctx, listener, o); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// until waits until a condition holds.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for begun := time.Now(); !so(); <-time.After(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// outage is blob storage that can fail.
type outage struct {
	*blob.Store
	out atomic.Bool
}

func (o *outage) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	if o.out.Load() {
		return nil, forebay.Errorf(forebay.CodeUnavailable, "the payload storage is not available")
	}
	return o.Store.ReadAll(ctx, key, limit)
}
