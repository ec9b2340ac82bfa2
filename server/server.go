// Package server assembles Forebay for embedding in a program. It takes options, and [Server.Run]
// serves until its context ends. The command forebay is a thin layer over it.
//
// # Reload
//
// SIGHUP has the configuration read again (server/reload.go). What is made of it is made whole
// before anything changes: providers and routes, tasks, the certificate. Then pointers are
// exchanged, and who has begun with the former goes on with it. What was learned of a quota is
// kept by the identity of what is called, so a deployment that goes elsewhere begins anew.
// Tenants' budgets and limits are written to the database, as at a start.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/batches"
	"github.com/forebayhq/forebay/internal/blob"
	_ "github.com/forebayhq/forebay/internal/blob/clouds" // S3 and Azure Blob
	"github.com/forebayhq/forebay/internal/bus/leftovers"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/deltas"
	"github.com/forebayhq/forebay/internal/dispatch"
	"github.com/forebayhq/forebay/internal/documents"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/live"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/openai"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/durabletask"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/responses"
	"github.com/forebayhq/forebay/internal/retention"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/telemetry"
	"github.com/forebayhq/forebay/internal/tenant"
	"github.com/forebayhq/forebay/internal/webhook"
)

// Server is an opened Forebay with its database and tasks. Jobs can be submitted at once. They run
// while Run runs.
type Server struct {
	options        Options
	log            *slog.Logger
	store          *stores.Stores
	limits         *limits.Meter
	blobs          *blob.Store
	jobs           *jobs.Service
	payloads       *payload.Store
	retention      *retention.Service
	keys           *keys.Service
	tenants        *tenant.Service
	bus            *messaging.Service
	webhooks       *webhook.Service
	orchestrations *orchestrate.Service
	durableTask    *durabletask.Server
	declared       []forebay.Workflow // by name
	documents      *documents.Service
	files          *files.Service
	batches        *batches.Service
	sources        []*blob.Source // sources of documents
	deployments    *deployments
	calls          *openai.Calls
	responses      *responses.Service
	callsName      string                          // of this process's queue of calls
	certificate    atomic.Pointer[tls.Certificate] // nil: plain HTTP
	reloading      sync.Mutex
	reloaded       Options // the options in force; guarded by reloading
	dispatch       *dispatch.Dispatcher
	deltas         *deltas.Hub
	live           *live.Service
	telemetry      *telemetry.Telemetry // nil: none
	ready          chan struct{}        // closed once the addresses are set
	addr           net.Addr
	metricsAddr    net.Addr
	grpcAddr       net.Addr
	busAddr        net.Addr
	busPlainAddr   net.Addr
	once           sync.Once
	ran            atomic.Bool
}

// New opens the database and everything else in the options. Close or Run releases it.
func New(opts Options) (*Server, error) {
	o := opts.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o, reloaded: o, log: o.Logger, ready: make(chan struct{}), calls: openai.NewCalls()}
	if s.log == nil {
		s.log = NewLogger(os.Stderr, o.Log)
	}
	if err := s.watch(); err != nil {
		return nil, err
	}
	models, known, err := o.models(s.telemetry, nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.responses = responses.New(responses.Options{Queue: ResponsesQueue, Keep: *o.Retention.Responses, MaxBody: o.Limits.MaxInputBytes, Logger: s.log,
		Remember: time.Duration(o.Limits.IdempotencyHours) * time.Hour})
	s.addCalls(o, models, known)
	certificate, err := o.TLS.Load()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.certificate.Store(certificate)
	if err := s.open(models, known); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(models *models, known map[string]forebay.Task) error {
	ctx := context.Background()
	database, err := databaseOf(s.options.Database)
	if err != nil {
		return err
	}
	database.Serve, database.ServerKind = true, s.options.answers()
	database.Warn = func(message string) {
		s.log.Warn(message) //nolint:sloglint // one of a few fixed sentences
	}
	if s.store, err = stores.Open(ctx, database, stores.Settings{AuditEvents: s.options.Audit.JobEvents, Identities: s.options.identities()}); err != nil {
		return err
	}
	if s.options.Blob == "" && database.URL != "" {
		s.log.Warn("large payloads are kept in the folder forebay.blobs where this process was started: configure blob, the same for all processes")
	}
	if s.blobs, err = blob.Open(ctx, blobURL(s.options.Blob, database)); err != nil {
		return err
	}
	s.limits = limits.New(s.store.Tenants, s.options.Limits.Tenant)
	s.keys = keys.NewService(s.store.Keys, s.limits)
	s.tenants = tenant.NewService(s.store.Tenants, s.store.Admission, s.limits)
	if err := s.openDocuments(ctx, known); err != nil {
		return err
	}
	s.files = newFiles(s)
	s.deployments = &deployments{store: s.store, log: s.log}
	s.deployments.called.Store(&called{models, known})
	s.payloads = s.store.Payloads(s.blobs)
	options := jobs.Options{Store: s.store.Jobs, Payloads: s.payloads}
	if s.callsName, err = s.callsQueue(ctx); err != nil {
		return err
	}
	options.Queues, options.MaxInputBytes = s.options.ownQueue(s.options.jobsQueues(), s.callsName), s.options.Limits.MaxInputBytes
	options.Observer, options.Limits = s.telemetry.Jobs(), s.limits
	options.Settings = jobs.Settings{Tasks: known, Deployments: s.deployments.admission, Weights: s.options.weights()}
	s.jobs, err = jobs.New(ctx, options)
	if err != nil {
		return err
	}
	s.batches = newBatches(s)
	s.retention = retention.New(s.store.Jobs, s.blobs)
	s.documents.Use(s.jobs)
	s.openResponses()
	s.store.Admission.OnDeploymentChange(s.changed)
	if err := s.watchStore(); err != nil {
		return err
	}
	if err := s.watchTenants(ctx); err != nil {
		return err
	}
	s.store.Jobs.MaxReplyBytes.Store(s.options.Limits.MaxMessageBytes)
	s.bus = messaging.New(messaging.Options{
		Store: s.store.Bus, MaxMessageBytes: s.options.Limits.MaxMessageBytes,
		Taken:  func(_ context.Context, tenant, name string) bool { return s.jobs.Knows(tenant, name) },
		Limits: s.limits,
	})
	declared := declaration{s.options, s.bus}
	if err := declared.apply(messaging.Configuring(ctx)); err != nil {
		return err
	}
	if err := declared.sinks(messaging.Configuring(ctx)); err != nil {
		return err
	}
	policy, err := s.options.Webhooks.policy()
	if err != nil {
		return err
	}
	s.webhooks = webhook.New(webhook.Options{Store: s.store.Webhooks, Bus: s.store.Bus, Limits: s.limits, Sender: webhook.SenderOptions{Policy: policy, Observe: s.telemetry.Webhooks()}, Logger: s.log, Grace: s.options.ShutdownTimeout})
	if err := s.openOrchestrations(); err != nil {
		return err
	}
	var relay deltas.Relay
	if s.store.DB.Shared() {
		relay = s.store.DB.Signal
	}
	s.deltas = deltas.NewHub(relay)
	s.dispatch = dispatch.New(dispatch.Options{
		Worker: s.jobs.Worker(), Lanes: s.options.lanes(), Logger: s.log, MemoryBytes: s.options.Limits.MemoryBytes, ShutdownTimeout: s.options.ShutdownTimeout,
		Deltas: s.deltas,
	})
	s.live = newLive(s)
	return nil
}

// blobURL returns the blob storage for large payloads. The default is a folder beside the database
// file. For PostgreSQL it is in the current folder, which suffices for the processes of one
// machine.
func blobURL(configured string, database db.Options) string {
	switch {
	case configured != "":
		return configured
	case database.URL != "":
		return "forebay.blobs"
	}
	return database.Path + ".blobs"
}

// withUnits writes durations with their unit, such as 1.2s, in JSON too.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// NewLogger returns the logger of the options. It writes to w: text on a terminal, else JSON.
func NewLogger(w io.Writer, o Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(o.Level)) // validated
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: withUnits}
	file, ok := w.(*os.File)
	if o.Format == "text" || o.Format == "" && ok && term.IsTerminal(int(file.Fd())) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// Close releases the database of a server that has not run. Run releases it itself.
func (s *Server) Close() (err error) {
	s.once.Do(func() {
		s.telemetry.Shutdown(context.Background()) // this counts the queues once more
		s.limits.Close()
		if s.store != nil {
			err = s.store.DB.Close()
		}
		if s.blobs != nil {
			err = errors.Join(err, s.blobs.Close())
		}
		err = errors.Join(err, s.closeSources())
	})
	return err
}

// Submit stores a job of the tenant. The job is on disk when Submit returns.
func (s *Server) Submit(ctx context.Context, tenant string, req forebay.SubmitRequest) (forebay.Job, error) {
	job, _, err := s.jobs.Submit(ctx, tenant, req)
	return job, err
}

// Wait returns the job when its status is terminal. If ctx or the timeout ends first, it returns
// the current state.
func (s *Server) Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Job, error) {
	return s.jobs.Wait(ctx, tenant, id, timeout)
}

// Addr waits until Run listens and returns the address. It returns nil if ctx ends first.
func (s *Server) Addr(ctx context.Context) net.Addr {
	select {
	case <-s.ready:
		return s.addr
	case <-ctx.Done():
		return nil
	}
}

// Run serves HTTP and carries out jobs, as its role says, until ctx ends. Then it stops
// gracefully. It takes no more work, lets running calls finish for up to ShutdownTimeout and
// returns the other jobs to their queues.
func (s *Server) Run(ctx context.Context) (err error) {
	if s.ran.Swap(true) {
		return errors.New("the server has run already")
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.live.Processes.Enter(ctx); err != nil {
		if ctx.Err() != nil {
			s.log.Info("forebay has stopped before it ran")
			return nil
		}
		return err
	}
	began := false
	defer func() {
		if !began { // others would see a process that runs
			s.live.Processes.Leave(context.WithoutCancel(ctx))
		}
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	var serveErr, metricsErr, grpcErr, busErr error
	metrics, err := s.listenMetrics()
	if err != nil {
		return err
	}
	var durable net.Listener
	if address := s.options.Orchestrations.GRPC.Address; address != "" && s.options.works() {
		if durable, err = listen(address); err != nil {
			return errors.Join(err, closeIf(metrics))
		}
		s.grpcAddr = durable.Addr()
	}
	var bus busListeners
	if s.options.servesHTTP() {
		if bus, err = listenServiceBus(s); err != nil {
			return errors.Join(err, closeIf(metrics), closeIf(durable))
		}
		listener, err := listen(s.options.Listen)
		if err != nil {
			return errors.Join(err, closeIf(metrics), closeIf(durable), bus.close())
		}
		s.addr = listener.Addr()
		running.Go(func() {
			defer stop()
			serveErr = s.serveHTTP(ctx, listener)
		})
	}
	began = true
	close(s.ready)
	if !bus.none() {
		running.Go(func() {
			defer stop()
			busErr = serveServiceBus(ctx, s, bus)
		})
	}
	if durable != nil {
		running.Go(func() {
			defer stop()
			grpcErr = s.serveDurableTask(ctx, durable)
		})
	}
	if metrics != nil {
		running.Go(func() {
			defer stop()
			metricsErr = s.telemetry.Serve(ctx, metrics)
		})
	}
	running.Go(func() { s.deltas.Run(ctx) })
	left, leave := context.WithCancel(context.WithoutCancel(ctx)) // once the last call is over
	defer leave()
	running.Go(func() { s.live.Feed.Run(left) })
	running.Go(func() { s.live.Processes.Run(ctx, left) })
	running.Go(func() { s.maintain(ctx) })
	running.Go(func() { s.sweepBlobs(ctx) })
	running.Go(func() { s.removeDoubtful(ctx) })
	running.Go(func() { s.documents.Run(ctx) })
	running.Go(func() { s.files.Run(ctx) })
	running.Go(func() { s.responses.Run(ctx) })
	if s.options.works() {
		running.Go(func() { s.webhooks.Run(ctx) })
		running.Go(func() { s.batches.Run(ctx) })
		running.Go(func() { s.orchestrations.Run(ctx) })
		for _, in := range s.triggers() {
			running.Go(func() { in.Run(ctx) })
		}
		for _, c := range azureConnectors(s) {
			running.Go(func() { c.Run(ctx) })
		}
	}
	attrs := []any{slog.String("version", s.options.Version), slog.String("role", s.options.Role),
		slog.String("database", databaseName(s.options.Database)), slog.String("listen", s.listening())}
	if s.grpcAddr != nil {
		attrs = append(attrs, slog.String("grpc", s.grpcAddr.String()))
	}
	if at := s.options.UI.address(s.addr, s.certificate.Load() != nil); at != "" {
		attrs = append(attrs, slog.String("dashboard", at))
	}
	s.log.Info("forebay is running", attrs...)
	warnExposed(context.WithoutCancel(ctx), s)
	if s.options.lanes() != dispatch.NoLanes {
		s.deployments.retryDenied(ctx)
	}
	s.dispatch.Run(ctx)
	leave()
	running.Wait()
	s.log.Info("forebay has stopped")
	return errors.Join(serveErr, metricsErr, grpcErr, busErr)
}

func (s *Server) listening() string {
	if s.addr == nil {
		return ""
	}
	return s.addr.String()
}

func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, forebay.Errorf(forebay.CodeUnavailable, "cannot listen on %s: %s", address, rootCause(err)).Caused(err)
	}
	return listener, nil
}

// rootCause returns the text of the innermost error, such as "address already in use".
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// reportsKept is the longest period of reports.
const reportsKept = 90 * 24 * time.Hour

// removeDoubtful removes large inputs of requests that failed during an outage of the database,
// soon after it ends.
func (s *Server) removeDoubtful(ctx context.Context) {
	const every = time.Minute
	for sleep.For(ctx, every) == nil {
		if _, err := s.payloads.RemoveDoubtful(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot remove payloads of requests that failed; trying again", slog.Any("error", err))
		}
	}
}

// sweepBlobs removes unreferenced blobs at start-up and then every hour. It cannot do so while a
// transaction is running, and then tries again soon. On a PostgreSQL server with other users there
// is nearly always one.
func (s *Server) sweepBlobs(ctx context.Context) {
	const every, soon = time.Hour, 5 * time.Second
	for again := soon; ; {
		next := every
		switch removed, err := s.payloads.Sweep(ctx); {
		case err == nil:
			if again = soon; removed > 0 {
				s.log.Info("removed blobs that nothing refers to", slog.Int("count", removed))
			}
		case ctx.Err() == nil:
			s.log.Warn("cannot sweep blob storage; trying again", slog.Any("error", err), slog.Duration("retry_in", again))
			next, again = again, min(2*again, every)
		}
		if sleep.For(ctx, next) != nil {
			return
		}
	}
}

// maintain removes obsolete data at start-up and then every hour, or as often as retention asks.
func (s *Server) maintain(ctx context.Context) {
	every := s.options.Retention.every()
	for {
		if _, err := s.orchestrations.RemoveFreed(ctx, s.store.DB.Now().Add(-time.Hour)); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot remove payloads of orchestrations that are over", slog.Any("error", err))
		}
		before := s.store.DB.Now().Add(-time.Duration(s.options.Limits.IdempotencyHours) * time.Hour)
		if err := s.retention.ForgetIdempotencyKeys(ctx, before); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot forget old idempotency keys", slog.Any("error", err))
		}
		if err := leftovers.ForgetSessions(ctx, s.store.DB); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot forget sessions that are empty", slog.Any("error", err))
		}
		if err := s.store.Admission.TidyBudgets(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot forget what is over of budgets", slog.Any("error", err))
		}
		if err := s.store.Reports.MakeDays(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot add up attempts by the day", slog.Any("error", err))
		}
		if err := s.store.Reports.Forget(ctx, s.store.DB.Now().Add(-reportsKept)); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot forget old sums of attempts", slog.Any("error", err))
		}
		s.purge(ctx, every)
		if sleep.For(ctx, every) != nil {
			return
		}
	}
}
