package orchestrate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	bounded "github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/turns"
)

// GRPC is the endpoint of the Durable Task protocol, by which processes in other languages start and manage instances
// and carry out their orchestrators and activities.
type GRPC struct {
	// Authenticate returns whose key it is; open: there are no keys at all, and calls from this machine need none.
	Authenticate func(ctx context.Context, key string) (caller forebay.Caller, open bool, err error)
	// Hold returns a context that ends when the caller's key is revoked or expires, until release; nil: keys do not end.
	Hold  func(ctx context.Context, caller forebay.Caller) (held context.Context, release func())
	TLS   *tls.Config // nil: none
	Grace time.Duration
	// Connections bounds the connections that are open at once. Default 1,024, which is the most.
	Connections int
}

// maxGRPCMessage bounds a message that comes in: an answer of an orchestrator holds the inputs of all that it calls at once. Where
// one payload may be larger than that the bound is twice as large as that.
const maxGRPCMessage = 64 << 20

// Bounds of the calls.
const (
	maxConnectionCalls = 500
	maxTenantCalls     = 1000
	maxCalls           = 4000
	maxHeaderBytes     = 16 << 10
	handshakeTime      = 10 * time.Second
	idleTime           = 5 * time.Minute
	// authenticationTime bounds the search for a key: its connection waits for it.
	authenticationTime = 2 * time.Second
)

// endpoint is what serves a listener.
type endpoint struct {
	*Service
	GRPC
	connections *connections
	received    *bounded.Pool // messages, until what they lead to is over
	sent        *bounded.Pool // messages, until they have left
	maxMessage  int
	answerTime  time.Duration

	mu      sync.Mutex
	calls   int
	tenants map[string]int // their calls
}

func (s *Service) endpoint(listener net.Listener, g GRPC) *endpoint {
	if g.Hold == nil {
		g.Hold = func(ctx context.Context, _ forebay.Caller) (context.Context, func()) { return ctx, func() {} }
	}
	most := max(maxGRPCMessage, 2*int(s.opts.MaxBytes))
	return &endpoint{Service: s, GRPC: g, connections: newConnections(listener, g.Connections), received: bounded.New(max(s.opts.MemoryBytes, poolMessages*int64(most))),
		sent: bounded.New(max(s.opts.MemoryBytes, 4*s.opts.MaxBytes, 2*int64(s.opts.MaxMessage))), maxMessage: most, answerTime: answerTime, tenants: map[string]int{}}
}

// Serve answers on the listener until ctx ends.
func (s *Service) Serve(ctx context.Context, listener net.Listener, g GRPC) error {
	return s.endpoint(listener, g).serve(ctx)
}

func (e *endpoint) serve(ctx context.Context) error {
	options := []grpc.ServerOption{
		grpc.InTapHandle(e.admit), grpc.ForceServerCodecV2(newCodec()), grpc.MaxSendMsgSize(1 << 30), grpc.MaxConcurrentStreams(maxConnectionCalls), grpc.MaxHeaderListSize(maxHeaderBytes),
		// Windows that are given do not grow by themselves.
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
		timer := time.AfterFunc(e.Grace, server.Stop) // the streams of workers never end by themselves
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

type callerKey struct{}

// admit decides by its headers alone whether a call is let in, before anything of its message is taken.
func (e *endpoint) admit(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
	defer panics.Contain(&err, e.log, "admitting a call")
	caller, who, err := e.caller(ctx, info)
	if from, ok := peer.FromContext(ctx); ok && who != unchecked {
		_ = sleep.For(ctx, e.connections.noteCall(from.Addr.String(), who == known))
	}
	if err != nil {
		return ctx, statusOf(err)
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// standing is what is known of who makes a call.
type standing int

const (
	unchecked standing = iota // the key could not be looked up
	stranger                  // nobody's key, or none
	known
)

// caller finds out whose call it is, by the key in "authorization: Bearer …", and whether it is allowed.
func (e *endpoint) caller(ctx context.Context, info *tap.Info) (forebay.Caller, standing, error) {
	key := ""
	for _, v := range info.Header.Get("authorization") {
		if scheme, rest, found := strings.Cut(v, " "); found && strings.EqualFold(scheme, "bearer") {
			key = strings.TrimSpace(rest)
		}
	}
	limited, cancel := context.WithTimeout(ctx, authenticationTime)
	defer cancel()
	caller, open, err := e.Authenticate(limited, key)
	if err == nil && open && !fromHere(ctx) {
		err = forebay.Errorf(forebay.CodeUnauthorized, "without API keys only this machine is answered")
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return caller, unchecked, forebay.Errorf(forebay.CodeUnavailable, "the API key cannot be checked now; try again")
	case forebay.CodeOf(err) == forebay.CodeUnauthorized:
		return caller, stranger, cmp.Or(e.opts.Limits.Stranger(addressOf(ctx)), err)
	case err != nil:
		return caller, unchecked, err
	}
	scope, ok := scopes[info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]]
	if !ok {
		scope = forebay.ScopeOperate
	}
	if !caller.May(scope) {
		return caller, known, forebay.Errorf(forebay.CodeForbidden, "the API key lacks the scope %s", scope)
	}
	if scope == forebay.ScopeOperate {
		return caller, known, nil // what a worker has done is never refused: it was asked to do it
	}
	return caller, known, e.opts.Limits.Request(turns.With(limited, caller.Tenant), caller.Tenant, caller.KeyID)
}

// enter counts a call, until leave.
func (e *endpoint) enter(tenant string) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls >= maxCalls || e.tenants[tenant] >= maxTenantCalls {
		return nil, status.Error(codes.ResourceExhausted, "too many calls are open already; try again")
	}
	e.calls++
	e.tenants[tenant]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.calls--
		if e.tenants[tenant]--; e.tenants[tenant] == 0 {
			delete(e.tenants, tenant)
		}
	}, nil
}

// call is a stream whose context says whose it is, and whose message is received with care.
type call struct {
	grpc.ServerStream
	ctx      context.Context
	receiver receiver
	sender   sender
}

func (c *call) Context() context.Context { return c.ctx }
func (c *call) RecvMsg(m any) error      { return c.receiver.receive(c.ctx, m) }

// SendMsg sends nothing once the caller's key has ended.
func (c *call) SendMsg(m any) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.sender.send(c.ctx, m)
}

type tenantKey struct{}

// serveCall has a call served that was let in.
func (e *endpoint) serveCall(stream grpc.ServerStream, method string, serve func(*call) error) error {
	err := panics.Run(e.log, "the call "+method, func() error {
		caller, ok := stream.Context().Value(callerKey{}).(forebay.Caller)
		if !ok {
			return forebay.Errorf(forebay.CodeUnauthorized, "the call was not let in")
		}
		leave, err := e.enter(caller.Tenant)
		if err != nil {
			return err
		}
		defer leave()
		ctx, release := e.Hold(turns.With(stream.Context(), caller.Tenant), caller)
		defer release()
		tenant, err := e.store.EnsureTenant(ctx, caller.Tenant)
		if err != nil {
			return err
		}
		reserved := &reservation{}
		defer reserved.release()
		if caller.Budgeted {
			ctx = forebay.WithBudgetKey(ctx, caller.KeyID)
		}
		ctx = context.WithValue(forebay.WithActor(ctx, caller.KeyID), tenantKey{}, tenant)
		ctx = context.WithValue(ctx, reservationKey{}, reserved)
		claim := e.sent.Claim(caller.Tenant)
		defer claim.Release()
		err = serve(&call{
			stream, bounded.With(ctx, claim),
			receiver{e.Service, stream, e.received, caller.Tenant, e.maxMessage, reserved},
			sender{stream, e.sent, caller.Tenant, claim, func() { e.connections.hangUp(stream.Context()) }, e.answerTime},
		})
		if cause := context.Cause(ctx); forebay.CodeOf(cause) == forebay.CodeUnauthorized {
			return cause
		}
		return err
	})
	return statusOf(err)
}

// perTenant describes the engine's service with each call led to the hub of its tenant. All methods are streams here, for those are
// called before their message is received.
func (e *endpoint) perTenant() *grpc.ServiceDesc {
	desc := protos.TaskHubSidecarService_ServiceDesc
	desc.HandlerType = nil
	methods, streams := desc.Methods, desc.Streams
	desc.Methods, desc.Streams = nil, nil
	for _, m := range methods {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: func(_ any, stream grpc.ServerStream) error {
			return e.serveCall(stream, m.MethodName, func(c *call) error { return e.unary(c, m.Handler) })
		}})
	}
	for _, m := range streams {
		handler := m.Handler
		m.Handler = func(_ any, stream grpc.ServerStream) error {
			return e.serveCall(stream, m.StreamName, func(c *call) error {
				h := e.served(c.ctx)
				return handler(h.remote, workItems{c, h})
			})
		}
		desc.Streams = append(desc.Streams, m)
	}
	return &desc
}

// unary serves a call that has one message and one answer.
func (e *endpoint) unary(c *call, handler grpc.MethodHandler) error {
	h, bare := e.served(c.ctx), new(bool)
	answer, err := handler(h.remote, context.WithValue(c.ctx, bareKey{}, bare), func(m any) error {
		if err := c.RecvMsg(m); err != nil {
			return err
		}
		if err := checkCall(m); err != nil {
			return err
		}
		get, _ := m.(*protos.GetInstanceRequest)
		*bare = !get.GetGetInputsAndOutputs()
		return nil
	}, h.beforeEngine)
	if err != nil {
		return err
	}
	return c.SendMsg(answer)
}

// checkCall says why a message cannot be given to the engine; nil: it can.
func checkCall(m any) error {
	switch m := m.(type) {
	case *protos.CreateInstanceRequest:
		if why := firstOf(checkTrace(m.GetParentTraceContext()), checkTime("has a start", m.GetScheduledStartTimestamp(), false)); why != "" {
			return status.Error(codes.InvalidArgument, "the instance "+why)
		}
	case *protos.PurgeInstancesRequest:
		filter := m.GetPurgeInstanceFilter()
		if why := firstOf(checkTime("purge begins", filter.GetCreatedTimeFrom(), false), checkTime("purge ends", filter.GetCreatedTimeTo(), false)); why != "" {
			return status.Error(codes.InvalidArgument, "the "+why)
		}
	}
	return nil
}

// createKey is for how an instance is asked for. The engine hands on neither its version nor whose id may be used again.
type createKey struct{}

// beforeEngine is called with each message before the engine is. It answers what the engine does not offer.
func (h *taskHub) beforeEngine(ctx context.Context, m any, _ *grpc.UnaryServerInfo, engine grpc.UnaryHandler) (any, error) {
	switch m := m.(type) {
	case *protos.CreateInstanceRequest:
		ctx = context.WithValue(ctx, createKey{}, m)
	case *protos.PurgeInstancesRequest:
		if filter := m.GetPurgeInstanceFilter(); filter != nil {
			return h.purgeFiltered(ctx, filter)
		}
	}
	return engine(ctx, m)
}

// purgeFiltered deletes the instances of a filter that are over.
func (h *taskHub) purgeFiltered(ctx context.Context, filter *protos.PurgeInstanceFilter) (*protos.PurgeInstancesResponse, error) {
	var req ListRequest
	if from := filter.GetCreatedTimeFrom(); from != nil {
		req.From = from.AsTime()
	}
	if until := filter.GetCreatedTimeTo(); until != nil {
		req.Until = until.AsTime()
	}
	for _, number := range filter.GetRuntimeStatus() {
		ended, ok := history.Statuses[number]
		if !ok || !ended.Terminal() {
			return nil, status.Errorf(codes.InvalidArgument, "only instances that are over are purged, none with the status %d", number)
		}
		req.Statuses = append(req.Statuses, ended)
	}
	tenant, err := h.store.TenantName(ctx, h.tenant)
	if err != nil {
		return nil, err
	}
	purged, err := h.PurgeMany(ctx, tenant, req)
	if err != nil {
		return nil, err
	}
	return &protos.PurgeInstancesResponse{DeletedInstanceCount: int32(min(purged, math.MaxInt32)), IsComplete: wrapperspb.Bool(true)}, nil
}

// reusePolicy is the field of CreateInstanceRequest that says which instances a new one replaces, in Microsoft's edition of the protocol:
// a message whose field 1 lists statuses. The engine's edition does not have it.
const reusePolicy = 6

// replaceable returns the ends of instances that a new one replaces; nil: any.
func replaceable(m *protos.CreateInstanceRequest) (ends []forebay.OrchestrationStatus) {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || size < 0 {
			return ends
		}
		if number == reusePolicy && kind == protowire.BytesType {
			policy, _ := protowire.ConsumeBytes(b[n:])
			ends = append(ends, endsOf(policy)...)
			if ends == nil {
				ends = []forebay.OrchestrationStatus{} // it names none
			}
		}
		b = b[n+size:]
	}
	return ends
}

// endsOf returns the statuses in field 1 of a message, packed or not, that instances end with.
func endsOf(policy []byte) (ends []forebay.OrchestrationStatus) {
	add := func(v uint64) {
		if end, ok := history.Statuses[protos.OrchestrationStatus(v)]; ok && end.Terminal() && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	for b := policy; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || size < 0 {
			return ends
		}
		value := b[n : n+size]
		switch {
		case number == 1 && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			add(v)
		case number == 1 && kind == protowire.BytesType:
			packed, _ := protowire.ConsumeBytes(value)
			for len(packed) > 0 {
				v, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return ends
				}
				add(v)
				packed = packed[n:]
			}
		}
		b = b[n+size:]
	}
	return ends
}

// bareKey is for whether a call needs no payloads of the instances that it reads, which the engine does not tell its backend.
type bareKey struct{}

// fillAsked is fill, unless the call needs no payloads.
func (h *taskHub) fillAsked(ctx context.Context, row *OrchestrationRow) error {
	if bare, _ := ctx.Value(bareKey{}).(*bool); bare != nil && *bare {
		return nil
	}
	return h.fill(ctx, row)
}

func (s *Service) served(ctx context.Context) *taskHub {
	return s.taskHub(ctx.Value(tenantKey{}).(int64))
}

// scopes are what methods need; the others, of workers, need to operate.
var scopes = map[string]forebay.Scope{
	"Hello": forebay.ScopeRead, "GetInstance": forebay.ScopeRead, "WaitForInstanceStart": forebay.ScopeRead, "WaitForInstanceCompletion": forebay.ScopeRead,
	"ListInstanceIDs": forebay.ScopeRead, "GetInstanceHistory": forebay.ScopeRead, "StartInstance": forebay.ScopeSubmit, "RaiseEvent": forebay.ScopeSubmit,
}

func fromHere(ctx context.Context) bool {
	addr, err := netip.ParseAddr(addressOf(ctx))
	return err == nil && addr.IsLoopback()
}

// addressOf is the address that a call comes from, without its port; "": nobody knows.
func addressOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	addr, err := netip.ParseAddrPort(from.Addr.String())
	if err != nil {
		return from.Addr.String()
	}
	return addr.Addr().Unmap().String()
}

var statusCodes = map[forebay.Code]codes.Code{
	forebay.CodeUnauthorized: codes.Unauthenticated, forebay.CodeForbidden: codes.PermissionDenied, forebay.CodeNotFound: codes.NotFound, forebay.CodeConflict: codes.AlreadyExists,
	forebay.CodeGone: codes.FailedPrecondition, forebay.CodeInvalidRequest: codes.InvalidArgument, forebay.CodeInvalidJSON: codes.InvalidArgument,
	forebay.CodePayloadTooLarge: codes.InvalidArgument, forebay.CodeNotSupported: codes.Unimplemented, forebay.CodeUnavailable: codes.Unavailable,
	forebay.CodeStorageFull: codes.ResourceExhausted, forebay.CodeTooManyRequests: codes.ResourceExhausted, forebay.CodeTenantLimit: codes.ResourceExhausted, forebay.CodeRateLimited: codes.ResourceExhausted, forebay.CodeUnknownOrchestrator: codes.NotFound, forebay.CodeInvalidCursor: codes.InvalidArgument,
}

// statusOf says an error in gRPC's codes. What it does not know it does not tell.
func statusOf(err error) error {
	var known *forebay.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		code, ok := statusCodes[known.Code]
		if !ok {
			return status.Error(codes.Internal, "something went wrong here")
		}
		return status.Error(code, known.Error())
	case errors.Is(err, panics.ErrPanicked):
		return status.Error(codes.Internal, "something went wrong here")
	case errors.Is(err, api.ErrInstanceNotFound):
		return status.Error(codes.NotFound, "there is no such instance")
	case errors.Is(err, api.ErrDuplicateInstance):
		return status.Error(codes.AlreadyExists, "there is an instance with that id already")
	case errors.Is(err, api.ErrNotCompleted):
		return status.Error(codes.FailedPrecondition, "the instance is not over")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the time is up")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "cancelled")
	case api.IsUnknownInstanceIDError(err), api.IsUnknownTaskIDError(err):
		return status.Error(codes.NotFound, "nobody waits for this result any more")
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	return status.Error(codes.Internal, "something went wrong here")
}
