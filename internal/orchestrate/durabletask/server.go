// Package durabletask serves the Durable Task gRPC protocol over package orchestrate.
//
// Clients in any language start and manage instances by it. Workers in any language receive work
// items by a stream and carry out their orchestrators and activities. A [Server] is the
// [orchestrate.Workers] of a service: the engine hands it the work items of functions that are not
// registered in Go. The engine itself knows no gRPC.
//
// Messages come from outside. They are read by hand into a bounded amount of memory, and each
// response of a worker is checked before the engine applies it.
//
// # Responses of workers
//
// The engine carries an answer out on goroutines of its own, where a panic would end the process.
// So durabletask/check_response.go checks each answer of a connected process against what is
// offered. Then it carries the answer out once on a copy of the instance without its history.
// What fails either ends the instance as InvalidAnswer. A panic elsewhere in a turn counts as a
// loss of the turn, of which there are ten.
//
// # gRPC
//
// A tap handle checks the key by a call's headers. All methods are registered as streams: grpc-go
// receives the message of a unary call before it calls anybody. The length of a message is read
// first, then there must be room for it, by tenant and in all, then it is read. Its fields are
// counted before it is decoded. The room of an answer is given back when its turn or activity is
// over.
//
// What is sent has a pool of its own, so that a client that reads nothing does not have its own
// workers' results refused. A message over 64 KiB claims its size before it is encoded, and holds
// it until grpc-go frees the buffer. A client that does not read an answer in a minute, and as
// long as 256 KiB a second take, loses its connection. Items of work have half an hour. Over the
// bound of connections a new one replaces the oldest that has had no call let in.
//
// # Sizes
//
// A worker that does not receive an item, because it is too large, loses its stream and all that
// was sent by it. A repetition would end the stream again. So a turn or an activity that is too
// large is failed before it is handed out.
package durabletask

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// Options configures a Server.
type Options struct {
	Service *orchestrate.Service
	Logger  *slog.Logger
	// MaxBytes bounds one payload, as [orchestrate.Options.MaxBytes] does. Default 10 MiB.
	MaxBytes int64
	// MaxMessage bounds one message to a worker, in bytes: an orchestration work item with its
	// whole history, or an activity with its input. Default 4 MiB, which gRPC clients receive
	// unless they are configured otherwise.
	MaxMessage int
	// MemoryBytes bounds the large messages that are held at once: once for received and once
	// for sent messages. Tenants share the memory. The largest message always fits. Default 64
	// MiB.
	MemoryBytes int64
	// Limits meters the calls of clients; nil: there are no limits.
	Limits *limits.Meter
}

// DefaultMaxMessage is the default of Options.MaxMessage.
const DefaultMaxMessage = 4 << 20

// Server serves the protocol, and is the [orchestrate.Workers] of a service.
type Server struct {
	service     *orchestrate.Service
	log         *slog.Logger
	opts        Options
	absenceTime time.Duration

	mu       sync.Mutex
	taskHubs map[int64]*taskHub // by tenant
}

// New returns a server and sets it as the workers of the service. The service must not run yet.
func New(opts Options) *Server {
	opts.MaxBytes, opts.MaxMessage = cmp.Or(opts.MaxBytes, forebay.DefaultMaxInputBytes), cmp.Or(opts.MaxMessage, DefaultMaxMessage)
	opts.MemoryBytes = cmp.Or(opts.MemoryBytes, 64<<20)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{service: opts.Service, log: opts.Logger, opts: opts, absenceTime: absenceTime, taskHubs: map[int64]*taskHub{}}
	opts.Service.UseWorkers(s)
	return s
}

// ServeOptions configures how a listener is served.
type ServeOptions struct {
	// Authenticate returns the caller that a key belongs to. open says that there are no keys:
	// calls from this machine then need none.
	Authenticate func(ctx context.Context, key string) (caller forebay.Caller, open bool, err error)
	// Hold returns a context that ends when the caller's key is revoked or expires, until
	// release. Nil: keys do not end.
	Hold  func(ctx context.Context, caller forebay.Caller) (held context.Context, release func())
	TLS   *tls.Config // nil: none
	Grace time.Duration
	// Connections bounds the connections that are open at once. Default 1,024, which is the most.
	Connections int
}

// maxGRPCMessage bounds a received message. A response holds the inputs of all activities it
// schedules. The bound is raised to twice the bound of one payload, if that is more.
const maxGRPCMessage = 64 << 20

// Bounds of calls.
const (
	maxConnectionCalls = 500
	maxTenantCalls     = 1000
	maxCalls           = 4000
	maxHeaderBytes     = 16 << 10
	handshakeTime      = 10 * time.Second
	idleTime           = 5 * time.Minute
	// authenticationTime bounds the lookup of a key. The connection waits meanwhile.
	authenticationTime = 2 * time.Second
)

// endpoint serves one listener.
type endpoint struct {
	*Server
	ServeOptions
	connections *connections
	received    *memory.Pool // by received messages
	sent        *memory.Pool // by sent messages
	maxMessage  int
	answerTime  time.Duration

	mu      sync.Mutex
	calls   int
	tenants map[string]int // open calls by tenant
}

func (s *Server) endpoint(listener net.Listener, o ServeOptions) *endpoint {
	if o.Hold == nil {
		o.Hold = func(ctx context.Context, _ forebay.Caller) (context.Context, func()) { return ctx, func() {} }
	}
	most := max(maxGRPCMessage, 2*int(s.opts.MaxBytes))
	return &endpoint{Server: s, ServeOptions: o, connections: newConnections(listener, o.Connections), received: memory.New(max(s.opts.MemoryBytes, poolMessages*int64(most))),
		sent: memory.New(max(s.opts.MemoryBytes, 4*s.opts.MaxBytes, 2*int64(s.opts.MaxMessage))), maxMessage: most, answerTime: answerTime, tenants: map[string]int{}}
}

// Serve answers on the listener until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener, o ServeOptions) error {
	return s.endpoint(listener, o).serve(ctx)
}

func (e *endpoint) serve(ctx context.Context) error {
	options := []grpc.ServerOption{
		grpc.InTapHandle(e.admit), grpc.ForceServerCodecV2(newCodec()), grpc.MaxSendMsgSize(1 << 30), grpc.MaxConcurrentStreams(maxConnectionCalls), grpc.MaxHeaderListSize(maxHeaderBytes),
		// A window that is set is fixed: grpc-go does not enlarge it.
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow), grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if e.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.TLS)))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(e.perTenant(), nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		timer := time.AfterFunc(e.Grace, server.Stop) // streams of workers never end by themselves
		defer timer.Stop()
		e.connections.drain()
		server.GracefulStop()
	}()
	err := server.Serve(e.connections)
	if ctx.Err() == nil {
		server.Stop()
		return err
	}
	<-stopped
	return nil
}
